"""Trees survive a round trip through every format, and faulty files are refused in one line."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import pdist, squareform

from assay.core.errors import InputError
from assay.mst.trees import Tree, check_tree_output, read_labels, read_tree, require_spanning, write_labels, write_tree

TREE = Tree(np.array([[0, 1], [3, 1], [2, 0]]), np.array([0.1 + 0.2, 0.0, 1e-300]))
NAMES = ["plain", "it's (a) <name>", "naïve & co", "bell\x07"]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.npz", "t.graphml", "ü t.CSV"])
def test_a_tree_reads_back_bit_for_bit(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path / name, TREE)
    back = read_tree(tmp_path / name)
    np.testing.assert_array_equal(back.edges, TREE.edges)
    np.testing.assert_array_equal(back.weights, TREE.weights)
    assert (back.edges.dtype, back.weights.dtype, back.n_points) == (np.int64, np.float64, 4)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.npz", "t.graphml"])
def test_the_tree_of_one_point_reads_back_without_edges(tmp_path: Path, name: str) -> None:
    write_tree(tmp_path / name, Tree(np.empty((0, 2), dtype=np.int64), np.empty(0)))
    assert read_tree(tmp_path / name).n_points == 1


def test_networkx_reads_the_graphml_with_names_and_weights(tmp_path: Path) -> None:
    write_tree(tmp_path / "t.graphml", TREE, names=NAMES)
    graph = nx.read_graphml(tmp_path / "t.graphml", node_type=int)
    assert [graph.nodes[point]["name"] for point in range(4)] == [*NAMES[:3], "bell\ufffd"]
    assert {frozenset(edge): graph.edges[edge]["weight"] for edge in graph.edges} == {
        frozenset(edge): weight for edge, weight in zip(TREE.edges.tolist(), TREE.weights.tolist(), strict=True)
    }


def test_graphml_of_networkx_is_read(tmp_path: Path) -> None:
    graph = nx.path_graph(4)
    nx.set_edge_attributes(graph, {edge: 1.0 + edge[0] for edge in graph.edges}, "weight")
    nx.write_graphml(graph, tmp_path / "t.graphml")
    back = read_tree(tmp_path / "t.graphml")
    assert back.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert back.weights.tolist() == [1.0, 2.0, 3.0]


def parse_newick(text: str) -> tuple[list[str], np.ndarray]:
    """Leaf names and the matrix of their path lengths, by a parser that shares nothing with the writer."""
    graph, stack, position, leaves, node = nx.Graph(), [], 0, {}, 0
    current = None
    while text[position] != ";":
        mark = text[position]
        if mark == "(":
            stack.append(node)
            node, position = node + 1, position + 1
        elif mark == ")":
            current, position = stack.pop(), position + 1
        elif mark == ",":
            position += 1
        elif mark == ":":
            end = position + 1
            while text[end] not in ",);":
                end += 1
            graph.add_edge(stack[-1], current, weight=float(text[position + 1 : end]))
            position = end
        else:
            name, position = quoted(text, position) if mark == "'" else bare(text, position)
            current, leaves[node], node = node, name, node + 1
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph))
    return list(leaves.values()), np.array([[lengths[a][b] for b in leaves] for a in leaves])


def quoted(text: str, start: int) -> tuple[str, int]:
    end = start + 1
    while text[end] != "'" or text[end + 1] == "'":
        end += 2 if text[end] == "'" else 1
    return text[start + 1 : end].replace("''", "'"), end + 1


def bare(text: str, start: int) -> tuple[str, int]:
    end = start
    while text[end] not in ":,);":
        end += 1
    return text[start:end], end


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 12), st.integers(0, 1000))
def test_path_lengths_in_newick_are_the_heights_of_single_linkage(tmp_path_factory, n: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(n, 2))
    folder = tmp_path_factory.mktemp("newick")
    graph = nx.from_numpy_array(squareform(pdist(points)))
    tree = nx.minimum_spanning_tree(graph)
    edges = np.array(tree.edges)
    write_tree(folder / "t.nwk", Tree(edges, np.array([tree.edges[edge]["weight"] for edge in tree.edges])))
    names, lengths = parse_newick((folder / "t.nwk").read_text())
    order = np.argsort(np.array(names, dtype=int))
    expected = squareform(cophenet(linkage(points, "single")))
    np.testing.assert_allclose(lengths[np.ix_(order, order)], expected, atol=1e-12)


def test_names_in_newick_are_quoted_where_they_must_be(tmp_path: Path) -> None:
    write_tree(tmp_path / "t.nwk", TREE, names=NAMES)
    assert sorted(parse_newick((tmp_path / "t.nwk").read_text())[0]) == sorted(NAMES)


def test_a_chain_deeper_than_any_recursion_is_written(tmp_path: Path) -> None:
    n = 20_000
    edges = np.column_stack([np.arange(n - 1), np.arange(1, n)])
    write_tree(tmp_path / "t.nwk", Tree(edges, np.arange(1.0, n)))
    text = (tmp_path / "t.nwk").read_text()
    assert text.count(",") == n - 1
    assert text.count("(") == text.count(")") == n - 1


def test_csv_goes_to_standard_output_and_comes_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree("-", TREE)
    text = capsys.readouterr().out
    assert text == "u,v,weight\n0,1,0.30000000000000004\n3,1,0.0\n2,0,1e-300\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    np.testing.assert_array_equal(read_tree("-").weights, TREE.weights)


def test_columns_may_stand_in_any_order_and_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfweight,v,u\r\n0.5,1,0\r\n")
    assert read_tree(tmp_path / "a.csv").edges.tolist() == [[0, 1]]
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"0\t1\t0.5\n2\t1\t3\n"))
    assert read_tree(tmp_path / "b.tsv.gz").weights.tolist() == [0.5, 3.0]


def test_a_forest_may_leave_its_weights_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u,v\n0,1\n")
    assert np.isnan(read_tree(tmp_path / "a.csv", weights_needed=False).weights).all()
    with pytest.raises(InputError, match="the edges have no weights; expected the columns u, v, weight"):
        read_tree(tmp_path / "a.csv")


def test_an_existing_file_stays_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("precious")
    with pytest.raises(InputError, match="exists already; expected another name, or --force"):
        write_tree(tmp_path / "t.csv", TREE)
    assert (tmp_path / "t.csv").read_text() == "precious"
    write_tree(tmp_path / "t.csv", TREE, force=True)
    assert read_tree(tmp_path / "t.csv").n_points == 4
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        write_tree(tmp_path / "t.graphml", TREE, names=["too few"])
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_no_tree_can_have_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown ending '.xml'; expected one of .csv"):
        check_tree_output(tmp_path / "t.xml")
    with pytest.raises(InputError, match="doesn't exist"):
        check_tree_output(tmp_path / "no" / "t.csv")
    check_tree_output("-")


def given_bytes(name: str, data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


BAD_TREES = {
    "missing": (lambda folder: folder / "t.csv", "no such file"),
    "folder": (lambda folder: folder, "is a folder"),
    "empty": (given_bytes("t.csv", b""), "the file is empty"),
    "ending": (given_bytes("t.doc", b"x"), "unknown ending '.doc'"),
    "dendrogram": (given_bytes("t.nwk", b"(a,b);"), "holds a dendrogram"),
    "header": (given_bytes("t.csv", b"from,to\n0,1\n"), "starts with 'from,to'; expected the header u,v,weight"),
    "word": (given_bytes("t.csv", b"u,v,weight\n0,1,2\n1,two,3\n"), "row 3, column 2: 'two' is not a number"),
    "short": (given_bytes("t.csv", b"u,v,weight\n0,1\n"), "row 2: has 2 columns; expected 3"),
    "fraction": (given_bytes("t.csv", b"u,v,weight\n0,1.5,2\n"), "joins 0.0 and 1.5; expected indices"),
    "negative index": (given_bytes("t.csv", b"u,v,weight\n0,-1,2\n"), "expected indices counted from 0"),
    "negative weight": (given_bytes("t.csv", b"u,v,weight\n0,1,-2\n"), "the weight -2.0; expected a finite weight"),
    "infinite weight": (
        given_bytes("t.csv", b"u,v,weight\n0,1,2\n1,2,inf\n"),
        r"edge 1 \(counted from 0\) has the weight",
    ),
    "archive": (given_bytes("t.npz", b"PK half"), "damaged"),
    "table": (given_bytes("t.parquet", b"PAR1 half"), "damaged"),
    "xml": (given_bytes("t.graphml", b"<graphml><node"), "damaged"),
    "no id": (given_bytes("t.graphml", b"<g><node/></g>"), "damaged: 'id'"),
    "node": (given_bytes("t.graphml", b'<g><node id="a"/><edge source="a" target="b"/></g>'), "names the node 'b'"),
}


@pytest.mark.parametrize("case", BAD_TREES)
def test_a_wrong_tree_file_is_refused_in_one_line_that_names_it(tmp_path: Path, case: str) -> None:
    make, message = BAD_TREES[case]
    path = make(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        read_tree(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_archive_of_another_kind_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", points=np.zeros((3, 2)))
    with pytest.raises(InputError, match="holds no array 'edges'"):
        read_tree(tmp_path / "t.npz")


@pytest.mark.parametrize("name", ["l.npy", "l.csv", "l.tsv", "l.txt", "l.parquet"])
def test_labels_read_back(tmp_path: Path, name: str) -> None:
    labels = np.array([0, -1, 2, 2])
    write_labels(tmp_path / name, labels)
    np.testing.assert_array_equal(read_labels(tmp_path / name), labels)


def test_labels_may_be_words_and_carry_probabilities(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("north\nsouth\nnorth\n")
    assert read_labels(tmp_path / "l.txt").tolist() == [0, 1, 0]
    write_labels(tmp_path / "p.csv", np.array([1, 0]), probabilities=np.array([0.5, 1.0]))
    assert (tmp_path / "p.csv").read_text() == "point,label,probability\n0,1,0.5\n1,0,1.0\n"


def test_wrong_label_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", np.array([0.5]))
    with pytest.raises(InputError, match=r"label 0 .* is 0.5; expected whole numbers or words"):
        read_labels(tmp_path / "l.npy")
    (tmp_path / "l.csv").write_text("point,group\n0,1\n")
    with pytest.raises(InputError, match="expected a column named label"):
        read_labels(tmp_path / "l.csv")


def test_edges_that_are_no_spanning_tree_are_named(tmp_path: Path) -> None:
    require_spanning(TREE, "t.csv")
    with pytest.raises(InputError, match=r"t.csv: edge 1 \(1, 0\) closes a cycle; expected a spanning tree: 2 edges"):
        require_spanning(Tree(np.array([[0, 1], [1, 0]]), np.ones(2)), "t.csv")
    with pytest.raises(InputError, match=r"edge 0 \(0, 9\) ends at a point beyond the last; .* the points 0 to 1"):
        require_spanning(Tree(np.array([[0, 9]]), np.ones(1)), "t.csv")


def shuffled_labels(name: Path) -> np.ndarray:
    rng = np.random.default_rng(5)
    labels = rng.integers(-1, 4, size=30)
    order = rng.permutation(30)
    if name.suffix == ".parquet":
        pq.write_table(pa.table({"point": order, "label": labels[order]}), name)
    else:
        mark = "\t" if name.suffix == ".tsv" else ","
        rows = [f'"point"{mark}"label"', *(f"{point}{mark}{labels[point]}" for point in order.tolist())]
        name.write_text("\n".join(rows))
    return labels


@pytest.mark.parametrize("name", ["l.csv", "l.tsv", "l.parquet"])
def test_labels_belong_to_the_points_that_their_rows_name(tmp_path: Path, name: str) -> None:
    labels = shuffled_labels(tmp_path / name)
    assert read_labels(tmp_path / name).tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("0,1\n0,2\n1,1", "row 3, column point: point 0 is also in row 2; expected each of the points 0 to 2 once"),
        ("0,1\n2,1\n3,1", "row 4, column point: point 3 in a table of 3 rows, and none for point 1"),
        ("0,1\n-1,1", "row 3, column point: '-1' is no point"),
        ("0,1\nx,1", "row 3, column point: 'x' is no point"),
        ("0,1\n,1", "row 3, column point: '' is no point"),
        ("0,1\n1,", "row 3: the label is missing"),
        ("0,1\n1", "row 3: has 1 columns; expected 2"),
    ],
)
def test_rows_of_labels_that_fit_no_point_are_refused(tmp_path: Path, rows: str, message: str) -> None:
    (tmp_path / "l.csv").write_text(f"point,label\n{rows}\n")
    with pytest.raises(InputError, match=message):
        read_labels(tmp_path / "l.csv")


def test_labels_in_an_array_may_be_words(tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", np.array(["b", "a", "b"]))
    assert read_labels(tmp_path / "l.npy").tolist() == [0, 1, 0]
    np.save(tmp_path / "l.npy", np.array([2.0, np.nan]))
    with pytest.raises(InputError, match=r"label 1 .* is nan"):
        read_labels(tmp_path / "l.npy")
    np.save(tmp_path / "l.npy", np.array([{}], dtype=object))
    with pytest.raises(InputError, match="Python objects") as refusal:
        read_labels(tmp_path / "l.npy")
    assert "pickle" not in str(refusal.value)
    (tmp_path / "l.txt").write_text("1\n\n2\n")
    with pytest.raises(InputError, match="row 2: the label is missing"):
        read_labels(tmp_path / "l.txt")
