"""Compiled distances among dense rows.

Targets are packed into panels of `WIDTH` points with the coordinate as the slow axis, so that one vector register holds
the same coordinate of several points, and a tile of `HEIGHT` queries by `WIDTH` targets is accumulated in registers.
Every pair is summed over its coordinates in a fixed order, with fused multiply-adds, whatever the tile it falls into: a
distance depends on its two points only. That is why no BLAS is called here: its sums depend on the block's shape.

In few dimensions the order is that of the coordinates. In many, coordinate k goes to partial sum k mod 8, and the eight
are joined pairwise. Then a vector register holds eight coordinates of one row as well as one coordinate of eight rows:
pairs and blocks of few queries read rows where they lie, and large blocks pack each partial sum's coordinates together.

The register tile is emitted as vector instructions, because numba keeps no array in registers and its vectoriser gives
up on tiles whose rows might overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = [
    "ABSOLUTE",
    "ANGLE",
    "DOT",
    "IDENTITY",
    "MAXIMUM",
    "POWER",
    "ROOT",
    "SQRT",
    "SQUARED",
    "below",
    "centred_squares",
    "close_pairs",
    "vector_block",
    "vector_pairs",
]

DOT, SQUARED, ABSOLUTE, MAXIMUM, POWER = range(5)
"""How coordinates add up: squared differences by the inner product of centred rows, or squared, absolute, greatest or
p-th power differences taken directly."""

IDENTITY, SQRT, ROOT, ANGLE = range(4)
"""What is made of the sum: nothing, its square root, its p-th root, the angle of a chord on the unit sphere."""

LANES = 8
_ZMM = llvm.get_host_cpu_features().get("avx512f", False)
HEIGHT = 8 if _ZMM else 6
WIDTH = 16 if _ZMM else 8
"""Register tile: 16 accumulators and 2 targets of 32 registers with AVX-512, 12 and 2 of 16 with AVX2."""

LONE_ROWS = 2
"""Up to so many queries left over are done one by one, which is faster than a tile that is mostly empty."""

BUFFER = 1 << 17
"""Doubles in a packed buffer (1 MiB): queries and targets together stay in a second-level cache."""

LANED_FROM = 256
"""From so many dimensions on blocks have partial sums: in fewer, joining them costs tiles more than it saves rows."""

LANED_PAIRS_FROM = 33
"""Squared differences of pairs have them earlier: blocks take inner products there, so no order is shared."""

GROUP = 8
"""Rows read side by side, so that their sums don't wait for each other."""

FEW = 4
"""Up to so many queries or targets, reading rows where they lie is faster than packing them."""

CANCELLATION = 1e-4
"""Below this share of |x|^2 + |y|^2, |x|^2 + |y|^2 - 2xy has lost four digits, and the difference is taken directly."""


def _vector_call(builder: Any, operation: str, *arguments: Any) -> Any:
    vector = arguments[0].type
    function_type = ir.FunctionType(vector, [vector] * len(arguments))
    function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{operation}.v{LANES}f64")
    return builder.call(function, arguments)


def _load(builder: Any, vector: Any, place: Any) -> Any:
    return builder.load(builder.bitcast(place, vector.as_pointer()), align=1, typ=vector)


def _store(builder: Any, value: Any, place: Any) -> None:
    builder.store(value, builder.bitcast(place, value.type.as_pointer()), align=8)


def _order(lanes: list[int]) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)


