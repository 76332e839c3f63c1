"""The commands on a user's files: ``assay mst tree``, ``complete``, ``cut``, ``check`` and ``plot``."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Group, Parameter

from assay.core.errors import AssayError, InputError
from assay.core.jobs import (
    STREAM,
    Flag,
    Reporting,
    WholeNumber,
    naming,
    naming_options,
    print_summary,
    require_other_file,
    require_streams,
    shows_progress,
    warnings_in_one_line,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from assay.mst.certificate import TreeReport
    from assay.mst.metrics import Metric
    from assay.mst.points import Points
    from assay.mst.trees import Tree

__all__ = ["app", "check", "complete", "cut", "plot", "tree"]

app = App(
    name="mst",
    help="Near-minimum spanning trees in any metric, with a certificate, in far fewer than n²/2 distances.",
    help_format="rst",
    version_flags=[],
)

STOPPED = "stopped; nothing was written"
PointFile: TypeAlias = Annotated[str, Parameter(allow_leading_hyphen=True)]
OutFile: TypeAlias = Annotated[str | None, Parameter(alias="-o", allow_leading_hyphen=True)]
MetricName: TypeAlias = Annotated[str | None, Parameter(alias="-m")]
Forest: TypeAlias = Literal["kcenter", "random", "knn", "threshold"]
Allocation: TypeAlias = Literal["dp", "greedy", "fixed", "hull"]
First: TypeAlias = Literal["lowest", "random", "center", "medoid"]
PLOT_FACTORS = (0, 1, 2, 4, 8, 16)
"""Budgets of ``plot budget``, in multiples of the number of components."""

OPTION_OF = {
    "n_forests": "--forests",
    "n_components": "--components",
    "n_clusters": "--clusters",
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "max_distance_calls": "--max-calls",
    "max_component": "--max-component",
    "target_alpha": "--target-alpha",
    "target_beta": "--target-beta",
    "check_metric": "--check-metric",
    "min_samples": "--min-samples",
    "min_cluster_size": "--min-cluster-size",
    "extra_edge": "--extra-edge",
    "block_bytes": "--block-bytes",
    "ci": "--interval",
    **{
        name: f"--{name}"
        for name in (
            *("address", "algorithm", "allocation", "backend", "binarize", "budget", "certify", "checkpoint"),
            *("components", "confidence", "first", "forest", "height", "metric", "p", "samples", "shown"),
            *("threshold", "unit"),
        )
    },
}
"""What the command calls an argument of the library."""


@Parameter(name="*", group=Group("Reading the points", sort_key=2))
@dataclass(frozen=True)
class Reading:
    """How the points are read.

    Parameters
    ----------
    key
        Which array of an .npz or .h5 file.
    column
        Which column of a table (.csv, .tsv, .parquet, .arrow) holds the strings, sets or vectors. A table of numbers
        alone needs none: its rows are vectors. Its cells may be separated by comma, semicolon or tab.
    sep
        What separates the items of a set; by default tab, semicolon or comma where a line holds one, else blanks.
    format
        csv, tsv, txt, fasta, npy, npz, parquet, arrow, hdf5 or idx, where the name doesn't tell.
    binarize
        Replace numbers by whether they are at least this large: codes for hamming, sets for jaccard.
    p
        The exponent of the minkowski metric, at least 1.
    unit
        What an edit of a string changes: codepoint or byte.
    """

    key: str | None = None
    column: str | None = None
    sep: str | None = None
    format: str | None = None
    binarize: float | None = None
    p: float | None = None
    unit: Literal["codepoint", "byte"] = "codepoint"


@Parameter(name="*", group=Group("Points that don't fit in memory", sort_key=4))
@dataclass(frozen=True)
class Spreading:
    """Where the work is done.

    Parameters
    ----------
    backend
        memory reads the file whole. threads, ray and dask read blocks of a folder of .parquet files, or of one
        .parquet, .arrow or .npy file, which every worker must see under this name; the tree is the same.
    address
        The Ray or Dask cluster; by default a local one.
    block_bytes
        Memory that each worker takes for points, such as 64MB.
    """

    backend: Literal["memory", "threads", "ray", "dask"] = "memory"
    address: str | None = None
    block_bytes: str = "64MB"


AS_FILE, AS_USUAL, IN_MEMORY = Reading(), Reporting(), Spreading()


@app.command
@naming_options(OPTION_OF)
def tree(
    points: PointFile,
    /,
    *,
    metric: MetricName = None,
    out: OutFile = None,
    forests: WholeNumber = 3,
    components: str = "sqrt",
    forest: Forest = "random",
    threshold: float | None = None,
    budget: str = "0",
    allocation: Allocation = "dp",
    first: First = "lowest",
    extra_edge: bool = True,
    target_alpha: float | None = None,
    target_beta: float | None = None,
    max_calls: WholeNumber | None = None,
    max_component: WholeNumber | None = None,
    algorithm: Literal["auto", "mfc", "exact"] = "auto",
    certify: WholeNumber = 200,
    confidence: float = 0.99,
    interval: Literal["normal", "bernstein"] = "normal",
    check_metric: WholeNumber = 1000,
    min_samples: WholeNumber | None = None,
    seed: WholeNumber = 0,
    jobs: WholeNumber = -1,
    checkpoint: str | None = None,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
    spreading: Spreading = IN_MEMORY,
) -> None:
    """Build a spanning tree that is close to the minimum, and say how close.

    Reads vectors (.npy, .npz, .csv, .tsv, .parquet, .arrow, .h5, -idx3-ubyte), strings or sets (.txt, one a line),
    sequences (.fasta) or a distance matrix (-m precomputed); text may be gzipped, and - is standard input. Where an
    exact method is cheaper it is used, and the summary says so.

    Example: ``assay mst tree points.csv -m euclidean -o tree.csv``

    Parameters
    ----------
    points
        The file with the objects. An empty line of a .txt file is an empty string, or an empty set.
    metric
        euclidean, cityblock, chebyshev, minkowski, haversine (latitude and longitude in radians, distance on the unit
        sphere), cosine (as a chord), hamming (entries that differ), jaccard, levenshtein, precomputed; or, without
        certified completions, sqeuclidean, osa, jaro_winkler, levenshtein_normalized. By default what fits the file.
    out
        Where the tree goes: .csv, .tsv or .parquet (u, v, weight; points counted from 0), .npz (which MetricMST.load
        reads), .graphml, .nwk (Newick dendrogram), or - for CSV on standard output. Without it only the summary is
        printed.
    forests
        How many independent forests are joined; more bring the tree closer to the minimum.
    components
        Components of a forest: sqrt (of the number of points), a number, or a share of the points such as 0.01.
    forest
        How the points are divided first.
    threshold
        The distance up to which --forest threshold joins points, in units of the metric; for no other forest.
    budget
        Extra representatives: a number, or a multiple of the number of components such as 2t.
    allocation
        How the budget is shared among the components.
    first
        Which point of a component is its first representative.
    extra_edge
        Also try the edge between the two nearest points found for each pair of components.
    target_alpha
        Raise the budget until the completion is certified to cost at most so many times the best one.
    target_beta
        The same for the tighter certificate.
    max_calls
        Distance calls that may be spent. Further forests, a larger budget and the certificate are left out when they
        don't fit; where the first tree doesn't, nothing is done.
    max_component
        Components with more points are divided again; by default 8 times the mean size.
    algorithm
        auto takes an exact method where it is cheaper; mfc never does; exact always does.
    certify
        Points sampled for the certificate against the minimum spanning tree; 0 leaves it out.
    confidence
        The certificate's confidence.
    interval
        How the certificate bounds a mean: normal approximation, or the rigorous empirical Bernstein bound.
    check_metric
        Triples of points on which the triangle inequality is tested; 0 leaves it out.
    min_samples
        Build the tree of mutual reachability distances, as HDBSCAN does: no distance is less than that of either point
        to its neighbour of this rank.
    seed
        The seed of everything random; the same seed gives the same tree for any number of jobs.
    jobs
        Threads; by default all cores (-1); -2 is all but one, and so on, at least one.
    checkpoint
        A folder that keeps finished stages, so that the same command goes on after a stop.
    """
    from assay.mst.estimator import MetricMST
    from assay.mst.trees import Tree, check_tree_output, write_tree

    require_streams(out, reporting)
    if out is not None:
        require_other_file(out, points)
        check_tree_output(out, force=reporting.force)
    in_memory = spreading.backend == "memory"
    if in_memory:
        objects = _read(points, metric, reading, reporting=reporting)
    else:
        _require_blocks(metric, reading)
    model = MetricMST(
        metric=objects.metric if in_memory else metric,
        metric_params=_metric_options(reading),
        min_samples=min_samples,
        n_components=_components(components),
        forest=forest,
        threshold=threshold,
        n_forests=forests,
        budget=_budget(budget),
        allocation=allocation,
        first=first,
        extra_edge=extra_edge,
        target_alpha=target_alpha,
        target_beta=target_beta,
        max_distance_calls=max_calls,
        max_component=max_component,
        algorithm=algorithm,
        certify=certify,
        confidence=confidence,
        ci=interval,
        check_metric=check_metric,
        random_state=seed,
        n_jobs=jobs,
        checkpoint=checkpoint,
        block_bytes=spreading.block_bytes,
        backend="threads" if in_memory else spreading.backend,
        address=spreading.address,
        progress=shows_progress(reporting),
    )
    with warnings_in_one_line(reporting), _stop_that_says(_way_on(checkpoint)):
        if not in_memory:
            model.fit(points)
        else:
            measured = _measured(objects, reading)
            # An approximate neighbour graph indexes the vectors themselves.
            model.fit(objects.data if forest == "knn" else measured)
    summary = {
        "points": len(model.labels_),
        "metric": measured.name if in_memory else metric,
        "min_samples": min_samples,
        "core_distances_exact": model.core_exact_,
        "weight": model.total_weight_,
        "exact": model.exact_,
        "alpha": model.alpha_,
        "beta": model.beta_,
        "certified": model.certified_,
        "gamma": model.gamma_,
        "mst_lower_bound": model.mst_lower_bound_,
        "mst_ratio_upper": model.mst_ratio_upper_,
        "confidence": None if model.certificate_ is None else model.certificate_.confidence,
        "sampled": None if model.certificate_ is None else model.certificate_.rows,
        "components": model.n_components_,
        "largest_component": model.largest_component_,
        "distance_calls": dict(model.n_distance_calls_),
        "seconds": dict(model.timings_),
        "output": out,
    }
    if out is not None:
        if out.lower().endswith(".npz"):
            model.save(out, force=reporting.force)
        else:
            names = objects.names if in_memory else None
            write_tree(out, Tree(model.edges_, model.weights_), force=reporting.force, names=names)
    print_summary(summary, _tree_lines(summary), reporting=reporting, out=out)
    if out is None and not reporting.quiet and not reporting.json:
        print("The tree is not kept: add -o tree.csv to keep it.", file=sys.stderr)


@app.command
@naming_options(OPTION_OF)
def complete(
    points: PointFile,
    /,
    *,
    forest: str,
    metric: MetricName = None,
    out: OutFile = None,
    budget: str = "0",
    allocation: Allocation = "dp",
    first: First = "lowest",
    extra_edge: bool = True,
    exact: Flag = False,
    target_alpha: float | None = None,
    target_beta: float | None = None,
    max_calls: WholeNumber | None = None,
    seed: WholeNumber = 0,
    jobs: WholeNumber = -1,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Complete a forest that you have, or a clustering, to a spanning tree.

    The edges of the forest are kept; of a clustering every cluster gets its own minimum spanning tree first. The
    summary says how far the completion can be from the best one.

    Example: ``assay mst complete points.csv --forest labels.csv -m euclidean -o tree.csv``

    Parameters
    ----------
    points
        The file with the objects, as for assay mst tree.
    forest
        Edges (.csv, .tsv, .parquet with u, v and perhaps weight; .npz; .graphml) or one label a point (.npy, .txt, or a
        table with the column label and perhaps point). Points with the label -1, noise, stay single.
    metric
        The metric, as for assay mst tree.
    out
        Where the tree goes, as for assay mst tree.
    budget
        Extra representatives: a number, or a multiple of the number of components such as 2t.
    allocation
        How the budget is shared among the components.
    first
        Which point of a component is its first representative.
    extra_edge
        Also try the edge between the two nearest points found for each pair of components.
    exact
        Find the best completion; can need all distances between components.
    target_alpha
        Raise the budget until the completion is certified to cost at most so many times the best one.
    target_beta
        The same for the tighter certificate.
    max_calls
        Distance calls that may be spent. The budget isn't raised beyond them; where the completion doesn't fit at all,
        nothing is done.
    seed
        The seed of everything random.
    jobs
        Threads; by default all cores (-1); -2 is all but one, and so on, at least one.
    """
    from assay.mst.completion import complete_forest
    from assay.mst.forest import build_forest
    from assay.mst.metrics import CountedMetric
    from assay.mst.trees import Tree, check_tree_output, write_tree

    require_streams(out, reporting)
    if out is not None:
        require_other_file(out, points, forest)
        check_tree_output(out, force=reporting.force)
    given = _read_forest(forest)
    objects = _read(points, metric, reading, reporting=reporting)
    with warnings_in_one_line(reporting), _stop_that_says(STOPPED):
        measured = _measured(objects, reading)
        counted = CountedMetric(measured)
        with naming(forest):
            kept = build_forest(counted, **given, n_components=1, random_state=seed, n_jobs=jobs)
        completion = complete_forest(
            counted,
            forest=kept,
            budget=_budget(budget),
            allocation=allocation,
            first=first,
            extra_edge=extra_edge,
            mode="exact_mfc" if exact else "mfc",
            target_alpha=target_alpha,
            target_beta=target_beta,
            max_distance_calls=max_calls,
            random_state=seed,
            n_jobs=jobs,
        )
    summary = {
        "points": len(objects),
        "metric": measured.name,
        "weight": completion.total_weight,
        "forest_weight": kept.weight,
        "completion_weight": float(completion.completion_weights.sum()),
        "exact_completion": completion.exact,
        "alpha": completion.alpha,
        "beta": completion.beta,
        "certified": completion.certified,
        "components": kept.n_components,
        "largest_component": kept.largest_component,
        "budget": completion.budget_used,
        "distance_calls": dict(counted.calls),
        "output": out,
    }
    if out is not None:
        write_tree(out, Tree(completion.edges, completion.weights), force=reporting.force, names=objects.names)
    print_summary(summary, _completion_lines(summary), reporting=reporting, out=out)


