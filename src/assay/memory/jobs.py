"""The commands: ``assay memory store``, ``recall``, ``predict``, ``plan``, ``capacity``, ``basin`` and ``audit``."""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import InputError

if TYPE_CHECKING:
    from assay.memory.memory import DenseAssociativeMemory
    from assay.memory.pattern_files import Bits

__all__ = ["app", "audit", "basin", "capacity", "plan", "predict", "recall", "store"]

app = App(
    name="memory",
    help="Dense associative memory with predicted recall: how many patterns fit, how much corruption is survivable.",
    help_format="rst",
    version_flags=[],
)

STREAM = "-"
File: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]


def _whole_number(_type: Any, tokens: Sequence[Any]) -> int:
    """The whole number that a word is; a fraction is refused and not rounded."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{tokens[0].keyword or 'a number'} is '{text}'", expected="an integer") from None


WholeNumber: TypeAlias = Annotated[int, Parameter(converter=_whole_number)]
Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
KindName: TypeAlias = Literal["krotov", "abbott", "exact", "rectified", "exp", "softmax"]
TheoryKind: TypeAlias = Literal["krotov", "abbott"]
PICTURED = 10
BASIN_LOADS = 8


@Parameter(name="*", group=Group("Reading", sort_key=2))
@dataclass(frozen=True)
class Reading:
    """How patterns and cues are read.

    Parameters
    ----------
    key
        Which array of an .npz or .safetensors file.
    threshold
        For images: otsu, median, or the grey level from 0 to 255 at which white begins.
    """

    key: str | None = None
    threshold: str = "otsu"


@Parameter(name="*", group=Group("Reporting", sort_key=3))
@dataclass(frozen=True)
class Reporting:
    """How the result is told.

    Parameters
    ----------
    json
        Print the summary as JSON.
    quiet
        Print neither progress nor summary.
    force
        Replace an existing output file.
    """

    json: Flag = False
    quiet: Flag = False
    force: Flag = False


AS_FILE, AS_USUAL = Reading(), Reporting()


@app.command
def store(
    patterns: File,
    /,
    *,
    out: Annotated[str, Parameter(alias="-o")],
    order: WholeNumber = 3,
    kind: KindName = "krotov",
    update: Literal["parallel", "asynchronous"] = "parallel",
    max_sweeps: int = 100,
    temperature: float = 0.0,
    tie: Literal["keep", "+1", "random"] = "keep",
    beta: float = 1.0,
    decorrelate: Literal["none", "drop", "project"] = "none",
    projected_bits: int | None = None,
    packed: Flag = False,
    bits: WholeNumber | None = None,
    seed: int = 0,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Store bit patterns in a memory file.

    Reads .npy, .npz, .csv, .tsv, .txt (rows of 0 and 1, or of -1 and 1; text may be gzipped), .safetensors, a folder of
    PNG images of one size, or - for rows of text on standard input.

    Example: ``assay memory store patterns.npy --order 3 -o codes.dam``

    Parameters
    ----------
    patterns
        The patterns, one a row or an image.
    out
        The memory file, which ends in .dam; written whole or not at all.
    order
        The order n, at least 2: N bits hold of the order of N^(n-1) patterns. assay memory plan finds it.
    kind
        krotov (the model of the theory), abbott (distinct units), exact (never raises the energy, asynchronously),
        rectified, exp, or softmax (continuous states).
    update
        All units at once, or one after the other in random order.
    max_sweeps
        Where recall stops at the latest.
    temperature
        Noise of the units; 0 is none. A whole pattern gives a field of 1.
    tie
        What a unit does whose field is zero.
    beta
        The steepness of exp and softmax.
    decorrelate
        drop leaves constant bits out; project stores signs of random combinations of the bits instead.
    projected_bits
        Bits of --decorrelate project; as many as the patterns have by default.
    packed
        Rows are packed octets, as numpy.packbits writes them.
    bits
        With --packed, how many bits of a row count.
    seed
        Of everything random.
    """
    from assay.core.files import check_output
    from assay.memory.memory import SUFFIX, DenseAssociativeMemory

    if not out.endswith(SUFFIX):
        raise InputError(
            f"unknown ending '{os.path.splitext(out)[1]}'", file=out, expected=f"a name that ends in {SUFFIX}"
        )
    check_output(out, force=reporting.force)
    held = _read(patterns, reading)
    memory = DenseAssociativeMemory(
        order,
        kind,
        update=update,
        max_sweeps=max_sweeps,
        temperature=temperature,
        tie=tie,
        beta=beta,
        decorrelate=decorrelate,
        n_projected=projected_bits,
        packed=packed,
        n_bits=bits,
        random_state=seed,
    )
    with _warnings_in_one_line(reporting), _nothing_written_when_stopped():
        with _naming(held.source):
            memory.fit(held.values)
        if held.image_shape is not None:
            memory.image_shape_ = held.image_shape
        memory.save(out, force=reporting.force)
    summary = {
        "patterns": memory.n_patterns_,
        "bits": memory.n_features_in_,
        "stored_bits": memory._patterns.bits,
        "order": order,
        "kind": kind,
        "load": memory.load_,
        "capacity": _replica_capacity(order, kind),
        "duplicates": memory.n_duplicates_,
        "bytes": memory.nbytes_,
        "output": out,
    }
    fits = ""
    if summary["capacity"] is not None:
        fits = f"load alpha' = {memory.load_:.4g} of at most {summary['capacity']:.4g}"
    lines = [
        f"stored       {memory.n_patterns_:,} patterns of {memory._patterns.bits:,} bits, order {order}, kind {kind}",
        *([f"capacity     {fits}"] if fits else []),
        f"memory       {memory.nbytes_:,} bytes, "
        f"{8 * memory.nbytes_ / (memory.n_patterns_ * memory._patterns.bits):.3g} bits a stored bit",
        f"wrote        {out}",
    ]
    _report(summary, lines, reporting=reporting)


