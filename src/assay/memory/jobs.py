"""The commands: ``assay memory store``, ``recall``, ``predict``, ``plan``, ``capacity``, ``basin`` and ``audit``."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import InputError
from assay.core.jobs import (
    STREAM,
    Flag,
    Reporting,
    WholeNumber,
    naming_options,
    print_summary,
    require_streams,
    shows_progress,
    stop_that_says,
    warnings_in_one_line,
)

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

File: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]


KindName: TypeAlias = Literal["krotov", "abbott", "exact", "rectified", "exp", "softmax"]
TheoryKind: TypeAlias = Literal["krotov", "abbott"]
STOPPED = "stopped; nothing was written, and files that were there are as before"
PICTURED = 10
BASIN_LOADS = 8

STORED_OPTIONS = {
    "order": "--order",
    "kind": "--kind",
    "update": "--update",
    "max_sweeps": "--max-sweeps",
    "temperature": "--temperature",
    "tie": "--tie",
    "beta": "--beta",
    "decorrelate": "--decorrelate",
    "n_projected": "--projected-bits",
    "random_state": "--seed",
    "threshold": "--threshold",
}
RECALL_OPTIONS = {"n_jobs": "--jobs", "random_state": "--seed", "threshold": "--threshold"}
THEORY_OPTIONS = {
    name: f"--{name}"
    for name in ("order", "kind", "bits", "patterns", "load", "corruption", "paths", "seed", "horizon", "overlap")
} | {"temperature": "--temperature", "target_error": "--error"}
PREDICT_OPTIONS = THEORY_OPTIONS | {"steps": "--sweeps"}
HORIZON_OPTIONS = THEORY_OPTIONS | {"steps": "--horizon"}
AUDIT_OPTIONS = {
    "corruption": "--corruption",
    "decorrelate": "--decorrelate",
    "n_projected": "--projected-bits",
    "sample": "--sample",
    "seed": "--seed",
    "threshold": "--threshold",
}


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


AS_FILE, AS_USUAL = Reading(), Reporting()


@app.command
@naming_options(STORED_OPTIONS)
def store(
    patterns: File,
    /,
    *,
    out: Annotated[str, Parameter(alias="-o", allow_leading_hyphen=True)],
    order: WholeNumber = 3,
    kind: KindName = "krotov",
    update: Literal["parallel", "asynchronous"] = "parallel",
    max_sweeps: WholeNumber = 100,
    temperature: float = 0.0,
    tie: Literal["keep", "+1", "random"] = "keep",
    beta: float = 1.0,
    decorrelate: Literal["none", "drop", "project"] = "none",
    projected_bits: WholeNumber | None = None,
    packed: Flag = False,
    bits: WholeNumber | None = None,
    seed: WholeNumber = 0,
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
    from assay.memory.interactions import counted, require_order
    from assay.memory.memory import SUFFIX, DenseAssociativeMemory, DuplicateWarning
    from assay.memory.pattern_files import require_patterns

    require_order(order)
    check_output(out, force=reporting.force)
    if not out.endswith(SUFFIX):
        raise InputError(
            f"unknown ending '{os.path.splitext(out)[1]}'", file=out, expected=f"a name that ends in {SUFFIX}"
        )
    if bits is not None and not packed:
        raise InputError("--bits is given without --packed", expected="both: rows of other files say their bits")
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
    memory.check_parameters()
    with stop_that_says(STOPPED):
        held = _read(patterns, reading)
        require_patterns(held, packed=packed, bits=bits)
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
        warnings.simplefilter("ignore", DuplicateWarning)
        memory.fit(held.values)
        if memory.n_duplicates_:
            copy, original = (held.place(one) for one in memory.first_copy_)
            warnings.warn(
                f"{memory.n_duplicates_:,} of {counted(memory.n_patterns_, 'pattern')} are copies of earlier ones: "
                f"{copy} equals {original}",
                stacklevel=1,
            )
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
        f"stored       {counted(memory.n_patterns_, 'pattern')} of {counted(memory._patterns.bits, 'bit')}, "
        f"order {order}, kind {kind}",
        *([f"capacity     {fits}"] if fits else []),
        f"memory       {memory.nbytes_:,} bytes, "
        f"{8 * memory.nbytes_ / (memory.n_patterns_ * memory._patterns.bits):.3g} bits a stored bit",
        f"wrote        {out}",
    ]
    print_summary(summary, lines, reporting=reporting)


@app.command
@naming_options(RECALL_OPTIONS)
def recall(
    memory_file: Annotated[File, Parameter(name="MEMORY")],
    cues: File,
    /,
    *,
    out: OutFile = None,
    table: File | None = None,
    picture: File | None = None,
    plot: File | None = None,
    erased: File | None = None,
    jobs: WholeNumber = 1,
    seed: WholeNumber | None = None,
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
        A .csv with a line a cue: nearest pattern (cues and patterns counted from 0), distance in bits, sweeps, whether
        it converged, cycle.
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

    from assay.memory.interactions import counted
    from assay.memory.memory import DenseAssociativeMemory
    from assay.memory.pattern_files import check_states_output, require_cues, write_states
    from assay.memory.plots import check_figure_output

    require_streams(out, reporting)
    _require_one_stream(cues, erased)
    outputs = {"--out": out, "--table": table, "--picture": picture, "--plot": plot}
    _require_different(outputs, inputs=(memory_file, cues, erased))
    if out is not None:
        check_states_output(out, force=reporting.force)
    for figure in filter(None, (picture, plot)):
        check_figure_output(figure, force=reporting.force)
    if table is not None:
        _check_table(table, force=reporting.force)
    memory = DenseAssociativeMemory.load(memory_file)
    memory.set_params(n_jobs=jobs, **({} if seed is None else {"random_state": seed}))
    memory.check_parameters()
    continuous = memory.kind == "softmax"
    if continuous and plot is not None:
        raise InputError(
            "--plot draws overlaps, and the memory's states are continuous",
            file=memory_file,
            expected="a memory of another kind than softmax",
        )
    if picture is not None and memory_shape(memory) is None:
        raise InputError(
            "the memory holds no images",
            file=memory_file,
            expected="patterns from a folder of PNG images, or a 3-d .npy",
        )
    with stop_that_says(STOPPED):
        held = require_cues(
            _read(cues, reading),
            bits=memory.n_features_in_,
            coding=memory.coding_,
            continuous=continuous,
            packed=memory.packed,
        )
        values = held.values if erased is None else _with_gaps(memory, held, _read(erased, Reading(threshold="128")))
    with (
        warnings_in_one_line(reporting),
        stop_that_says(STOPPED),
        _progress("recalling", reporting) as advance,
    ):
        result = memory.recall(values, history=plot is not None, progress=advance)
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
        f"recalled     {counted(count, 'cue')}: {summary['exact']:,} ended in a stored pattern; mean distance to the "
        f"nearest, in bits: {summary['mean_distance']:.3g}",
        f"sweeps       median {summary['median_sweeps']:g}, at most {summary['max_sweeps']}; "
        f"{summary['converged']:,} at rest, {summary['cycles']:,} alternating between two states",
        *wrote,
    ]
    if out is None and table is None and picture is None and plot is None:
        lines.append("The states are not kept: add -o restored.npy to keep them.")
    print_summary(summary, lines, reporting=reporting, out=STREAM if out == STREAM else None)


@app.command
@naming_options(PREDICT_OPTIONS)
def predict(
    *,
    order: WholeNumber = 3,
    corruption: float,
    bits: WholeNumber | None = None,
    patterns: WholeNumber | None = None,
    load: float | None = None,
    kind: TheoryKind = "krotov",
    sweeps: WholeNumber = 40,
    paths: WholeNumber = 100_000,
    temperature: float = 0.0,
    plot: File | None = None,
    seed: WholeNumber = 0,
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
    from assay.memory.interactions import counted
    from assay.memory.plots import check_figure_output, plot_recall, save_figure

    if plot is not None:
        check_figure_output(plot, force=reporting.force)
    if not 0 <= corruption <= 1:
        raise InputError(f"corruption is {corruption:g}", expected="a share of the bits, from 0 to 1")
    alpha = _load(load, bits, patterns, order, kind)
    with stop_that_says(STOPPED), _progress("sampling the dynamics", reporting) as advance:
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
    wrong = "" if bits is None else f", {summary['wrong_bits']:.3g} of {counted(bits, 'bit')}"
    lines = [
        f"load         alpha' = {alpha:.4g}; replica-symmetric capacity {summary['capacity']:.4g}",
        f"overlap      {' '.join(f'{m:.3f}' for m in curve.m[:9])}{' …' if sweeps > 8 else ''} "
        f"{curve.m[-1]:.4f} after {counted(sweeps, 'sweep')}",
        f"recall       {'succeeds' if summary['recalled'] else 'fails'}: {100 * curve.bit_error:.3g} % wrong at "
        f"the end{wrong}, "
        f"settled after {counted(curve.converged_at, 'sweep')}",
        *([f"wrote        {plot}"] if plot else []),
    ]
    print_summary(summary, lines, reporting=reporting)


@app.command
@naming_options(HORIZON_OPTIONS)
def plan(
    *,
    bits: WholeNumber,
    patterns: WholeNumber,
    corruption: float,
    error: float = 0.01,
    kind: TheoryKind = "krotov",
    horizon: WholeNumber = 40,
    paths: WholeNumber = 20_000,
    seed: WholeNumber = 0,
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

    with stop_that_says(STOPPED), _progress("orders", reporting) as advance:
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
    print_summary(summary, str(found).splitlines(), reporting=reporting)


@app.command
@naming_options(HORIZON_OPTIONS)
def capacity(
    *,
    order: WholeNumber = 3,
    bits: WholeNumber | None = None,
    kind: TheoryKind = "krotov",
    horizon: WholeNumber = 100,
    overlap: float = 0.8,
    paths: WholeNumber = 20_000,
    seed: WholeNumber = 0,
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
    from assay.memory.interactions import counted, require_order

    require_order(order)
    _require_at_least_one(bits=bits)
    methods: list[Literal["rs", "1rsb", "dynamic"]] = ["rs", "1rsb", "dynamic"] if order >= 3 else ["rs", "dynamic"]
    found: dict[str, theory.Capacity] = {}
    with stop_that_says(STOPPED), _progress("solutions", reporting) as advance:
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
        count = ""
        if bits is not None:
            count = f", {counted(one.patterns(bits, order, kind), 'pattern')} of {counted(bits, 'bit')}"
        when = f" after {counted(horizon, 'sweep')}" if one.horizon else ""
        lines.append(f"{name:<12} alpha' = {one.load:.4f}{count}; overlap {one.overlap:.4f}{when}")
    print_summary(summary, lines, reporting=reporting)


@app.command
@naming_options(HORIZON_OPTIONS)
def basin(
    *,
    order: WholeNumber = 3,
    bits: WholeNumber | None = None,
    patterns: WholeNumber | None = None,
    load: float | None = None,
    kind: TheoryKind = "krotov",
    horizon: WholeNumber = 40,
    paths: WholeNumber = 20_000,
    plot: File | None = None,
    seed: WholeNumber = 0,
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
    from assay.memory.interactions import counted
    from assay.memory.plots import check_figure_output, plot_basins, save_figure

    if plot is not None:
        check_figure_output(plot, force=reporting.force)
    alpha = _load(load, bits, patterns, order, kind)
    options: dict[str, Any] = {"horizon": horizon, "kind": kind, "paths": paths, "seed": seed}
    with stop_that_says(STOPPED), _progress("solutions", reporting) as advance:
        edge = theory.basin(order, alpha, **options, progress=advance)
        without = theory.basin(order, alpha, **options, self_interaction=False)
        if plot is not None:
            loads = np.linspace(0.1, 1.0, BASIN_LOADS) * theory.capacity(order, "rs", kind=kind).load
            edges = [theory.basin(order, float(one), **options) for one in loads]
            lone = [theory.basin(order, float(one), **options, self_interaction=False) for one in loads]
            save_figure(
                plot_basins(
                    list(loads), edges, mean_field=lone, title=f"order {order}, after {counted(horizon, 'sweep')}"
                ),
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
        lines = [
            f"basin        none: at alpha' = {alpha:.4g} not even the pattern itself stays for "
            f"{counted(horizon, 'sweep')}"
        ]
    else:
        of = "" if flips is None or bits is None else f", {flips:,} of {counted(bits, 'bit')}"
        lines = [
            f"basin        cues with an overlap of at least {edge:.3f} are recalled at alpha' = {alpha:.4g}, "
            f"within {counted(horizon, 'sweep')}",
            f"corruption   up to {100 * (1 - edge) / 2:.3g} % flipped bits{of}",
        ]
    print_summary(summary, [*lines, *([f"wrote        {plot}"] if plot else [])], reporting=reporting)


@app.command
@naming_options(AUDIT_OPTIONS)
def audit(
    memory_file: Annotated[File, Parameter(name="MEMORY")],
    cues: File | None = None,
    /,
    *,
    corruption: float = 0.1,
    decorrelate: Literal["none", "drop", "project"] = "none",
    projected_bits: WholeNumber | None = None,
    sample: WholeNumber = 128,
    plot: File | None = None,
    seed: WholeNumber = 0,
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
    from assay.memory.pattern_files import require_cues
    from assay.memory.planner import AUDITED
    from assay.memory.planner import audit as examine
    from assay.memory.plots import check_figure_output, plot_recall, save_figure

    if plot is not None:
        _require_different({"--plot": plot}, inputs=(memory_file, cues))
        check_figure_output(plot, force=reporting.force)
    memory = DenseAssociativeMemory.load(memory_file)
    if memory.kind not in AUDITED:
        raise InputError(
            f"is a memory of kind {memory.kind}, for which there is no theory",
            file=memory_file,
            expected=f"one of kind {', '.join(AUDITED)}",
        )
    with stop_that_says(STOPPED):
        held = None
        if cues is not None:
            held = require_cues(
                _read(cues, reading), bits=memory.n_features_in_, coding=memory.coding_, packed=memory.packed
            )
    with warnings_in_one_line(reporting), stop_that_says(STOPPED):
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
    print_summary(dict(report.__dict__), [*str(report).splitlines(), *wrote], reporting=reporting)


def _require_at_least_one(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and value < 1:
            raise InputError(f"--{name} is {value}", expected="an integer of at least 1")


def _require_one_stream(cues: str, erased: str | None) -> None:
    if cues == erased == STREAM:
        raise InputError("the cues and --erased are both standard input", expected="a file for one of them")


def _require_different(outputs: Mapping[str, str | None], *, inputs: Sequence[str | None]) -> None:
    """Refuse to write over an input, which --force alone would do, and one name for two results."""
    taken: dict[str, str] = {}
    for option, name in outputs.items():
        if name is None:
            continue
        given = [one for one in inputs if one is not None and os.path.exists(one) and os.path.exists(name)]
        if any(os.path.samefile(name, one) for one in given):
            raise InputError("is also an input", file=name, expected=f"another name for {option}")
        first = taken.setdefault(os.path.realpath(name), option)
        if first != option:
            raise InputError(f"is the name for {first} too", file=name, expected=f"another name for {option}")


def memory_shape(memory: DenseAssociativeMemory) -> tuple[int, int] | None:
    """Height and width where the memory holds images."""
    shape: tuple[int, int] | None = getattr(memory, "image_shape_", None)
    return shape if shape is not None and memory.decorrelate != "project" else None


def _read(path: str, reading: Reading) -> Bits:
    from assay.memory.pattern_files import read_bits

    return read_bits(path, key=reading.key, threshold=reading.threshold)


def _load(load: float | None, bits: int | None, patterns: int | None, order: int, kind: str) -> float:
    from assay.memory import theory

    _require_at_least_one(bits=bits, patterns=patterns)
    if load is not None:
        if patterns is not None:
            raise InputError("both --load and --patterns are given", expected="one of them")
        return load
    if bits is None or patterns is None:
        raise InputError(
            "neither a load nor a number of patterns is given", expected="--bits and --patterns, or --load"
        )
    return theory.load_of(patterns, bits, order, kind=kind)


def _replica_capacity(order: int, kind: str) -> float | None:
    from assay.memory import theory

    return theory.capacity(order).load if kind in ("krotov", "abbott", "exact") else None


def _with_gaps(memory: DenseAssociativeMemory, cues: Bits, marks: Bits) -> Any:
    """Cues as ±1 with 0 where a bit is marked as erased."""
    import numpy as np

    from assay.memory.interactions import counted
    from assay.memory.patterns import signs_of_cues, unpack_octets

    values = cues.values
    if memory.packed and values.shape[1] != memory.n_features_in_:
        values = unpack_octets(values, bits=memory.n_features_in_, name="cues")
    signs = signs_of_cues(values, coding=memory.coding_, bits=memory.n_features_in_)
    erased = np.asarray(marks.values)
    if erased.shape != signs.shape:
        raise marks.fault(
            f"has {counted(len(erased), 'row')} of {counted(erased.shape[1], 'mark')}",
            expected=f"{counted(len(signs), 'row')} of {signs.shape[1]:,}, as the cues have",
        )
    wrong = np.argwhere(~np.isin(erased, (0, 1)))
    if len(wrong):
        row, column = wrong[0]
        raise marks.fault(f"is {erased[row, column]:g}", (row, column), expected="1 for an erased bit, else 0")
    return np.where(erased == 1, np.int8(0), signs)


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
    if not shows_progress(reporting):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