def _splat(builder: Any, vector: Any, scalar: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    return builder.shuffle_vector(
        builder.insert_element(undefined, scalar, ir.IntType(32)(0)), undefined, _order([0] * LANES)
    )


def _widened(builder: Any, stored: Any, vector: Any) -> Any:
    """Return a vector of uint8, float32 or float64 as float64."""
    if isinstance(stored.type.element, ir.IntType):
        return builder.uitofp(stored, vector)
    return stored if stored.type.element == vector.element else builder.fpext(stored, vector)


def _accumulate(builder: Any, kind: int, total: Any, query: Any, target: Any) -> Any:
    if kind == DOT:
        return _vector_call(builder, "fma", query, target, total)
    return _add_difference(builder, kind, total, builder.fsub(query, target))


def _add_difference(builder: Any, kind: int, total: Any, difference: Any) -> Any:
    if kind == SQUARED:
        return _vector_call(builder, "fma", difference, difference, total)
    absolute = _vector_call(builder, "fabs", difference)
    if kind == ABSOLUTE:
        return builder.fadd(total, absolute)
    return builder.select(builder.fcmp_ordered(">", absolute, total), absolute, total)


def _tile_code(kind: int, height: int, root: bool) -> Callable[..., Any]:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        queries, panels, out = (
            context.make_array(signature.args[at])(context, builder, args[at]).data for at in (0, 3, 6)
        )
        first, step, origin, dims, place, stride = args[1], args[2], args[4], args[5], args[7], args[8]
        size, vector = ir.IntType(64), ir.VectorType(ir.DoubleType(), LANES)
        parts = WIDTH // LANES
        rows = [builder.gep(queries, [builder.add(first, builder.mul(size(row), step))]) for row in range(height)]
        panel = builder.gep(panels, [origin])
        entry = builder.block
        loop, done = builder.append_basic_block("coordinates"), builder.append_basic_block("done")
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(size)
        k.add_incoming(size(0), entry)
        totals = [builder.phi(vector) for _ in range(height * parts)]
        for total in totals:
            total.add_incoming(ir.Constant(vector, [0.0] * LANES), entry)
        targets = [
            _load(builder, vector, builder.gep(panel, [builder.add(builder.mul(k, size(WIDTH)), size(part * LANES))]))
            for part in range(parts)
        ]
        sums = []
        for row in range(height):
            query = _splat(builder, vector, builder.load(builder.gep(rows[row], [k]), typ=ir.DoubleType()))
            for part in range(parts):
                sums.append(_accumulate(builder, kind, totals[row * parts + part], query, targets[part]))
        following = builder.add(k, size(1))
        k.add_incoming(following, loop)
        for total, value in zip(totals, sums, strict=True):
            total.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, dims), loop, done)

        builder.position_at_end(done)
        for number, value in enumerate(sums):
            row, part = divmod(number, parts)
            at = builder.add(builder.add(place, builder.mul(stride, size(row))), size(part * LANES))
            _store(builder, _vector_call(builder, "sqrt", value) if root else value, builder.gep(out, [at]))
        return context.get_dummy_value()

    return codegen


def _tile(kind: int, height: int, *, root: bool = False) -> Any:
    """Return the intrinsic ``tile(queries, first, step, panels, origin, dims, out, place, stride)``.

    It reads `dims` coordinates of `height` rows, which start at ``queries[first + r * step]``, and the panel that
    starts at ``panels[origin]``, and writes row r of its sums (or their roots) to ``out[place + r * stride]`` and on.
    """

    def typed(
        context: Any,
        queries: Any,
        first: Any,
        step: Any,
        panels: Any,
        origin: Any,
        dims: Any,
        out: Any,
        place: Any,
        stride: Any,
    ) -> Any:
        integer = types.int64
        signature = types.void(queries, integer, integer, panels, integer, integer, out, integer, integer)
        return signature, _tile_code(kind, height, root)

    return intrinsic(typed)


_dot_tile, _dot_row = _tile(DOT, HEIGHT), _tile(DOT, 1)
_euclidean_tile, _euclidean_row = _tile(SQUARED, HEIGHT, root=True), _tile(SQUARED, 1, root=True)
_squared_tile, _squared_row = _tile(SQUARED, HEIGHT), _tile(SQUARED, 1)
_absolute_tile, _absolute_row = _tile(ABSOLUTE, HEIGHT), _tile(ABSOLUTE, 1)
_maximum_tile, _maximum_row = _tile(MAXIMUM, HEIGHT), _tile(MAXIMUM, 1)