@app.command
def recall(
    memory_file: Annotated[File, Parameter(name="MEMORY")],
    cues: File,
    /,
    *,
    out: OutFile = None,
    table: str | None = None,
    picture: str | None = None,
    plot: str | None = None,
    erased: str | None = None,
    jobs: int = 1,
    seed: int | None = None,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Restore corrupted or partly erased cues.

    In rows of text ? is an erased bit; in -1/+1 arrays it is 0; --erased names a file that marks them.

    Example: ``assay memory recall codes.dam cues.npy -o restored.npy``

    Parameters
    ----------
    memory_file
        What assay memory store wrote.
    cues
        The cues: a file or folder as for assay memory store, or - for rows of text on standard input.
    out
        Where the states go: .npy, .npz, .csv, .txt, .safetensors, or - for rows of text on standard output.
    table
        A .csv with a line a cue: nearest pattern, distance in bits, sweeps, whether it converged, cycle.
    picture
        For images: cues, what was recalled and the nearest stored pattern, as .png, .svg or .pdf.
    plot
        The overlap after each sweep beside theory, as .png, .svg or .pdf.
    erased
        An array of the cues' shape, 1 where a bit is erased.
    jobs
        Threads; the result doesn't depend on it.
    seed
        Of everything random; what the memory was stored with by default.
    """
    import numpy as np

    from assay.memory.memory import DenseAssociativeMemory
    from assay.memory.pattern_files import check_states_output, write_states
    from assay.memory.plots import check_figure_output

    if out == STREAM and reporting.json:
        raise InputError("--out - and --json both write to standard output", expected="a file for one of them")
    if out is not None:
        check_states_output(out, force=reporting.force)
    for figure in filter(None, (picture, plot)):
        check_figure_output(figure, force=reporting.force)
    if table is not None:
        _check_table(table, force=reporting.force)
    memory = DenseAssociativeMemory.load(memory_file)
    memory.set_params(n_jobs=jobs, **({} if seed is None else {"random_state": seed}))
    held = _read(cues, reading)
    values = held.values if erased is None else _with_gaps(memory, held, _read(erased, Reading(threshold="128")))
    if picture is not None and memory_shape(memory) is None:
        raise InputError(
            "the memory holds no images",
            file=memory_file,
            expected="patterns from a folder of PNG images, or a 3-d .npy",
        )
    continuous = memory.kind == "softmax"
    with (
        _warnings_in_one_line(reporting),
        _nothing_written_when_stopped(),
        _naming(held.source),
        _progress("recalling", reporting) as advance,
    ):
        result = memory.recall(values, history=plot is not None and not continuous, progress=advance)
    count = len(result.states)
    summary = {
        "cues": count,
        "converged": int(result.converged.sum()),
        "cycles": int((result.cycle == 2).sum()),
        "exact": int((result.distance == 0).sum()),
        "mean_distance": float(result.distance.mean()),
        "median_sweeps": float(np.median(result.sweeps)),
        "max_sweeps": int(result.sweeps.max()),
        "output": out,
    }
    if out is not None:
        write_states(out, result.states, force=reporting.force)
    if table is not None:
        _write_table(table, result, force=reporting.force)
    if picture is not None:
        _draw_images(picture, memory, values, result, force=reporting.force)
    if plot is not None:
        _draw_recall(plot, memory, result, force=reporting.force)
    wrote = [f"wrote        {name}" for name in (out, table, picture, plot) if name and name != STREAM]
    lines = [
        f"recalled     {count:,} cues: {summary['exact']:,} are stored patterns, the mean distance is "
        f"{summary['mean_distance']:.3g} bits",
        f"sweeps       median {summary['median_sweeps']:g}, at most {summary['max_sweeps']}; "
        f"{summary['converged']:,} rest, "
        f"{summary['cycles']:,} alternate between two states",
        *wrote,
    ]
    if out is None and table is None and picture is None and plot is None:
        lines.append("The states are not kept: add -o restored.npy to keep them.")
    _report(summary, lines, reporting=reporting, to_stderr=out == STREAM)


@app.command
def predict(
    *,
    order: WholeNumber = 3,
    corruption: float,
    bits: WholeNumber | None = None,
    patterns: WholeNumber | None = None,
    load: float | None = None,
    kind: TheoryKind = "krotov",
    sweeps: int = 40,
    paths: int = 100_000,
    temperature: float = 0.0,
    plot: str | None = None,
    seed: int = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Predict recall: the overlap after each sweep, the remaining errors, the sweeps it takes.

    The dynamics are exact for many bits. Finite memories end somewhat below near the edge of the basin.

    Example: ``assay memory predict --order 3 --bits 1024 --patterns 70000 --corruption 0.15``

    Parameters
    ----------
    order
        The order n, at least 2.
    corruption
        The share of a cue's bits that are flipped, from 0 to 1.
    bits
        Bits of a pattern, N.
    patterns
        How many patterns, M.
    load
        Instead of --bits and --patterns: the normalised load, (2n-3)!! M / N^(n-1) for krotov.
    kind
        krotov or abbott.
    sweeps
        How far the dynamics are followed.
    paths
        Sampled paths; the overlap is known to about 1/sqrt(paths).
    temperature
        Noise of the units; 0 is none.
    plot
        A picture of the curve, .png, .svg or .pdf.
    seed
        Of the paths.
    """
    from assay.memory import theory
    from assay.memory.plots import check_figure_output, plot_recall, save_figure

    if plot is not None:
        check_figure_output(plot, force=reporting.force)
    if not 0 <= corruption <= 1:
        raise InputError(f"corruption is {corruption:g}", expected="a share of the bits, from 0 to 1")
    alpha = _load(load, bits, patterns, order, kind)
    with _nothing_written_when_stopped(), _progress("sampling the dynamics", reporting) as advance:
        curve = theory.retrieval(
            order,
            alpha,
            1 - 2 * corruption,
            steps=sweeps,
            kind=kind,
            paths=paths,
            temperature=temperature,
            seed=seed,
            progress=advance,
        )
    without = theory.mean_field(order, alpha, 1 - 2 * corruption, steps=sweeps)
    summary = {
        "order": order,
        "kind": kind,
        "load": alpha,
        "capacity": theory.capacity(order, "rs", kind=kind).load,
        "overlap": curve.m,
        "without_self_interaction": without,
        "bit_error": curve.bit_error,
        "wrong_bits": None if bits is None else curve.bit_error * bits,
        "sweeps": curve.converged_at,
        "recalled": bool(curve.m[-1] > 0.5),
    }
    if plot is not None:
        save_figure(
            plot_recall({"theory": curve.m}, mean_field={"theory": without}, title=f"order {order}, α' = {alpha:.3g}"),
            plot,
            force=reporting.force,
        )
    wrong = "" if bits is None else f", {summary['wrong_bits']:.3g} of {bits:,} bits"
    lines = [
        f"load         alpha' = {alpha:.4g}; replica-symmetric capacity {summary['capacity']:.4g}",
        f"overlap      {' '.join(f'{m:.3f}' for m in curve.m[:9])}{' …' if sweeps > 8 else ''} "
        f"{curve.m[-1]:.4f} after {sweeps} sweeps",
        f"recall       {'succeeds' if summary['recalled'] else 'fails'}: {100 * curve.bit_error:.3g} % wrong at "
        f"the end{wrong}, "
        f"settled after {curve.converged_at} sweeps",
        *([f"wrote        {plot}"] if plot else []),
    ]
    _report(summary, lines, reporting=reporting)


@app.command
def plan(
    *,
    bits: WholeNumber,
    patterns: WholeNumber,
    corruption: float,
    error: float = 0.01,
    kind: TheoryKind = "krotov",
    horizon: int = 40,
    paths: int = 20_000,
    seed: int = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Find the lowest order that holds your patterns.

    For orders 2 to 6: load, margin to the capacities, errors that stay, how many flipped bits are survivable, sweeps,
    bytes.

    Example: ``assay memory plan --bits 1024 --patterns 70000 --corruption 0.15 --error 0.01``

    Parameters
    ----------
    bits
        Bits of a pattern, N.
    patterns
        How many patterns, M.
    corruption
        The share of a cue's bits that are flipped, below 0.5.
    error
        The share of bits that may be wrong at the end.
    kind
        krotov or abbott.
    horizon
        Sweeps after which errors and basins are read.
    paths
        Sampled paths of the theory.
    seed
        Of the paths.
    """
    from assay.memory.planner import plan as make_plan

    with _nothing_written_when_stopped(), _progress("orders", reporting) as advance:
        found = make_plan(
            bits,
            patterns,
            corruption=corruption,
            target_error=error,
            kind=kind,
            horizon=horizon,
            paths=paths,
            seed=seed,
            progress=advance,
        )
    summary = {**found.__dict__, "forecasts": [dict(one.__dict__) for one in found.forecasts]}
    _report(summary, str(found).splitlines(), reporting=reporting)


@app.command
def capacity(
    *,
    order: WholeNumber = 3,
    bits: WholeNumber | None = None,
    kind: TheoryKind = "krotov",
    horizon: int = 100,
    overlap: float = 0.8,
    paths: int = 20_000,
    seed: int = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Say how many patterns fit, by three definitions.

    Equilibrium by replica theory (rs, 1rsb), and dynamic: what still has an overlap after so many sweeps from the
    pattern itself, which is more because decay is slow.

    Example: ``assay memory capacity --order 3 --bits 1024``

    Parameters
    ----------
    order
        The order n, at least 2.
    bits
        Also say it as a number of patterns of so many bits.
    kind
        krotov or abbott.
    horizon
        Sweeps of the dynamic capacity.
    overlap
        The overlap that it asks for.
    paths
        Sampled paths of the theory.
    seed
        Of the paths.
    """
    from assay.memory import theory

    methods: list[Literal["rs", "1rsb", "dynamic"]] = ["rs", "1rsb", "dynamic"] if order >= 3 else ["rs", "dynamic"]
    found: dict[str, theory.Capacity] = {}
    with _nothing_written_when_stopped(), _progress("solutions", reporting) as advance:
        for method in methods:
            found[method] = theory.capacity(
                order, method, kind=kind, horizon=horizon, overlap=overlap, paths=paths, seed=seed, progress=advance
            )
    summary: dict[str, Any] = {
        "order": order,
        "kind": kind,
        **{
            name: {**one.__dict__, "patterns": None if bits is None else one.patterns(bits, order, kind)}
            for name, one in found.items()
        },
    }
    lines = []
    for name, one in found.items():
        count = "" if bits is None else f", {one.patterns(bits, order, kind):,} patterns of {bits:,} bits"
        when = f" after {horizon} sweeps" if one.horizon else ""
        lines.append(f"{name:<12} alpha' = {one.load:.4f}{count}; overlap {one.overlap:.4f}{when}")
    _report(summary, lines, reporting=reporting)


@app.command
def basin(
    *,
    order: WholeNumber = 3,
    bits: WholeNumber | None = None,
    patterns: WholeNumber | None = None,
    load: float | None = None,
    kind: TheoryKind = "krotov",
    horizon: int = 40,
    paths: int = 20_000,
    plot: str | None = None,
    seed: int = 0,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Say how much corruption is survivable, against the load.

    Basins that are read after finitely many sweeps are wider than those of endless recall.

    Example: ``assay memory basin --order 3 --bits 1024 --patterns 35000``

    Parameters
    ----------
    order
        The order n, at least 2.
    bits
        Bits of a pattern, N.
    patterns
        How many patterns, M.
    load
        Instead of --bits and --patterns: the normalised load.
    kind
        krotov or abbott.
    horizon
        Sweeps after which the overlap is read.
    paths
        Sampled paths of the theory.
    plot
        A diagram of the basins up to the capacity, .png, .svg or .pdf.
    seed
        Of the paths.
    """
    import numpy as np

    from assay.memory import theory
    from assay.memory.plots import check_figure_output, plot_basins, save_figure

    if plot is not None:
        check_figure_output(plot, force=reporting.force)
    alpha = _load(load, bits, patterns, order, kind)
    options: dict[str, Any] = {"horizon": horizon, "kind": kind, "paths": paths, "seed": seed}
    with _nothing_written_when_stopped(), _progress("solutions", reporting) as advance:
        edge = theory.basin(order, alpha, **options, progress=advance)
        without = theory.basin(order, alpha, **options, self_interaction=False)
        if plot is not None:
            loads = np.linspace(0.1, 1.0, BASIN_LOADS) * theory.capacity(order, "rs", kind=kind).load
            edges = [theory.basin(order, float(one), **options) for one in loads]
            lone = [theory.basin(order, float(one), **options, self_interaction=False) for one in loads]
            save_figure(
                plot_basins(list(loads), edges, mean_field=lone, title=f"order {order}, after {horizon} sweeps"),
                plot,
                force=reporting.force,
            )
    flips = None if bits is None or math.isnan(edge) else int(bits * (1 - edge) / 2)
    summary = {
        "order": order,
        "kind": kind,
        "load": alpha,
        "horizon": horizon,
        "overlap": edge,
        "corruption": (1 - edge) / 2,
        "flips": flips,
        "without_self_interaction": without,
    }
    if math.isnan(edge):
        lines = [f"basin        none: at alpha' = {alpha:.4g} not even the pattern itself stays for {horizon} sweeps"]
    else:
        of = "" if flips is None else f", {flips:,} of {bits:,} bits"
        lines = [
            f"basin        cues with an overlap of at least {edge:.3f} are recalled at alpha' = {alpha:.4g}, "
            f"within {horizon} sweeps",
            f"corruption   up to {100 * (1 - edge) / 2:.3g} % flipped bits{of}",
        ]
    _report(summary, [*lines, *([f"wrote        {plot}"] if plot else [])], reporting=reporting)


@app.command
def audit(
    memory_file: Annotated[File, Parameter(name="MEMORY")],
    cues: File | None = None,
    /,
    *,
    corruption: float = 0.1,
    decorrelate: Literal["none", "drop", "project"] = "none",
    projected_bits: int | None = None,
    sample: int = 128,
    plot: str | None = None,
    seed: int = 0,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Check whether the theory applies to stored patterns, and by how much not.

    Measures bias, overlaps between patterns and the crosstalk's variance, and lets cues run beside their prediction.

    Example: ``assay memory audit codes.dam``

    Parameters
    ----------
    memory_file
        What assay memory store wrote.
    cues
        Cues; some stored patterns with flipped bits by default.
    corruption
        The share of their bits that are flipped.
    decorrelate
        Measure what would become of the patterns with constant bits dropped, or projected.
    projected_bits
        Bits of --decorrelate project.
    sample
        Patterns that are looked at.
    plot
        The overlap after each sweep beside theory, .png, .svg or .pdf.
    seed
        Of the choice.
    """
    from assay.memory.memory import DenseAssociativeMemory
    from assay.memory.planner import audit as examine
    from assay.memory.plots import check_figure_output, plot_recall, save_figure

    if plot is not None:
        check_figure_output(plot, force=reporting.force)
    memory = DenseAssociativeMemory.load(memory_file)
    held = None if cues is None else _read(cues, reading)
    with _warnings_in_one_line(reporting), _nothing_written_when_stopped(), _naming(cues or memory_file):
        report = examine(
            memory,
            None if held is None else held.values,
            corruption=corruption,
            decorrelate=decorrelate,
            n_projected=projected_bits,
            sample=sample,
            seed=seed,
        )
    if plot is not None:
        figure = plot_recall(
            {"theory": report.predicted}, {"theory": report.measured}, title="measured (points) and predicted"
        )
        save_figure(figure, plot, force=reporting.force)
    wrote = [f"wrote        {plot}"] if plot else []
    _report(dict(report.__dict__), [*str(report).splitlines(), *wrote], reporting=reporting)


def memory_shape(memory: DenseAssociativeMemory) -> tuple[int, int] | None:
    """Height and width where the memory holds images."""
    shape: tuple[int, int] | None = getattr(memory, "image_shape_", None)
    return shape if shape is not None and memory.decorrelate != "project" else None


def _read(path: str, reading: Reading) -> Bits:
    from assay.memory.pattern_files import read_bits

    return read_bits(path, key=reading.key, threshold=reading.threshold)


def _load(load: float | None, bits: int | None, patterns: int | None, order: int, kind: str) -> float:
    from assay.memory import theory

    if load is not None:
        if patterns is not None:
            raise InputError("both --load and --patterns are given", expected="one of them")
        return load
    if bits is None or patterns is None:
        raise InputError(
            "neither a load nor a number of patterns is given", expected="--bits and --patterns, or --load"
        )
    for name, value in (("bits", bits), ("patterns", patterns)):
        if value < 1:
            raise InputError(f"{name} is {value}", expected="at least 1")
    return theory.load_of(patterns, bits, order, kind=kind)


def _replica_capacity(order: int, kind: str) -> float | None:
    from assay.memory import theory

    return theory.capacity(order).load if kind in ("krotov", "abbott", "exact") else None


def _with_gaps(memory: DenseAssociativeMemory, cues: Bits, marks: Bits) -> Any:
    """Cues as ±1 with 0 where a bit is marked as erased."""
    import numpy as np

    from assay.memory.patterns import signs_of_cues

    with _naming(cues.source):
        signs = signs_of_cues(cues.values, coding=memory.coding_, bits=memory.n_features_in_)
    erased = np.asarray(marks.values)
    if erased.shape != signs.shape:
        raise InputError(
            f"has shape {erased.shape}", file=marks.source, expected=f"the shape of the cues, {signs.shape}"
        )
    return np.where(erased > 0, np.int8(0), signs)


def _check_table(path: str, *, force: bool) -> None:
    from assay.core.files import check_output

    if not path.lower().endswith(".csv"):
        raise InputError(
            f"unknown ending '{os.path.splitext(path)[1]}'", file=path, expected="a name that ends in .csv"
        )
    check_output(path, force=force)


def _write_table(path: str, result: Any, *, force: bool) -> None:
    from assay.core.files import write_text

    rows = zip(result.nearest, result.distance, result.sweeps, result.converged, result.cycle, strict=True)
    lines = [
        f"{cue},{one},{far},{count},{str(bool(rest)).lower()},{cycle}"
        for cue, (one, far, count, rest, cycle) in enumerate(rows)
    ]
    write_text(path, "\n".join(["cue,nearest,distance,sweeps,converged,cycle", *lines]) + "\n", force=force)


def _draw_images(path: str, memory: DenseAssociativeMemory, cues: Any, result: Any, *, force: bool) -> None:
    import numpy as np

    from assay.memory.plots import plot_images, save_figure

    shape = memory_shape(memory)
    assert shape is not None
    shown = slice(0, PICTURED)
    stored = np.concatenate([memory.patterns(int(one), int(one) + 1) for one in result.nearest[shown]])
    rows = {"cue": np.asarray(cues)[shown], "recalled": result.states[shown], "nearest stored": stored}
    save_figure(plot_images(rows, shape, title=f"order {memory.order}, {memory.kind}"), path, force=force)


def _draw_recall(path: str, memory: DenseAssociativeMemory, result: Any, *, force: bool) -> None:
    from assay.memory import theory
    from assay.memory.plots import plot_recall, save_figure

    if result.history is None:
        raise InputError(f"--plot for kind '{memory.kind}'", expected="a kind with discrete states")
    simulations, curves = {"recall": result.history}, {"recall": result.history.mean(axis=0)}
    if memory.kind in ("krotov", "abbott", "exact"):
        kind = "abbott" if memory.kind == "abbott" else "krotov"
        m0 = float(result.history[:, 0].mean())
        steps = max(result.history.shape[1] - 1, 1)
        curves = {"recall": theory.retrieval(memory.order, memory.load_, m0, steps=steps, kind=kind, paths=20_000).m}
    save_figure(
        plot_recall(curves, simulations, title=f"order {memory.order}, α' = {memory.load_:.3g}"), path, force=force
    )


@contextmanager
def _progress(what: str, reporting: Reporting) -> Iterator[Callable[[int, int], None] | None]:
    """A bar with the time that is left, where a person watches."""
    if reporting.quiet or reporting.json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _naming(source: str) -> Iterator[None]:
    """Say of which file an error is that the library raised on what the file holds."""
    try:
        yield
    except InputError as error:
        if error.file is not None:
            raise
        raise InputError(
            error.message, file=source, row=error.row, column=error.column, expected=error.expected
        ) from error


@contextmanager
def _warnings_in_one_line(reporting: Reporting) -> Iterator[None]:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if not reporting.quiet:
            print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("once", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def _nothing_written_when_stopped() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; nothing was written, and files that were there are as before") from None


def _report(summary: Mapping[str, Any], lines: list[str], *, reporting: Reporting, to_stderr: bool = False) -> None:
    if reporting.quiet and not reporting.json:
        return
    stream = sys.stderr if to_stderr else sys.stdout
    if reporting.json:
        print(json.dumps(_plain(summary), ensure_ascii=False, allow_nan=False), file=stream)
    else:
        print("\n".join(lines), file=stream)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
