"""Tree files: edge lists, archives, GraphML and Newick dendrograms; and files with a label a point."""

from __future__ import annotations

import csv
import os
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from xml.parsers.expat import ExpatError
from xml.parsers.expat import ParserCreate as ExpatParser
from xml.sax.saxutils import escape

import numpy as np

from assay.core.errors import InputError
from assay.core.files import atomic_path, check_output, existing_file, read_lines, read_matrix
from assay.mst.points import damage, standing_in

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = [
    "Tree",
    "check_labels_output",
    "check_tree_output",
    "read_labels",
    "read_tree",
    "require_spanning",
    "write_labels",
    "write_tree",
]

STREAM = "-"
COLUMNS = ("u", "v", "weight")
EDGE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".npz", ".graphml")
WRITTEN_SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".graphml", ".nwk")
LABEL_SUFFIXES = (".npy", ".csv", ".tsv", ".txt", ".parquet")
GRAPHML = "http://graphml.graphdrawing.org/xmlns"


@dataclass(frozen=True, slots=True)
class Tree:
    """Edges with weights.

    Attributes
    ----------
    edges : ndarray of int64, shape (m, 2)
        The points that each edge joins, counted from 0. A spanning tree of n points has m = n - 1.
    weights : ndarray of float64, shape (m,)
        The lengths, in the units of the metric.
    """

    edges: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def n_points(self) -> int:
        """The number of points that a spanning tree of so many edges has."""
        return len(self.edges) + 1