@app.command
@naming_options(OPTION_OF)
def cut(
    tree_file: Annotated[PointFile, Parameter(name="TREE")],
    /,
    *,
    clusters: Annotated[WholeNumber | None, Parameter(alias="-k")] = None,
    height: float | None = None,
    hdbscan: Flag = False,
    min_cluster_size: WholeNumber = 5,
    out: OutFile = None,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Cut a tree into clusters.

    Either into a number of clusters, or at a distance, as single linkage does; or as HDBSCAN does, which leaves noise
    out. For HDBSCAN's own distances build the tree with assay mst tree --min-samples.

    Example: ``assay mst cut tree.csv -k 3 -o labels.csv``

    Parameters
    ----------
    tree_file
        The tree: .csv, .tsv or .parquet (u, v, weight), .npz, .graphml, or - for CSV on standard input.
    clusters
        How many clusters; the heaviest edges are cut.
    height
        Cut all edges that are longer than this, in units of the metric.
    hdbscan
        Take the clusters that persist longest as the distance shrinks.
    min_cluster_size
        Points that a cluster of --hdbscan has at least.
    out
        Where the labels go: .csv, .tsv, .parquet (point, label), .npy, .txt, or - for CSV on standard output. Without
        it only the sizes of the clusters are printed. The label -1 is noise.
    """
    import numpy as np

    from assay.mst import dendrogram
    from assay.mst.trees import check_labels_output, read_tree, require_spanning, write_labels

    chosen = [
        name
        for name, value in (("-k", clusters), ("--height", height), ("--hdbscan", hdbscan or None))
        if value is not None
    ]
    if len(chosen) != 1:
        raise InputError(f"{' and '.join(chosen) or 'no way to cut'} given", expected="one of -k, --height, --hdbscan")
    require_streams(out, reporting)
    if out is not None:
        require_other_file(out, tree_file)
        check_labels_output(out, force=reporting.force)
    whole = read_tree(tree_file)
    require_spanning(whole, tree_file)
    probabilities = None
    with naming(_name(tree_file)):
        if hdbscan:
            labels, probabilities = dendrogram.hdbscan(whole.edges, whole.weights, min_cluster_size=min_cluster_size)
        else:
            labels = dendrogram.cut(whole.edges, whole.weights, n_clusters=clusters, height=height)
    if out is not None:
        write_labels(out, labels, force=reporting.force, probabilities=probabilities)
    sizes = np.sort(np.bincount(labels[labels >= 0]))[::-1] if (labels >= 0).any() else np.empty(0, dtype=np.int64)
    summary = {
        "points": whole.n_points,
        "clusters": len(sizes),
        "noise": int((labels < 0).sum()),
        "sizes": sizes.tolist(),
        "output": out,
    }
    print_summary(summary, _cluster_lines(summary), reporting=reporting, out=out)


@app.command
@naming_options(OPTION_OF)
def check(
    points: PointFile,
    tree_file: Annotated[PointFile, Parameter(name="TREE")],
    /,
    *,
    metric: MetricName = None,
    samples: WholeNumber = 200,
    confidence: float = 0.99,
    interval: Literal["normal", "bernstein"] = "normal",
    seed: WholeNumber = 0,
    jobs: WholeNumber = -1,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Check a tree: does it span the points, are its weights right, how far from the minimum can it be.

    Exit status 1 when it doesn't span the points or a weight is wrong. A tree that spans and can be improved passes,
    and the report says how far from the minimum spanning tree it can be.

    Example: ``assay mst check points.csv tree.csv -m euclidean``

    Parameters
    ----------
    points
        The file with the objects, as for assay mst tree.
    tree_file
        The tree, as for assay mst cut.
    metric
        The metric, as for assay mst tree.
    samples
        Points sampled for the certificate and the cycle test; 0 leaves them out.
    confidence
        The certificate's confidence.
    interval
        How the certificate bounds a mean: normal approximation, or the rigorous empirical Bernstein bound.
    seed
        The seed of the sample.
    jobs
        Threads; by default all cores (-1); -2 is all but one, and so on, at least one.
    """
    from assay.mst.certificate import check_tree
    from assay.mst.trees import read_tree

    require_streams(None, reporting)
    if _name(points) == _name(tree_file):
        raise InputError(f"points and tree are both {_name(points)}", expected="two files")
    given = read_tree(tree_file)
    objects = _read(points, metric, reading, reporting=reporting)
    with warnings_in_one_line(reporting), _stop_that_says("stopped"), naming(_name(tree_file)):
        measured = _measured(objects, reading)
        report = check_tree(
            measured,
            given.edges,
            given.weights,
            samples=samples,
            confidence=confidence,
            ci=interval,
            random_state=seed,
            n_jobs=jobs,
        )
    found = report.certificate
    summary = {
        "points": report.n,
        "metric": measured.name,
        "edges": len(given.edges),
        "weight": report.total_weight,
        "ok": report.ok,
        "spanning": report.spanning,
        "components": report.n_components,
        "weights_right": report.weights_right,
        "wrong_weights": len(report.wrong_weights),
        "worst_error": report.worst_error,
        "sampled": None if found is None else found.rows,
        "confidence": None if found is None else found.confidence,
        "mst_lower_bound": None if found is None else found.mst_lower_bound,
        "mst_ratio_upper": None if found is None else _ratio(report.total_weight, found.mst_lower_bound),
        "improvable_points": None if found is None else found.improvable,
        "improvable_share_upper": None if found is None else found.improvable_upper,
        "improved_weight": None if found is None else float(found.weights.sum()),
    }
    print_summary(summary, _check_lines(summary), reporting=reporting, out=None)
    if not report.ok:
        raise AssayError(f"{_name(tree_file)}: {_fault(report, given, measured)}")


@app.command
@naming_options(OPTION_OF)
def plot(
    kind: Literal["tree", "dendrogram", "components", "budget"],
    source: Annotated[PointFile, Parameter(name="IN")],
    /,
    *,
    out: Annotated[str, Parameter(alias="-o")],
    points: str | None = None,
    metric: MetricName = None,
    shown: WholeNumber = 60,
    seed: WholeNumber = 0,
    jobs: WholeNumber = -1,
    reading: Reading = AS_FILE,
    reporting: Reporting = AS_USUAL,
) -> None:
    """Draw a tree, its dendrogram, the components of forests, or the certificates against the distance calls.

    Example: ``assay mst plot dendrogram tree.csv -o dendrogram.png``

    Parameters
    ----------
    kind
        tree: the tree in the plane. dendrogram: its single-linkage dendrogram. components: how large the components of
        k-center and random forests are. budget: alpha, beta and the cost ratio for six budgets, against calls.
    source
        A tree file for tree and dendrogram; a point file for components and budget.
    out
        Where the picture goes: .png, .svg or .pdf.
    points
        The point file that a tree belongs to. Vectors are drawn where they are (in more than two dimensions on their
        first two principal components); without it the tree is laid out by its edge lengths alone.
    metric
        The metric, as for assay mst tree.
    shown
        Leaves of a dendrogram that are drawn; what is below is folded.
    seed
        The seed of random forests.
    jobs
        Threads; by default all cores (-1); -2 is all but one, and so on, at least one.
    """
    from assay.mst.plots import check_figure_output, save_figure

    require_other_file(out, source, *([] if points is None else [points]))
    check_figure_output(out, force=reporting.force)
    with warnings_in_one_line(reporting), _stop_that_says(STOPPED):
        if kind == "tree":
            figure = _tree_figure(source, points, reading=reading, reporting=reporting)
        elif kind == "dendrogram":
            figure = _dendrogram_figure(source, points, shown=shown, reading=reading, reporting=reporting)
        else:
            objects = _read(source, metric, reading, reporting=reporting)
            draw = _components_figure if kind == "components" else _budget_figure
            figure = draw(objects, _measured(objects, reading), seed=seed, jobs=jobs)
    save_figure(figure, out, force=reporting.force)
    print_summary({"kind": kind, "input": _name(source), "output": out}, [], reporting=reporting, out=out)


def _tree_figure(source: str, points: str | None, *, reading: Reading, reporting: Reporting) -> Figure:
    from assay.mst.plots import plot_tree, principal_plane, tree_layout
    from assay.mst.trees import read_tree, require_spanning

    given = read_tree(source)
    require_spanning(given, source)
    title = f"{_name(source)}: {given.n_points:,} points, weight {given.weights.sum():.6g}"
    objects = None if points is None else _read(points, None, reading, reporting=reporting)
    if objects is None or objects.kind != "vectors":
        return plot_tree(tree_layout(given.edges, given.weights), given.edges, weights=given.weights, title=title)
    _require_same_size(given, objects, tree_file=_name(source))
    positions, labels = principal_plane(objects.data)
    return plot_tree(positions, given.edges, weights=given.weights, title=title, axis_labels=labels)


def _dendrogram_figure(
    source: str, points: str | None, *, shown: int, reading: Reading, reporting: Reporting
) -> Figure:
    from assay.mst.dendrogram import linkage
    from assay.mst.plots import plot_dendrogram
    from assay.mst.trees import read_tree, require_spanning

    if shown < 2:
        raise InputError(f"shown is {shown}", expected="at least 2 leaves")
    given = read_tree(source)
    require_spanning(given, source)
    names = None
    if points is not None:
        objects = _read(points, None, reading, reporting=reporting)
        _require_same_size(given, objects, tree_file=_name(source))
        names = objects.names
    with naming(_name(source)):
        return plot_dendrogram(linkage(given.edges, given.weights), names=names, shown=shown, title=_name(source))


def _components_figure(objects: Points, metric: Metric, *, seed: int, jobs: int) -> Figure:
    from assay.mst.forest import build_forest
    from assay.mst.plots import plot_component_sizes

    sizes = {
        kind: build_forest(metric, forest=kind, random_state=seed, n_jobs=jobs).sizes for kind in ("kcenter", "random")
    }
    return plot_component_sizes(sizes, title=f"{objects.source}: {len(objects):,} points, {objects.metric}")


def _budget_figure(objects: Points, metric: Metric, *, seed: int, jobs: int) -> Figure:
    from assay.mst.completion import complete_forest
    from assay.mst.forest import build_forest
    from assay.mst.metrics import CountedMetric
    from assay.mst.plots import plot_budgets

    forest = build_forest(metric, random_state=seed, n_jobs=jobs)
    best = complete_forest(metric, forest=forest, mode="exact_mfc", random_state=seed, n_jobs=jobs).total_weight
    rows = []
    for factor in PLOT_FACTORS:
        counted = CountedMetric(metric)
        result = complete_forest(counted, forest=forest, budget=f"{factor}t", random_state=seed, n_jobs=jobs)
        ratio = result.total_weight / best if best > 0 else 1.0
        rows.append({"calls": counted.total, "alpha": result.alpha, "beta": result.beta, "ratio": ratio})
    return plot_budgets(rows, title=f"{objects.source}: completion of {forest.n_components} components")


def _name(path: str) -> str:
    return "standard input" if path == STREAM else path


def _read(points: str, metric: str | None, reading: Reading, *, reporting: Reporting) -> Points:
    from assay.mst.points import read_points

    with warnings_in_one_line(reporting):
        return read_points(
            points,
            metric,
            key=reading.key,
            column=reading.column,
            sep=reading.sep,
            form=reading.format,
            binarize=reading.binarize,
        )


def _require_blocks(metric: str | None, reading: Reading) -> None:
    """Blocks are read without a look at the whole, so the metric is named, and no option of reading applies."""
    if metric is None:
        raise InputError("no metric is given for points that are read in blocks", expected="-m METRIC")
    for name in ("key", "column", "sep", "format", "binarize"):
        if getattr(reading, name) is not None:
            raise InputError(
                f"--{name} with points that are read in blocks", expected="--backend memory, or no such option"
            )


def _measured(objects: Points, reading: Reading) -> Metric:
    """The metric on the objects, which checks them; what is wrong is said of the file."""
    from assay.mst.metrics import make_metric

    with naming(objects.source):
        return make_metric(objects.data, objects.metric, **_metric_options(reading))


def _metric_options(reading: Reading) -> dict[str, Any]:
    options: dict[str, Any] = {} if reading.p is None else {"p": reading.p}
    return options if reading.unit == "codepoint" else {**options, "unit": reading.unit}


def _read_forest(path: str) -> dict[str, Any]:
    """The argument of `build_forest` that a file of edges or of labels is."""
    import numpy as np

    from assay.core.files import read_lines
    from assay.mst.trees import read_labels, read_tree

    name = path.lower()
    holds_edges = name.endswith((".npz", ".graphml", ".csv.gz", ".tsv.gz", ".nwk"))
    if name.endswith((".csv", ".tsv")) and os.path.isfile(path):
        header = next(iter(read_lines(path)), "").lower().replace('"', "").replace("\t", ",").split(",")
        holds_edges = {"u", "v"} <= {cell.strip() for cell in header} or (len(header) > 1 and "label" not in header)
    if name.endswith(".parquet") and os.path.isfile(path):
        import pyarrow.parquet as pq

        with naming(path):
            holds_edges = {"u", "v"} <= set(pq.read_schema(path).names)
    if not holds_edges:
        return {"labels": read_labels(path)}
    forest = read_tree(path, weights_needed=False)
    weighted = len(forest.weights) and not np.isnan(forest.weights).any()
    return {"edges": forest.edges, "weights": forest.weights if weighted else None}


def _require_same_size(given: Tree, objects: Points, *, tree_file: str) -> None:
    if given.n_points != len(objects):
        raise InputError(
            f"the tree has {given.n_points} points, {objects.source} has {len(objects)}",
            file=tree_file,
            expected=f"{len(objects) - 1} edges",
        )


def _components(text: str) -> int | float | str:
    """The number of components, or the share of the points, that `text` means."""
    if text == "sqrt":
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(f"components is '{text}'", expected="sqrt, a number, or a share between 0 and 1") from None


def _budget(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


@contextmanager
def _stop_that_says(line: str) -> Iterator[None]:
    from assay.mst._tiles import interruptible

    try:
        with interruptible():
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(line) from None


def _way_on(checkpoint: str | None) -> str:
    if checkpoint is None:
        return "stopped; nothing was written. With --checkpoint FOLDER a stopped command can be gone on with"
    return f"stopped; finished stages are in {checkpoint}: the same command goes on from there"


def _tree_lines(summary: Mapping[str, Any]) -> list[str]:
    n = summary["points"]
    lines = [f"tree         {n - 1:,} edges over {n:,} points, {summary['metric']} weight {summary['weight']:.10g}"]
    if summary["min_samples"] is not None:
        bound = "exact" if summary["core_distances_exact"] else "upper bounds"
        lines.append(f"reachability core distances to neighbour {summary['min_samples']} ({bound})")
    if summary["exact"]:
        lines.append("quality      exact: this is a minimum spanning tree")
    else:
        lines.append(_forest_line(summary))
        lines += _completion_bounds(summary, "first forest")
        lines += _certificate_lines(summary)
    seconds = summary["seconds"]
    lines += _call_lines(summary)
    lines.append(f"time         {_seconds(seconds.get('total', sum(seconds.values())))}")
    return lines


def _completion_lines(summary: Mapping[str, Any]) -> list[str]:
    n = summary["points"]
    lines = [
        f"tree         {n - 1:,} edges over {n:,} points, {summary['metric']} weight {summary['weight']:.10g}",
        f"parts        forest {summary['forest_weight']:.10g} + completion {summary['completion_weight']:.10g}",
        _forest_line(summary),
    ]
    if summary["exact_completion"]:
        lines.append("quality      no completion of this forest is lighter")
    else:
        lines += _completion_bounds(summary, "forest")
    return lines + _call_lines(summary)


def _forest_line(summary: Mapping[str, Any]) -> str:
    return f"forest       {summary['components']:,} components, the largest of {summary['largest_component']:,} points"


def _completion_bounds(summary: Mapping[str, Any], which: str) -> list[str]:
    """The certificates in words: they compare with the forest's best completion, not with the minimum tree."""
    if summary["alpha"] is None:
        return []
    if not summary["certified"]:
        return [f"completion   alpha {summary['alpha']:.4f}, not certified: {summary['metric']} is no metric"]
    return [
        f"completion   at most {summary['beta']:.4f} times the best completion of the {which} "
        f"(beta; alpha is {summary['alpha']:.4f})"
    ]


def _certificate_lines(summary: Mapping[str, Any]) -> list[str]:
    """The bound against the minimum spanning tree; without a sample there is none, and few rows may bound nothing."""
    ratio = summary["mst_ratio_upper"]
    if ratio is None or summary["sampled"] is None:
        return []
    if not math.isfinite(ratio):
        return [f"certificate  none: {summary['sampled']:,} sampled points bound nothing"]
    certainty = f"{100 * summary['confidence']:g} % confidence, {summary['sampled']:,} points sampled"
    if summary["confidence"] == 1:
        certainty = "certain: every point was compared with all"
    return [f"certificate  at most {ratio:.4f} times the minimum spanning tree ({certainty})"]


def _call_lines(summary: Mapping[str, Any]) -> list[str]:
    calls = summary["distance_calls"]
    total = sum(count for stage, count in calls.items() if stage != "total")
    n = summary["points"]
    pairs = n * (n - 1) // 2
    share = f", {100 * total / pairs:.3g} % of all {pairs:,} pairs" if pairs else ""
    stages = ", ".join(f"{stage} {count:,}" for stage, count in calls.items() if stage != "total" and count)
    return [f"distances    {total:,}{share}", *([f"             {stages}"] if stages else [])]


def _check_lines(summary: Mapping[str, Any]) -> list[str]:
    n = summary["points"]
    size = f"{summary['edges']:,} edges over {n:,} points"
    lines = [f"tree         {size}, {summary['metric']} weight {summary['weight']:.10g}"]
    spans = "yes" if summary["spanning"] else f"no, {summary['components']:,} components"
    lines.append(f"spanning     {spans}")
    right = "yes" if summary["weights_right"] else f"no, {summary['wrong_weights']:,} wrong"
    lines.append(f"weights      {right}; the largest relative error is {summary['worst_error'] or 0:.2g}")
    if summary["sampled"] is None:
        return lines
    lines += _certificate_lines(summary)
    if summary["improvable_points"]:
        lines.append(
            f"cycle test   {summary['improvable_points']:,} of {summary['sampled']:,} sampled points have an edge that "
            f"improves the tree; with these edges it weighs {summary['improved_weight']:.10g}"
        )
    else:
        lines.append(
            f"cycle test   no sampled point has an edge that improves the tree; at most "
            f"{100 * summary['improvable_share_upper']:.2g} % of all points have one (95 % confidence)"
        )
    return lines


def _fault(report: TreeReport, given: Tree, metric: Metric) -> str:
    """What keeps a tree from passing, with the edge where it is one edge's fault."""
    if report.cycle is not None:
        u, v = given.edges[report.cycle]
        return f"edge {report.cycle} ({u}, {v}) closes a cycle; expected a spanning tree of {report.n:,} points"
    if not report.spanning:
        return (
            f"{len(given.edges):,} edges leave {report.n_components:,} components; "
            f"expected a spanning tree of {report.n:,} points"
        )
    worst = report.wrong_weights[:1]
    u, v = given.edges[worst[0]]
    distance = metric.pairs(given.edges[worst, 0], given.edges[worst, 1])[0]
    if not math.isfinite(distance):
        return f"edge {worst[0]} ({u}, {v}): these points have the {metric.name} distance {distance}; expected a number"
    return (
        f"edge {worst[0]} ({u}, {v}) has weight {given.weights[worst[0]]:.12g}; expected the distance {distance:.12g}"
    )


def _ratio(weight: float, bound: float) -> float:
    return weight / bound if bound > 0 else 1.0 if weight == 0 else math.inf


def _cluster_lines(summary: Mapping[str, Any]) -> list[str]:
    largest = ", ".join(f"{size:,}" for size in summary["sizes"][:10]) + (", …" if len(summary["sizes"]) > 10 else "")
    lines = [f"clusters     {summary['clusters']:,} of {summary['points']:,} points; sizes {largest}"]
    if summary["noise"]:
        lines.append(f"noise        {summary['noise']:,} points")
    return lines


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 100 else f"{value / 60:.1f} min"