@intrinsic
def _pack_square(
    context: Any,
    flat: Any,
    starts: Any,
    column: Any,
    factors: Any,
    shift: Any,
    k: Any,
    packed: Any,
    place: Any,
    step: Any,
) -> Any:
    """Transpose 8 coordinates from k on of the 8 rows that start at ``flat[starts[column]]`` and on into a panel.

    Coordinate k + c goes to ``packed[place + c * step]`` and on.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        flat, starts, factors, shift, packed = (
            context.make_array(signature.args[at])(context, builder, args[at]).data for at in (0, 1, 3, 4, 6)
        )
        column, k, place, step = args[2], args[5], args[7], args[8]
        size, double = ir.IntType(64), ir.DoubleType()
        vector = ir.VectorType(double, LANES)
        stored = ir.VectorType(context.get_data_type(signature.args[0].dtype), LANES)
        middle = _load(builder, vector, builder.gep(shift, [k]))
        rows = []
        for lane in range(LANES):
            at = builder.add(column, size(lane))
            start = builder.load(builder.gep(starts, [at]), typ=size)
            row = _load(builder, stored, builder.gep(flat, [builder.add(start, k)]))
            row = _widened(builder, row, vector)
            factor = _splat(builder, vector, builder.load(builder.gep(factors, [at]), typ=double))
            rows.append(builder.fmul(builder.fsub(row, middle), factor))
        for order_low, order_high, distance in (
            ([0, 8, 2, 10, 4, 12, 6, 14], [1, 9, 3, 11, 5, 13, 7, 15], 1),
            ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15], 2),
            ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15], 4),
        ):
            for low in (lane for lane in range(LANES) if not lane & distance):
                a, b = rows[low], rows[low + distance]
                rows[low] = builder.shuffle_vector(a, b, _order(order_low))
                rows[low + distance] = builder.shuffle_vector(a, b, _order(order_high))
        for coordinate, row in enumerate(rows):
            at = builder.add(builder.add(place, builder.mul(step, size(coordinate))), column)
            _store(builder, row, builder.gep(packed, [at]))
        return context.get_dummy_value()

    integer = types.int64
    return types.void(flat, starts, integer, factors, shift, integer, packed, integer, integer), codegen


def _lanes_code(kind: int, *, rows: bool, shifted: bool, scaled: bool) -> Callable[..., Any]:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, first_starts, second, second_starts, shift, factors, out = (
            context.make_array(signature.args[at])(context, builder, args[at]).data for at in (0, 1, 2, 3, 4, 5, 7)
        )
        dims, size, double = args[6], ir.IntType(64), ir.DoubleType()
        vector = ir.VectorType(double, LANES)
        zero = ir.Constant(vector, [0.0] * LANES)
        element = [context.get_data_type(signature.args[at].dtype) for at in (0, 2)]

        def row_starts(flat: Any, starts: Any, count: int) -> list[Any]:
            at = [builder.load(builder.gep(starts, [size(row)]), typ=size) for row in range(count)]
            return [builder.gep(flat, [start]) for start in at]

        def coordinates(side: int, row: int, k: Any) -> Any:
            stored = _load(builder, ir.VectorType(element[side], LANES), builder.gep(places[side][row], [k]))
            value = _widened(builder, stored, vector)
            if scaled and not (rows and side == 0):
                return builder.fmul(value, splats[side][row])
            return value

        def summed(k: Any, totals: list[Any], fresh: Any) -> list[Any]:
            sums = []
            middle = _load(builder, vector, builder.gep(shift, [k])) if shifted else None
            query = coordinates(0, 0, k) if rows else None
            for row, total in enumerate(totals):
                a = query if rows else coordinates(0, row, k)
                b = coordinates(1, row, k)
                if shifted:
                    b = builder.fsub(b, middle)
                if kind == DOT:
                    b = b if fresh is None else builder.select(fresh, b, zero)
                    sums.append(_vector_call(builder, "fma", a, b, total))
                else:
                    difference = builder.fsub(a, b)
                    difference = difference if fresh is None else builder.select(fresh, difference, zero)
                    sums.append(_add_difference(builder, kind, total, difference))
            return sums

        places = row_starts(first, first_starts, 1 if rows else GROUP), row_starts(second, second_starts, GROUP)
        if scaled:
            splats = [
                [
                    _splat(builder, vector, builder.load(builder.gep(factors, [size(side * GROUP + row)]), typ=double))
                    for row in range(GROUP)
                ]
                for side in (0, 1)
            ]
        left = builder.urem(dims, size(LANES))
        whole = builder.sub(dims, left)
        entry = builder.block
        loop, after, tail, done = (
            builder.append_basic_block(name) for name in ("coordinates", "after", "tail", "done")
        )
        builder.branch(loop)

        builder.position_at_end(loop)
        k = builder.phi(size)
        k.add_incoming(size(0), entry)
        totals = [builder.phi(vector) for _ in range(GROUP)]
        for total in totals:
            total.add_incoming(zero, entry)
        sums = summed(k, totals, None)
        following = builder.add(k, size(LANES))
        k.add_incoming(following, loop)
        for total, value in zip(totals, sums, strict=True):
            total.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", following, whole), loop, after)

        builder.position_at_end(after)
        builder.cbranch(builder.icmp_signed(">", left, size(0)), tail, done)

        # The last eight coordinates once more, of which the last few are new.
        builder.position_at_end(tail)
        lanes = ir.VectorType(size, LANES)
        undefined = ir.Constant(lanes, ir.Undefined)
        new_from = builder.insert_element(undefined, builder.sub(size(LANES), left), ir.IntType(32)(0))
        new_from = builder.shuffle_vector(new_from, undefined, _order([0] * LANES))
        fresh = builder.icmp_signed(">=", ir.Constant(lanes, list(range(LANES))), new_from)
        last = summed(builder.sub(dims, size(LANES)), sums, fresh)
        builder.branch(done)

        builder.position_at_end(done)
        results = [builder.phi(vector) for _ in range(GROUP)]
        for row, result in enumerate(results):
            result.add_incoming(sums[row], after)
            result.add_incoming(last[row], tail)
        for row, result in enumerate(results):
            _store(builder, result, builder.gep(out, [size(row * LANES)]))
        return context.get_dummy_value()

    return codegen


def _lanes(kind: int, *, rows: bool, shifted: bool = False, scaled: bool = False) -> Any:
    """Return the intrinsic ``lanes(first, first_starts, second, second_starts, shift, factors, dims, out)``.

    It writes the eight partial sums of row g, over ``first[first_starts[g] + k]`` and ``second[second_starts[g] + k]``,
    to ``out[8 * g]`` and on, for `GROUP` rows. With `rows` there is one first row, ready made. From the others, `shift`
    is subtracted with `shifted`; with `scaled` they are multiplied by ``factors[g]`` and ``factors[GROUP + g]``.
    """

    def typed(
        context: Any,
        first: Any,
        first_starts: Any,
        second: Any,
        second_starts: Any,
        shift: Any,
        factors: Any,
        dims: Any,
        out: Any,
    ) -> Any:
        signature = types.void(first, first_starts, second, second_starts, shift, factors, types.int64, out)
        return signature, _lanes_code(kind, rows=rows, shifted=shifted, scaled=scaled)

    return intrinsic(typed)


_dot_lanes = _lanes(DOT, rows=True, shifted=True)
_scaled_dot_lanes = _lanes(DOT, rows=True, scaled=True)
_absolute_lanes = _lanes(ABSOLUTE, rows=True)
_maximum_lanes = _lanes(MAXIMUM, rows=True)
_squared_pair_lanes = _lanes(SQUARED, rows=False)
_scaled_pair_lanes = _lanes(SQUARED, rows=False, scaled=True)
_absolute_pair_lanes = _lanes(ABSOLUTE, rows=False)
_maximum_pair_lanes = _lanes(MAXIMUM, rows=False)


@intrinsic
def _fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once: the arithmetic of the tiles, for single pairs."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), codegen


@njit(cache=True, nogil=True, inline="always")
def _finish(total: float, p: float, finish: int) -> float:
    if finish == SQRT:
        return math.sqrt(total)
    if finish == ROOT:
        return total ** (1.0 / p)  # type: ignore[no-any-return]
    if finish == ANGLE:
        return 2.0 * math.asin(min(1.0, 0.5 * math.sqrt(total)))
    return total


@njit(cache=True, nogil=True, inline="always")
def _power(base: float, p: float) -> float:
    # The exponents that people use are small multiples of a half; a general power takes ten times as long.
    if p == 1.5:
        return base * math.sqrt(base)
    if p == 3.0:
        return base * base * base
    if p == 4.0:
        return (base * base) * (base * base)
    return base**p  # type: ignore[no-any-return]


@njit(cache=True, nogil=True)
def _direct(X, i, j, scale, kind, p):  # type: ignore[no-untyped-def]
    """Return the sum over the coordinates of rows i and j, differences taken directly."""
    a, b = (scale[i], scale[j]) if len(scale) else (1.0, 1.0)
    total = 0.0
    for k in range(X.shape[1]):
        difference = np.float64(X[i, k]) * a - np.float64(X[j, k]) * b
        if kind == SQUARED:
            total = _fma(difference, difference, total)  # type: ignore[call-arg]
        elif kind == ABSOLUTE:
            total += abs(difference)
        elif kind == MAXIMUM:
            total = max(total, abs(difference))
        else:
            total += _power(abs(difference), p)
    return total


@njit(cache=True, nogil=True, inline="always")
def _joined(sums, at, step, kind):  # type: ignore[no-untyped-def]
    """Return the eight partial sums from ``sums[at]`` on, joined pairwise."""
    a, b, c, d = sums[at], sums[at + step], sums[at + 2 * step], sums[at + 3 * step]
    e, f, g, h = sums[at + 4 * step], sums[at + 5 * step], sums[at + 6 * step], sums[at + 7 * step]
    if kind == MAXIMUM:
        return max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@njit(cache=True, nogil=True)
def _laned_pairs(X, first, second, scale, kind, p, finish, out):  # type: ignore[no-untyped-def]
    flat, dims, last = X.reshape(-1), X.shape[1], len(first) - 1
    a, b = np.empty(GROUP, dtype=np.int64), np.empty(GROUP, dtype=np.int64)
    factors, sums = np.ones(2 * GROUP), np.empty(GROUP * LANES)
    for start in range(0, len(first), GROUP):
        for row in range(GROUP):
            i, j = first[min(start + row, last)], second[min(start + row, last)]
            a[row], b[row] = i * dims, j * dims
            if len(scale):
                factors[row], factors[GROUP + row] = scale[i], scale[j]
        if kind == ABSOLUTE:
            _absolute_pair_lanes(flat, a, flat, b, factors, factors, dims, sums)
        elif kind == MAXIMUM:
            _maximum_pair_lanes(flat, a, flat, b, factors, factors, dims, sums)
        elif len(scale):
            _scaled_pair_lanes(flat, a, flat, b, factors, factors, dims, sums)
        else:
            _squared_pair_lanes(flat, a, flat, b, factors, factors, dims, sums)
        for row in range(min(GROUP, len(first) - start)):
            out[start + row] = _finish(_joined(sums, row * LANES, 1, kind), p, finish)


@njit(cache=True, nogil=True)
def vector_pairs(X, first, second, scale, kind, p, finish):  # type: ignore[no-untyped-def]
    """Return the distances of the pairs (first[a], second[a])."""
    out = np.empty(len(first))
    if kind != POWER and X.shape[1] >= (LANED_PAIRS_FROM if kind == SQUARED else LANED_FROM):
        _laned_pairs(X, first, second, scale, kind, p, finish, out)
        return out
    for a in range(len(first)):
        out[a] = _finish(_direct(X, first[a], second[a], scale, kind, p), p, finish)
    return out


@njit(cache=True, nogil=True)
def close_pairs(X, first, second, scale, kind, p, finish):  # type: ignore[no-untyped-def]
    """Return the distances of pairs so close, or so far apart, that their sums of powers leave float64.

    Each pair's differences are divided by their greatest: exactly, by a power of two, unless the power is not 2.
    """
    out = np.zeros(len(first))
    for at in range(len(first)):
        i, j = first[at], second[at]
        a, b = (scale[i], scale[j]) if len(scale) else (1.0, 1.0)
        greatest = 0.0
        for k in range(X.shape[1]):
            greatest = max(greatest, abs(np.float64(X[i, k]) * a - np.float64(X[j, k]) * b))
        if greatest == 0.0:
            continue
        # Two factors, because the inverse of a denormal number has no float64.
        _, exponent = math.frexp(greatest)
        half = -exponent // 2
        once, again = math.ldexp(1.0, half), math.ldexp(1.0, -exponent - half)
        total = 0.0
        for k in range(X.shape[1]):
            difference = np.float64(X[i, k]) * a - np.float64(X[j, k]) * b
            if kind == POWER:
                total += _power(abs(difference / greatest), p)
            else:
                difference = difference * once * again
                total = _fma(difference, difference, total)  # type: ignore[call-arg]
        if kind == POWER:
            out[at] = total ** (1.0 / p) * greatest
        else:
            chord = math.sqrt(total) / again / once
            out[at] = 2.0 * math.asin(min(1.0, 0.5 * chord)) if finish == ANGLE else chord
    return out


@njit(cache=True, nogil=True)
def below(values, floor):  # type: ignore[no-untyped-def]
    """Return the positions of a flat array whose values are below `floor`."""
    count = 0
    for value in values:
        count += value < floor
    where = np.empty(count, dtype=np.int64)
    if count:
        at = 0
        for place in range(len(values)):
            if values[place] < floor:
                where[at] = place
                at += 1
    return where


@njit(cache=True, nogil=True)
def centred_squares(X, shift, scale):  # type: ignore[no-untyped-def]
    """Return the squared norm of every row minus `shift`, scaled."""
    out = np.empty(len(X))
    for i in range(len(X)):
        factor = scale[i] if len(scale) else 1.0
        total = 0.0
        for k in range(X.shape[1]):
            value = (np.float64(X[i, k]) - shift[k]) * factor
            total = _fma(value, value, total)  # type: ignore[call-arg]
        out[i] = total
    return out


@njit(cache=True, nogil=True)
def _pack_rows(X, index, shift, scale, laned, packed):  # type: ignore[no-untyped-def]
    dims = X.shape[1]
    slots = -(-dims // LANES)
    whole = dims - dims % LANES
    for a in range(len(index)):
        i = index[a]
        factor = scale[i] if len(scale) else 1.0
        start = a * (slots * LANES if laned else dims)
        for k in range(dims):
            place = k
            if laned:
                place = k % LANES * slots + k // LANES if k < whole else (k - dims + LANES) * slots + slots - 1
            packed[start + place] = (np.float64(X[i, k]) - shift[k]) * factor


@njit(cache=True, nogil=True)
def _pack_panels(X, index, shift, scale, laned, packed):  # type: ignore[no-untyped-def]
    dims = X.shape[1]
    slots = -(-dims // LANES)
    flat = X.reshape(-1)
    starts = np.zeros(WIDTH, dtype=np.int64)
    factors = np.ones(WIDTH)
    whole = dims - dims % LANES
    for start in range(0, len(index), WIDTH):
        width = min(WIDTH, len(index) - start)
        for c in range(width):
            starts[c] = index[start + c] * dims
            if len(scale):
                factors[c] = scale[index[start + c]]
        origin = start * (slots * LANES if laned else dims)
        step = slots * WIDTH if laned else WIDTH
        for k in range(0, whole, LANES):
            place = origin + (k // LANES if laned else k) * WIDTH
            for c in range(0, WIDTH, LANES):
                _pack_square(flat, starts, c, factors, shift, k, packed, place, step)  # type: ignore[call-arg]
        if laned and whole < dims:
            for lane in range(whole - dims + LANES):
                for c in range(WIDTH):
                    packed[origin + (lane * slots + slots - 1) * WIDTH + c] = 0.0
        for k in range(whole, dims):
            place = origin + ((k - dims + LANES) * slots + slots - 1 if laned else k) * WIDTH
            for c in range(WIDTH):
                packed[place + c] = (np.float64(flat[starts[c] + k]) - shift[k]) * factors[c]


@njit(cache=True, nogil=True)
def _power_tile(queries, first, step, height, panels, origin, dims, p, out, place, stride):  # type: ignore[no-untyped-def]
    for row in range(height):
        for column in range(WIDTH):
            total = 0.0
            for k in range(dims):
                difference = queries[first + row * step + k] - panels[origin + k * WIDTH + column]
                total += _power(abs(difference), p)
            out[place + row * stride + column] = total


@njit(cache=True, nogil=True)
def _tile_into(queries, first, step, height, panels, origin, dims, kind, p, finish, out, place, stride):  # type: ignore[no-untyped-def]
    if kind == POWER:
        _power_tile(queries, first, step, height, panels, origin, dims, p, out, place, stride)
    elif height == 1:
        if kind == DOT:
            _dot_row(queries, first, step, panels, origin, dims, out, place, stride)
        elif kind == ABSOLUTE:
            _absolute_row(queries, first, step, panels, origin, dims, out, place, stride)
        elif kind == MAXIMUM:
            _maximum_row(queries, first, step, panels, origin, dims, out, place, stride)
        elif finish == SQRT:
            _euclidean_row(queries, first, step, panels, origin, dims, out, place, stride)
        else:
            _squared_row(queries, first, step, panels, origin, dims, out, place, stride)
    elif kind == DOT:
        _dot_tile(queries, first, step, panels, origin, dims, out, place, stride)
    elif kind == ABSOLUTE:
        _absolute_tile(queries, first, step, panels, origin, dims, out, place, stride)
    elif kind == MAXIMUM:
        _maximum_tile(queries, first, step, panels, origin, dims, out, place, stride)
    elif finish == SQRT:
        _euclidean_tile(queries, first, step, panels, origin, dims, out, place, stride)
    else:
        _squared_tile(queries, first, step, panels, origin, dims, out, place, stride)


@njit(cache=True, nogil=True)
def _tiles(packed_rows, packed_panels, dims, laned, kind, p, finish, out, row, rows, column, columns):  # type: ignore[no-untyped-def]
    """Write the distances of packed rows and panels into ``out[row : row + rows, column : column + columns]``."""
    flat = out.reshape(-1)
    stride = out.shape[1]
    slots = -(-dims // LANES)
    step = slots * LANES if laned else dims
    band_rows = HEIGHT * max(8, BUFFER // (4 * HEIGHT * step))
    edge = np.empty(HEIGHT * WIDTH)
    parts = np.empty(LANES * HEIGHT * WIDTH)
    for band in range(0, rows, band_rows):
        band_end = min(band + band_rows, rows)
        for start in range(0, columns, WIDTH):
            width = min(WIDTH, columns - start)
            origin = start * step
            r = band
            while r < band_end:
                height = 1 if band_end - r <= LONE_ROWS else HEIGHT
                place = (row + r) * stride + column + start
                first = r * step
                if laned:
                    for lane in range(LANES):
                        query = first + lane * slots
                        panel, to = origin + lane * slots * WIDTH, lane * HEIGHT * WIDTH
                        _tile_into(
                            packed_rows,
                            query,
                            step,
                            height,
                            packed_panels,
                            panel,
                            slots,
                            kind,
                            p,
                            IDENTITY,
                            parts,
                            to,
                            WIDTH,
                        )
                    for a in range(min(band_end - r, height)):
                        for b in range(width):
                            flat[place + a * stride + b] = _joined(parts, a * WIDTH + b, HEIGHT * WIDTH, kind)
                elif band_end - r >= height and width == WIDTH:
                    _tile_into(
                        packed_rows,
                        first,
                        step,
                        height,
                        packed_panels,
                        origin,
                        dims,
                        kind,
                        p,
                        finish,
                        flat,
                        place,
                        stride,
                    )
                else:
                    _tile_into(
                        packed_rows,
                        first,
                        step,
                        height,
                        packed_panels,
                        origin,
                        dims,
                        kind,
                        p,
                        finish,
                        edge,
                        0,
                        WIDTH,
                    )
                    for a in range(min(band_end - r, height)):
                        for b in range(width):
                            flat[place + a * stride + b] = edge[a * WIDTH + b]
                r += height


@njit(cache=True, nogil=True)
def _few_rows(X, queries, targets, shift, scale, kind, out):  # type: ignore[no-untyped-def]
    """Write the sums of few queries and all targets, whose rows are read where they lie."""
    flat, dims, last = X.reshape(-1), X.shape[1], len(targets) - 1
    rows = np.empty(len(queries) * dims)
    _pack_rows(X, queries, shift, scale, False, rows)
    query, starts = np.zeros(1, dtype=np.int64), np.empty(GROUP, dtype=np.int64)
    factors, sums = np.ones(2 * GROUP), np.empty(GROUP * LANES)
    for start in range(0, len(targets), GROUP):
        for row in range(GROUP):
            target = targets[min(start + row, last)]
            starts[row] = target * dims
            if len(scale):
                factors[GROUP + row] = scale[target]
        for a in range(len(queries)):
            query[0] = a * dims
            if kind == ABSOLUTE:
                _absolute_lanes(rows, query, flat, starts, shift, factors, dims, sums)
            elif kind == MAXIMUM:
                _maximum_lanes(rows, query, flat, starts, shift, factors, dims, sums)
            elif len(scale):
                _scaled_dot_lanes(rows, query, flat, starts, shift, factors, dims, sums)
            else:
                _dot_lanes(rows, query, flat, starts, shift, factors, dims, sums)
            for row in range(min(GROUP, len(targets) - start)):
                out[a, start + row] = _joined(sums, row * LANES, 1, kind)


@njit(cache=True, nogil=True)
def _expand(inner, row_squares, column_squares):  # type: ignore[no-untyped-def]
    """Turn inner products into squared distances, in place, and return the positions of those that cancelled."""
    count = 0
    for a in range(len(row_squares)):
        for b in range(len(column_squares)):
            both = row_squares[a] + column_squares[b]
            total = both - 2.0 * inner[a, b]
            count += total < CANCELLATION * both
            inner[a, b] = total
    where = np.empty((count, 2), dtype=np.int64)
    if count:
        at = 0
        for a in range(len(row_squares)):
            for b in range(len(column_squares)):
                if inner[a, b] < CANCELLATION * (row_squares[a] + column_squares[b]):
                    where[at, 0], where[at, 1] = a, b
                    at += 1
    return where


@njit(cache=True, nogil=True)
def _finish_all(flat, p, finish):  # type: ignore[no-untyped-def]
    if finish == SQRT:
        for at in range(flat.size):
            flat[at] = math.sqrt(flat[at])
    else:
        for at in range(flat.size):
            flat[at] = _finish(flat[at], p, finish)


def _aligned(size: int) -> NDArray[np.float64]:
    """Return an array that starts on a cache line: a register that straddles two costs two loads."""
    memory = np.empty(size + LANES)
    ahead = -(memory.ctypes.data // memory.itemsize) % LANES
    return memory[ahead : ahead + size]


def vector_block(
    X: NDArray[Any],
    queries: NDArray[np.int64],
    targets: NDArray[np.int64],
    *,
    shift: NDArray[np.float64],
    scale: NDArray[np.float64],
    squares: NDArray[np.float64],
    kind: int,
    p: float,
    finish: int,
) -> NDArray[np.float64]:
    """Return the distances from every query row to every target row.

    Only the functions that read `X` are compiled for its type; the arithmetic works on packed float64 and is compiled
    once.

    Parameters
    ----------
    X : ndarray, shape (n, d)
        float32, float64 or uint8, in C order.
    queries, targets : ndarray of int64, shapes (q,) and (m,)
    shift : ndarray of float64, shape (d,)
        Subtracted from the rows.
    scale : ndarray of float64, shape (n,) or (0,)
        Multiplies the rows, where it is not empty.
    squares : ndarray of float64, shape (n,) or (0,)
        Squared norms of the shifted and scaled rows, which DOT needs.
    kind, finish : int
        How coordinates add up, and what is made of the sum.
    p : float
        Exponent of POWER and ROOT.

    Returns
    -------
    ndarray of float64, shape (q, m)
    """
    dims = X.shape[1]
    out = np.empty((len(queries), len(targets)))
    if not out.size:
        return out
    many = dims >= LANED_FROM and kind in (DOT, ABSOLUTE, MAXIMUM)
    if many and len(targets) <= FEW < len(queries):
        # No sum depends on which of its two rows comes first.
        turned = vector_block(
            X, targets, queries, shift=shift, scale=scale, squares=squares, kind=kind, p=p, finish=finish
        )
        return np.ascontiguousarray(turned.T)
    if many and len(queries) <= FEW:
        _few_rows(X, queries, targets, shift, scale, kind, out)
        if kind == DOT:
            _expand_part(X, queries, targets, scale, squares, out)
    else:
        # A maximum has no order, so its tiles need no partial sums.
        laned = many and kind != MAXIMUM
        step = -(-dims // LANES) * LANES if laned else dims
        rows_at_once = min(len(queries), max(256, BUFFER // dims))
        columns_at_once = min(len(targets), max(64, BUFFER // dims))
        packed_rows = np.zeros((rows_at_once + HEIGHT) * step)
        packed_panels = _aligned((columns_at_once + WIDTH) * step)
        for row in range(0, len(queries), rows_at_once):
            row_index = queries[row : row + rows_at_once]
            _pack_rows(X, row_index, shift, scale, laned, packed_rows)
            for column in range(0, len(targets), columns_at_once):
                column_index = targets[column : column + columns_at_once]
                _pack_panels(X, column_index, shift, scale, laned, packed_panels)
                place = row, len(row_index), column, len(column_index)
                _tiles(packed_rows, packed_panels, dims, laned, kind, p, finish, out, *place)
                if kind == DOT:
                    part = out[row : row + len(row_index), column : column + len(column_index)]
                    _expand_part(X, row_index, column_index, scale, squares, part)
    if (kind == DOT and finish == SQRT) or finish in (ROOT, ANGLE):
        _finish_all(out.reshape(-1), p, finish)
    return out


def _expand_part(
    X: NDArray[Any],
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    scale: NDArray[np.float64],
    squares: NDArray[np.float64],
    part: NDArray[np.float64],
) -> None:
    """Turn a block of inner products into squared distances, in place; those that cancelled are taken directly."""
    where = _expand(part, squares[rows], squares[columns])
    if len(where):
        first, second = rows[where[:, 0]], columns[where[:, 1]]
        part[where[:, 0], where[:, 1]] = vector_pairs(X, first, second, scale, SQUARED, 2.0, IDENTITY)