def check_tree_output(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Refuse a name that no tree can be written to, before any work is done."""
    if os.fspath(path) != STREAM:
        _require_suffix(path, WRITTEN_SUFFIXES)
        check_output(path, force=force)


def check_labels_output(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Refuse a name that no labels can be written to, before any work is done."""
    if os.fspath(path) != STREAM:
        _require_suffix(path, LABEL_SUFFIXES)
        check_output(path, force=force)


def write_tree(
    path: str | os.PathLike[str],
    tree: Tree,
    *,
    force: bool = False,
    names: Sequence[str] | None = None,
) -> None:
    """Write a tree in the format that the ending asks for.

    Parameters
    ----------
    path : path or "-"
        ``.csv``, ``.tsv`` or ``.parquet`` with the columns u, v, weight; ``.npz`` with the arrays edges and weights;
        ``.graphml``; ``.nwk``, the single-linkage dendrogram in Newick's notation, where the distance of two leaves
        is the height at which they merge. ``"-"`` writes CSV to standard output.
    tree : Tree
        Must span its points for ``.nwk``.
    force : bool
        Replace an existing file.
    names : sequence of n str, optional
        Labels of the points in GraphML and Newick. Without them points are called by their index.

    Raises
    ------
    InputError
        The name has another ending, exists, or can't be written.

    Examples
    --------
    >>> import numpy as np
    >>> write_tree("-", Tree(np.array([[0, 1], [1, 2]]), np.array([0.5, 2.0])))
    u,v,weight
    0,1,0.5
    1,2,2.0
    """
    if os.fspath(path) == STREAM:
        _write_rows(sys.stdout, tree, ",")
        return
    suffix = _require_suffix(path, WRITTEN_SUFFIXES)
    with atomic_path(path, force=force) as temporary:
        _WRITERS[suffix](temporary, tree, names)


def read_tree(path: str | os.PathLike[str], *, weights_needed: bool = True) -> Tree:
    """Read the edges of a tree or forest.

    Parameters
    ----------
    path : path or "-"
        CSV on standard input; ``.csv``, ``.tsv`` (perhaps gzipped) or ``.parquet`` with the columns u, v, weight (a
        text table without a header is read in this order); ``.npz`` with the arrays edges and weights; ``.graphml``.
    weights_needed : bool
        Whether edges without weights are refused. When they aren't, missing weights are NaN.

    Returns
    -------
    Tree
        The edges in the order of the file.

    Raises
    ------
    InputError
        The file can't be read, or an edge isn't two indices and a weight; the message names the row.
    """
    if os.fspath(path) == STREAM:
        with standing_in(path, ".csv") as file:
            return read_tree(file, weights_needed=weights_needed)
    if Path(path).suffix.lower() in (".nwk", ".newick"):
        raise InputError(
            "holds a dendrogram, which doesn't say which points an edge joins", file=path, expected="the tree as .csv"
        )
    file = existing_file(path, suffixes=EDGE_SUFFIXES)
    name = file.name.lower()
    if name.endswith(".npz"):
        tree = _read_archive(file)
    elif name.endswith(".parquet"):
        tree = _from_columns(_read_parquet(file), file)
    elif name.endswith(".graphml"):
        tree = _read_graphml(file)
    else:
        tree = _read_rows(file, "\t" if ".tsv" in name[-7:] else ",")
    if weights_needed and len(tree.weights) and np.isnan(tree.weights).any():
        raise InputError("the edges have no weights", file=path, expected="the columns u, v, weight")
    return tree


def require_spanning(tree: Tree, path: str | os.PathLike[str]) -> None:
    """Refuse edges that are no spanning tree of as many points as a tree with so many edges has.

    Raises
    ------
    InputError
        An edge ends at a point beyond the last one, or closes a cycle; the message names the edge.
    """
    from assay.mst._graph import first_cycle

    name = "standard input" if os.fspath(path) == STREAM else path
    expected = f"a spanning tree: {len(tree.edges)} edges join the points 0 to {tree.n_points - 1}"
    beyond = np.flatnonzero((tree.edges >= tree.n_points).any(axis=1))
    at = int(beyond[0]) if len(beyond) else first_cycle(tree.n_points, tree.edges)
    if at >= 0:
        u, v = tree.edges[at]
        fault = "ends at a point beyond the last" if len(beyond) else "closes a cycle"
        raise InputError(f"edge {at} ({u}, {v}) {fault}", file=name, expected=expected)


def read_labels(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read one label a point from ``.npy``, ``.csv``, ``.tsv``, ``.txt`` or ``.parquet``.

    A table needs a column named ``label`` or a single column. With a column named ``point`` (the points counted from
    0, in any order, each once) a row is about that point; without it, rows are points in their order. Labels may be
    numbers or words.

    Returns
    -------
    ndarray of shape (n,)
        Integer labels; words are numbered in the order of the points.

    Raises
    ------
    InputError
        A label is missing, or the column ``point`` names a point twice, none, or one that can't be; the message names
        the row.
    """
    file = existing_file(path, suffixes=LABEL_SUFFIXES)
    suffix = file.suffix.lower()
    if suffix == ".npy":
        words = _label_array(file)
    else:
        points, words, first_row = _labels_of_parquet(file) if suffix == ".parquet" else _labels_of_text(file, suffix)
        if not words:
            raise InputError("holds no label", file=file, expected="one label a point")
        missing = next((at for at, word in enumerate(words) if not word), -1)
        if missing >= 0:
            raise InputError("the label is missing", file=file, row=missing + first_row, expected="a label")
        if points is not None:
            words = [words[at] for at in _rows_of_points(points, file, first_row=first_row)]
    if all(_is_integer(word) for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)


def _label_array(file: Path) -> list[Any]:
    try:
        array = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"damaged: {damage(error)}", file=file, expected="a .npy array") from error
    if array.ndim != 1 or array.dtype.kind not in "biufUS":
        raise InputError(f"holds {array.dtype} of shape {array.shape}", file=file, expected="one label a point")
    if not len(array):
        raise InputError("holds no label", file=file, expected="one label a point")
    if array.dtype.kind == "f":
        wrong = np.flatnonzero(~(np.isfinite(array) & (array == np.floor(array))))
        if len(wrong):
            raise InputError(
                f"label {wrong[0]} (counted from 0) is {array[wrong[0]]}", file=file, expected="whole numbers or words"
            )
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    labels: list[Any] = array.tolist() if array.dtype.kind == "U" else array.astype(np.int64).tolist()
    return labels


def _rows_of_points(points: list[str], file: Path, *, first_row: int) -> list[int]:
    """Which row holds each point; every one of as many points as there are rows has to have one."""
    row_of: dict[int, int] = {}
    expected = f"each of the points 0 to {len(points) - 1} once"
    for at, cell in enumerate(points):
        if not _is_integer(cell) or int(cell) < 0:
            raise InputError(
                f"'{cell}' is no point", file=file, row=at + first_row, column="point", expected="points counted from 0"
            )
        if (point := int(cell)) in row_of:
            raise InputError(
                f"point {point} is also in row {row_of[point] + first_row}",
                file=file,
                row=at + first_row,
                column="point",
                expected=expected,
            )
        row_of[point] = at
    beyond = next((point for point in row_of if point >= len(points)), None)
    if beyond is not None:
        lacking = next(point for point in range(len(points)) if point not in row_of)
        raise InputError(
            f"point {beyond} in a table of {len(points)} rows, and none for point {lacking}",
            file=file,
            row=row_of[beyond] + first_row,
            column="point",
            expected=expected,
        )
    return [row_of[point] for point in range(len(points))]


def write_labels(
    path: str | os.PathLike[str],
    labels: NDArray[np.int64],
    *,
    force: bool = False,
    probabilities: NDArray[np.float64] | None = None,
) -> None:
    """Write a label a point: ``.csv``, ``.tsv``, ``.parquet`` (point, label), ``.npy``, ``.txt``, or CSV to ``"-"``.

    Parameters
    ----------
    path : path or "-"
    labels : ndarray of int64, shape (n,)
        Clusters from 0; -1 is noise, which :func:`assay.mst.build_forest` takes for single points.
    force : bool
        Replace an existing file.
    probabilities : ndarray of float64, shape (n,), optional
        Strength of membership, one more column of the tables.
    """
    columns: dict[str, NDArray[Any]] = {"point": np.arange(len(labels)), "label": labels}
    if probabilities is not None:
        columns["probability"] = probabilities
    if os.fspath(path) == STREAM:
        _write_columns(sys.stdout, columns, ",")
        return
    suffix = _require_suffix(path, LABEL_SUFFIXES)
    with atomic_path(path, force=force) as temporary:
        if suffix == ".npy":
            with temporary.open("wb") as stream:
                np.save(stream, labels)
        elif suffix == ".parquet":
            _write_parquet(temporary, columns)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                if suffix == ".txt":
                    text.writelines(f"{label}\n" for label in labels.tolist())
                else:
                    _write_columns(text, columns, "\t" if suffix == ".tsv" else ",")


def _require_suffix(path: str | os.PathLike[str], suffixes: Sequence[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in suffixes:
        raise InputError(f"unknown ending '{suffix}'", file=path, expected=f"one of {', '.join(suffixes)}")
    return suffix


def _write_rows(stream: TextIO, tree: Tree, delimiter: str) -> None:
    _write_columns(stream, _columns(tree), delimiter)


def _columns(tree: Tree) -> dict[str, NDArray[Any]]:
    return {"u": tree.edges[:, 0], "v": tree.edges[:, 1], "weight": tree.weights}


def _write_columns(stream: TextIO, columns: dict[str, NDArray[Any]], delimiter: str, *, block: int = 65_536) -> None:
    """Write a table of numbers; floats in the shortest notation that reads back to the same float."""
    stream.write(delimiter.join(columns) + "\n")
    arrays = list(columns.values())
    for start in range(0, len(arrays[0]), block):
        cells = [map(repr, array[start : start + block].tolist()) for array in arrays]
        stream.writelines(delimiter.join(row) + "\n" for row in zip(*cells, strict=True))


def _write_table(delimiter: str) -> Callable[[Path, Tree, Sequence[str] | None], None]:
    def write(file: Path, tree: Tree, names: Sequence[str] | None) -> None:
        with file.open("w", encoding="utf-8", newline="") as stream:
            _write_rows(stream, tree, delimiter)

    return write


def _write_parquet(file: Path, columns: dict[str, NDArray[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), file)


def _write_parquet_tree(file: Path, tree: Tree, names: Sequence[str] | None) -> None:
    _write_parquet(file, _columns(tree))


def _write_archive(file: Path, tree: Tree, names: Sequence[str] | None) -> None:
    with file.open("wb") as stream:
        np.savez(stream, edges=tree.edges, weights=tree.weights)


def _write_graphml(file: Path, tree: Tree, names: Sequence[str] | None) -> None:
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(f'<?xml version="1.0" encoding="utf-8"?>\n<graphml xmlns="{GRAPHML}">\n')
        if names is not None:
            stream.write('<key id="name" for="node" attr.name="name" attr.type="string"/>\n')
        stream.write('<key id="weight" for="edge" attr.name="weight" attr.type="double"/>\n')
        stream.write('<graph edgedefault="undirected">\n')
        for point in range(tree.n_points):
            if names is None:
                stream.write(f'<node id="{point}"/>\n')
            else:
                label = escape(_printable(names[point]))
                stream.write(f'<node id="{point}"><data key="name">{label}</data></node>\n')
        for (u, v), weight in zip(tree.edges.tolist(), tree.weights.tolist(), strict=True):
            stream.write(f'<edge source="{u}" target="{v}"><data key="weight">{weight!r}</data></edge>\n')
        stream.write("</graph>\n</graphml>\n")


def _printable(text: str) -> str:
    """Replace what XML 1.0 forbids: control characters and lone surrogates."""
    return "".join(
        mark
        if mark in "\t\n\r" or (mark >= " " and not "\ud800" <= mark <= "\udfff" and mark not in "\ufffe\uffff")
        else "\ufffd"
        for mark in text
    )


def _write_newick(file: Path, tree: Tree, names: Sequence[str] | None) -> None:
    from assay.mst.dendrogram import linkage

    merges = linkage(tree.edges, tree.weights)
    with file.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(_newick(merges, n_points=tree.n_points, names=names))
        stream.write("\n")


def _newick(merges: NDArray[np.float64], *, n_points: int, names: Sequence[str] | None) -> Iterator[str]:
    """Walk the dendrogram with a stack: a chain of a million merges is deeper than any recursion."""
    children = merges[:, :2].astype(np.int64).tolist()
    heights = merges[:, 2].tolist()

    def half_height(node: int) -> float:
        return 0.0 if node < n_points else heights[node - n_points] / 2

    pieces: list[int | str] = [n_points + len(children) - 1]
    while pieces:
        piece = pieces.pop()
        if isinstance(piece, str):
            yield piece
        elif piece < n_points:
            yield _newick_label(str(piece) if names is None else names[piece])
        else:
            left, right = children[piece - n_points]
            top = half_height(piece)
            yield "("
            pieces += [
                ")",
                f":{top - half_height(right)!r}",
                right,
                f":{top - half_height(left)!r},",
                left,
            ]
    yield ";"


def _newick_label(name: str) -> str:
    if name and all(mark.isalnum() or mark in ".-" for mark in name):
        return name
    return "'" + " ".join(name.replace("'", "''").splitlines()) + "'"


_WRITERS: dict[str, Callable[[Path, Tree, Sequence[str] | None], None]] = {
    ".csv": _write_table(","),
    ".tsv": _write_table("\t"),
    ".parquet": _write_parquet_tree,
    ".npz": _write_archive,
    ".graphml": _write_graphml,
    ".nwk": _write_newick,
}


def _read_archive(file: Path) -> Tree:
    try:
        with np.load(file, allow_pickle=False) as archive:
            if "edges" not in archive.files:
                raise InputError("holds no array 'edges'", file=file, expected="the arrays edges and weights")
            edges = archive["edges"]
            weights = archive["weights"] if "weights" in archive.files else np.full(len(edges), np.nan)
    except InputError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"damaged: {damage(error)}", file=file, expected="an .npz archive") from error
    return _checked(edges, weights, file)


def _read_parquet(file: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"damaged: {str(error).splitlines()[0]}", file=file, expected="a Parquet file") from error


def _from_columns(table: pa.Table, file: Path) -> Tree:
    import pyarrow as pa

    position = {name.lower(): name for name in table.column_names}
    if "u" not in position or "v" not in position:
        raise InputError(
            f"has the columns {', '.join(table.column_names)}", file=file, expected="the columns u, v, weight"
        )
    arrays = {}
    for wanted in COLUMNS:
        if wanted not in position:
            continue
        values = table[position[wanted]]
        if values.null_count:
            row = values.is_null().index(True).as_py() + 1
            raise InputError("the value is missing", file=file, row=row, column=wanted, expected="a number")
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            raise InputError(f"holds {values.type}", file=file, column=wanted, expected="numbers")
        arrays[wanted] = values.to_numpy()
    edges = np.column_stack([arrays["u"], arrays["v"]]).reshape(-1, 2)
    return _checked(edges, arrays.get("weight", np.full(len(edges), np.nan)), file)


def _read_rows(file: Path, delimiter: str) -> Tree:
    first = next(iter(read_lines(file)), "")
    header = [cell.strip().strip('"').lower() for cell in first.split(delimiter)]
    named = "u" in header and "v" in header
    if not named and (len(header) not in (2, 3) or not _is_integer(header[0])):
        raise InputError(f"starts with '{first[:40]}'", file=file, row=1, expected="the header u,v,weight")
    if named and len(read_lines(file)) == 1:
        return Tree(np.empty((0, 2), dtype=np.int64), np.empty(0))
    table = read_matrix(file)
    order = [header.index(name) for name in COLUMNS if name in header] if named else list(range(len(header)))
    weights = table[:, order[2]] if len(order) > 2 else np.full(len(table), np.nan)
    return _checked(table[:, order[:2]], weights, file)


def _read_graphml(file: Path) -> Tree:
    content = _GraphML()
    parser = ExpatParser(namespace_separator="}")
    parser.StartElementHandler, parser.EndElementHandler = content.start, content.end
    parser.CharacterDataHandler = content.text
    parser.buffer_text = True
    try:
        with file.open("rb") as stream:
            parser.ParseFile(stream)
    except (ExpatError, KeyError, ValueError) as error:
        raise InputError(f"damaged: {error}", file=file, expected="a GraphML file with edge weights") from error
    nodes = content.nodes
    if all(_is_integer(name) for name in nodes):
        nodes = {name: int(name) for name in nodes}
    unknown = next((name for name in content.ends if name not in nodes), None)
    if unknown is not None:
        raise InputError(f"an edge names the node '{unknown}'", file=file, expected="a node of the file")
    edges = np.array([nodes[name] for name in content.ends], dtype=np.int64).reshape(-1, 2)
    return _checked(edges, np.array(content.weights, dtype=np.float64), file)


class _GraphML:
    """What a parser that goes through a GraphML file has found: nodes by order, edges, and their weights."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.ends: list[str] = []
        self.weights: list[float] = []
        self._weight_keys = {"weight"}
        self._in_edge = False
        self._pieces: list[str] | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        tag = name.rpartition("}")[2]
        if tag == "node":
            self.nodes.setdefault(attributes["id"], len(self.nodes))
        elif tag == "edge":
            self.ends += [attributes["source"], attributes["target"]]
            self.weights.append(np.nan)
            self._in_edge = True
        elif tag == "data" and self._in_edge and attributes.get("key") in self._weight_keys:
            self._pieces = []
        elif tag == "key" and attributes.get("attr.name") == "weight":
            self._weight_keys.add(attributes["id"])

    def text(self, piece: str) -> None:
        if self._pieces is not None:
            self._pieces.append(piece)

    def end(self, name: str) -> None:
        if self._pieces is not None:
            self.weights[-1] = float("".join(self._pieces))
            self._pieces = None
        elif name.rpartition("}")[2] == "edge":
            self._in_edge = False


def _checked(edges: NDArray[Any], weights: NDArray[Any], file: Path, *, settings: dict[str, Any] | None = None) -> Tree:
    if edges.ndim != 2 or edges.shape[1] != 2 or weights.shape != (len(edges),):
        raise InputError(
            f"edges {edges.shape} and weights {weights.shape}", file=file, expected="shapes (m, 2) and (m,)"
        )
    whole = edges.astype(np.int64)
    wrong = np.flatnonzero((whole != edges).any(axis=1) | (whole < 0).any(axis=1))
    if len(wrong):
        u, v = edges[wrong[0]]
        raise InputError(
            f"edge {wrong[0]} (counted from 0) joins {u} and {v}", file=file, expected="indices counted from 0"
        )
    lengths = weights.astype(np.float64)
    if len(lengths) and not np.isnan(lengths).all():
        wrong = np.flatnonzero(~np.isfinite(lengths) | (lengths < 0))
        if len(wrong):
            raise InputError(
                f"edge {wrong[0]} (counted from 0) has the weight {lengths[wrong[0]]}",
                file=file,
                expected="a finite weight of at least 0",
            )
    return Tree(np.ascontiguousarray(whole), np.ascontiguousarray(lengths))


def _labels_of_parquet(file: Path) -> tuple[list[str] | None, list[str], int]:
    """The cells of the columns point (if there is one) and label, and the number of the first row."""
    table = _read_parquet(file)
    position = {name.lower(): name for name in reversed(table.column_names)}
    if "label" not in position and table.num_columns != 1:
        raise InputError(f"has the columns {', '.join(table.column_names)}", file=file, expected="a column named label")
    chosen = position.get("label", table.column_names[0])
    points = _cells(table, position["point"]) if "point" in position and position["point"] != chosen else None
    return points, _cells(table, chosen), 1


def _cells(table: pa.Table, column: str) -> list[str]:
    return ["" if value is None else str(value).strip() for value in table[column].to_pylist()]


def _labels_of_text(file: Path, suffix: str) -> tuple[list[str] | None, list[str], int]:
    """As `_labels_of_parquet`, from lines or from a table of text."""
    lines = read_lines(file)
    if suffix == ".txt":
        return None, [line.strip() for line in lines], 1
    delimiter = "\t" if suffix == ".tsv" else ","
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
    header = [cell.lower() for cell in rows[0]]
    first_row = 2
    if "label" in header:
        column = header.index("label")
    elif len(header) <= 1:
        column = 0
        if not header or _is_integer(header[0]) or len(rows) < 2 or not rows[1] or not _is_integer(rows[1][0]):
            first_row = 1
    else:
        raise InputError(f"has the columns {', '.join(rows[0])}", file=file, expected="a column named label")
    rows = rows[first_row - 1 :]
    for number, row in enumerate(rows, start=first_row):
        if len(row) != len(header) and row:
            raise InputError(f"has {len(row)} columns", file=file, row=number, expected=str(len(header)))
    at = header.index("point") if "point" in header and len(header) > 1 else None
    points = None if at is None else [row[at] if row else "" for row in rows]
    return points, [row[column] if row else "" for row in rows], first_row


def _is_integer(cell: str) -> bool:
    try:
        int(cell)
    except ValueError:
        return False
    return True
