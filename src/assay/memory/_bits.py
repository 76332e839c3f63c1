"""Counting and rearranging bits eight words at a time: LLVM instructions that Numba has no name for.

Vectors of eight 64-bit words are the widest that a processor may have (AVX-512); where it has narrower ones, or no
population count of vectors, LLVM takes several instructions for each. What comes out is the same everywhere.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "LANES",
    "OCTET",
    "ROWS",
    "WORD",
    "bit_planes",
    "count_bits",
    "differing_bits",
    "leading_zeros",
    "shared_bits",
]

WORD = 64
LANES = 8
OCTET = 8
ROWS = 4
"""Rows that `shared_bits` counts together: each word of a plane is loaded once for all of them."""
INT64 = ir.IntType(64)
VECTOR = ir.VectorType(INT64, LANES)


def _data(context: Any, builder: Any, array_type: Any, array: Any) -> Any:
    return context.make_array(array_type)(context, builder, array).data


def _load(builder: Any, pointer: Any, at: Any, *, lanes: int = LANES) -> Any:
    """Some words from ``pointer[at]`` on, which needn't be aligned to more than a word."""
    vector = ir.VectorType(INT64, lanes)
    address = builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())
    return builder.load(address, align=WORD // 8, typ=vector)


def _splat(builder: Any, number: Any, *, lanes: int = LANES) -> Any:
    vector = ir.VectorType(INT64, lanes)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(
        single, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
    )


def _call(builder: Any, name: str, result: Any, vector: Any) -> Any:
    lanes = vector.type.count
    kind = ir.FunctionType(result, [vector.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{lanes}i64"), [vector])


def _count(builder: Any, vector: Any) -> Any:
    return _call(builder, "ctpop", vector.type, vector)


def _sum(builder: Any, vector: Any) -> Any:
    return _call(builder, "vector.reduce.add", INT64, vector)


def _accumulator(builder: Any) -> Any:
    return cgutils.alloca_once_value(builder, ir.Constant(VECTOR, [0] * LANES))


def _add_to(builder: Any, accumulator: Any, vector: Any) -> None:
    builder.store(builder.add(builder.load(accumulator, typ=VECTOR), vector), accumulator)


@intrinsic
def _count_bits(_context: Any, _word: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def _leading_zeros(_context: Any, _word: Any) -> Any:
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], context.get_constant(types.boolean, False))

    return types.uint64(types.uint64), codegen


@intrinsic
def _differing_bits(_context: Any, rows: Any, _at: Any, signs: Any, known: Any, _state: Any, _words: Any) -> Any:
    """The known bits of a state that differ from a row: ``words`` of them, a multiple of eight, from the flat places
    `at` and `state` on.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows, signs, known = (_data(context, builder, signature.args[one], args[one]) for one in (0, 2, 3))
        at, state, words = args[1], args[4], args[5]
        total = _accumulator(builder)
        builder.store(ir.Constant(VECTOR, [0] * LANES), total)
        with cgutils.for_range(builder, builder.udiv(words, INT64(LANES))) as loop:
            offset = builder.mul(loop.index, INT64(LANES))
            here = builder.add(state, offset)
            differ = builder.xor(_load(builder, rows, builder.add(at, offset)), _load(builder, signs, here))
            _add_to(builder, total, _count(builder, builder.and_(differ, _load(builder, known, here))))
        return _sum(builder, builder.load(total, typ=VECTOR))

    integer = types.int64
    return integer(rows, integer, signs, known, integer, integer), codegen


@intrinsic
def _shared_bits(
    _context: Any,
    columns: Any,
    _at: Any,
    _stride: Any,
    planes: Any,
    _origin: Any,
    _width: Any,
    _words: Any,
    powers: Any,
    _first: Any,
    _last: Any,
    out: Any,
) -> Any:
    """Add to ``out[0:4]`` the bits that four rows share with each plane from `first` to `last`, times two to its power.

    The rows start at the flat places `at`, ``at + stride`` and so on of `columns`, plane k at ``origin + k * width`` of
    `planes`; `words` of each, a multiple of eight, are counted.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        columns, planes, powers, out = (
            _data(context, builder, signature.args[one], args[one]) for one in (0, 3, 7, 10)
        )
        at, stride, origin, width, words, first, last = (args[one] for one in (1, 2, 4, 5, 6, 8, 9))
        starts = [builder.add(at, builder.mul(stride, INT64(row))) for row in range(ROWS)]
        totals = [_accumulator(builder) for _ in range(ROWS)]
        counts = [_accumulator(builder) for _ in range(ROWS)]
        zero = ir.Constant(VECTOR, [0] * LANES)
        for total in totals:
            builder.store(zero, total)
        with cgutils.for_range_slice(builder, first, last, INT64(1), INT64) as (number, _):
            plane = builder.add(origin, builder.mul(number, width))
            for count in counts:
                builder.store(zero, count)
            with cgutils.for_range(builder, builder.udiv(words, INT64(LANES))) as loop:
                offset = builder.mul(loop.index, INT64(LANES))
                chosen = _load(builder, planes, builder.add(plane, offset))
                for start, count in zip(starts, counts, strict=True):
                    here = _load(builder, columns, builder.add(start, offset))
                    _add_to(builder, count, _count(builder, builder.and_(here, chosen)))
            power = _splat(builder, builder.load(builder.gep(powers, [number]), typ=INT64))
            for total, count in zip(totals, counts, strict=True):
                _add_to(builder, total, builder.shl(builder.load(count, typ=VECTOR), power))
        for row, total in enumerate(totals):
            address = builder.gep(out, [INT64(row)])
            sum_ = _sum(builder, builder.load(total, typ=VECTOR))
            builder.store(builder.add(builder.load(address, typ=INT64), sum_), address)
        return context.get_dummy_value()

    integer = types.int64
    arguments = (columns, integer, integer, planes, integer, integer, integer, powers, integer, integer, out)
    return types.void(*arguments), codegen


@intrinsic
def _bit_planes(_context: Any, numbers: Any, planes: Any, _place: Any, _width: Any, _octets: Any) -> Any:
    """The bits of 64 numbers: bit k of all of them is the word at ``place + k * width`` of `planes`, k below eight
    times `octets`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers, planes = (_data(context, builder, signature.args[one], args[one]) for one in (0, 1))
        place, width, octets = args[2], args[3], args[4]
        whole = _load(builder, numbers, INT64(0), lanes=WORD)
        narrow = ir.VectorType(ir.IntType(OCTET), WORD)
        zero = ir.Constant(narrow, [0] * WORD)
        with cgutils.for_range(builder, octets) as loop:
            shift = _splat(builder, builder.mul(loop.index, INT64(OCTET)), lanes=WORD)
            octet = builder.trunc(builder.lshr(whole, shift), narrow)
            first = builder.add(place, builder.mul(builder.mul(loop.index, INT64(OCTET)), width))
            for bit in range(OCTET):
                chosen = builder.and_(octet, ir.Constant(narrow, [1 << bit] * WORD))
                word = builder.bitcast(builder.icmp_unsigned("!=", chosen, zero), INT64)
                builder.store(word, builder.gep(planes, [builder.add(first, builder.mul(INT64(bit), width))]))
        return context.get_dummy_value()

    integer = types.int64
    return types.void(numbers, planes, integer, integer, integer), codegen


count_bits: Any = _count_bits
leading_zeros: Any = _leading_zeros
differing_bits: Any = _differing_bits
shared_bits: Any = _shared_bits
bit_planes: Any = _bit_planes
