"""The commands, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_matrix, save_npz
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist, pdist, squareform

from assay.cli import run
from assay.mst.trees import Tree, read_labels, read_tree, write_tree

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(60, 3))
WORDS = ["".join(RNG.choice(list("abcdé"), size=RNG.integers(2, 7))) for _ in range(40)]
SETS = [sorted(set(RNG.integers(0, 12, size=RNG.integers(1, 6)).tolist())) for _ in range(40)]
SEQUENCES = ["".join(RNG.choice(list("ACGT"), size=12)) for _ in range(30)]


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dátà with spaces"
    folder.mkdir()
    monkeypatch.chdir(folder)


def mst(*arguments: str) -> int:
    return run(["mst", *arguments])


def summary_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert mst(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    before = sorted(path.name for path in Path().iterdir())
    assert mst(*arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before
    return err


def exact_weight(distances: np.ndarray) -> float:
    """The weight of a minimum spanning tree by networkx, which doesn't mind zeros."""
    return nx.minimum_spanning_tree(nx.from_numpy_array(distances + 1.0)).size(weight="weight") - len(distances) + 1


def levenshtein(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(second, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


def pairwise(objects: list, distance: Callable[..., float]) -> np.ndarray:
    return np.array([[float(distance(a, b)) for b in objects] for a in objects])


def jaccard(first: list, second: list) -> float:
    return 1 - len(set(first) & set(second)) / len(set(first) | set(second))


def mismatches(first: str, second: str) -> int:
    return sum(a != b for a, b in zip(first, second, strict=True))


def write_csv(name: str, rows: np.ndarray = VECTORS) -> str:
    Path(name).write_text("\n".join(",".join(map(repr, row)) for row in rows.tolist()))
    return name


def write_tables(name: str) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"word": WORDS, "basket": SETS})
    if name.endswith(".parquet"):
        pq.write_table(table, name)
    else:
        with pa.ipc.new_file(name, table.schema) as writer:
            writer.write_table(table)
    return name


def write_input(name: str) -> str:
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq

    if name.endswith(".npy"):
        np.save(name, VECTORS)
    elif name == "distances.npz":
        np.savez(name, squareform(pdist(VECTORS)))
    elif name == "sets.npz":
        rows = np.repeat(np.arange(len(SETS)), [len(items) for items in SETS])
        save_npz(name, csr_matrix((np.ones(len(rows)), (rows, np.concatenate(SETS)))))
    elif name.endswith(".npz"):
        np.savez(name, VECTORS)
    elif name.endswith(".h5"):
        with h5py.File(name, "w") as archive:
            archive["train"], archive["test"] = VECTORS, VECTORS[:2]
    elif name == "vectors.parquet":
        pq.write_table(pa.table({f"x{i}": column for i, column in enumerate(VECTORS.T)}), name)
    elif name.endswith((".parquet", ".arrow")):
        write_tables(name)
    elif name.startswith("words"):
        text = "\ufeff" + "\r\n".join(WORDS)
        Path(name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    elif name.startswith("sets"):
        Path(name).write_text("\n".join("|".join(map(str, items)) for items in SETS))
    elif name.endswith((".fa", ".fasta")):
        Path(name).write_text("".join(f">s{i}\n{text[:5]}\n{text[5:]}\n" for i, text in enumerate(SEQUENCES)))
    elif "idx" in name:
        pixels = (40 * (VECTORS + 3)).clip(0, 255).astype(np.uint8)
        data = b"\0\0\x08\x02" + struct.pack(">II", *pixels.shape) + pixels.tobytes()
        Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    elif name.endswith(".tsv"):
        Path(name).write_text("\n".join("\t".join(map(repr, row)) for row in VECTORS.tolist()))
    else:
        write_csv(name)
    return name


EUCLIDEAN = exact_weight(cdist(VECTORS, VECTORS))
EDITS = exact_weight(pairwise(WORDS, levenshtein))
OVERLAP = exact_weight(pairwise(SETS, jaccard))
INPUTS = {
    ("vectors.npy",): EUCLIDEAN,
    ("vectors.npz",): EUCLIDEAN,
    ("vectors.csv",): EUCLIDEAN,
    ("vectors.tsv", "-m", "cityblock"): exact_weight(cdist(VECTORS, VECTORS, "cityblock")),
    ("vectors.h5", "--key", "train", "-m", "minkowski", "--p", "3"): exact_weight(
        cdist(VECTORS, VECTORS, "minkowski", p=3)
    ),
    ("vectors.parquet", "-m", "chebyshev"): exact_weight(cdist(VECTORS, VECTORS, "chebyshev")),
    ("distances.npz", "-m", "precomputed"): EUCLIDEAN,
    ("words.txt",): EDITS,
    ("words.txt.gz", "-m", "levenshtein"): EDITS,
    ("tables.parquet", "--column", "word"): EDITS,
    ("tables.arrow", "--column", "word"): EDITS,
    ("sets.txt", "-m", "jaccard", "--sep", "|"): OVERLAP,
    ("sets.npz", "-m", "jaccard"): OVERLAP,
    ("tables.parquet", "--column", "basket"): OVERLAP,
    ("tables.arrow", "--column", "basket", "-m", "jaccard"): OVERLAP,
    ("sequences.fasta",): exact_weight(pairwise(SEQUENCES, mismatches)),
    ("sequences.fa", "-m", "levenshtein"): exact_weight(pairwise(SEQUENCES, levenshtein)),
    ("pixels-idx2-ubyte.gz", "--binarize", "120"): exact_weight(
        pairwise(((40 * (VECTORS + 3)).clip(0, 255).astype(np.uint8) >= 120).tolist(), mismatches)
    ),
}


@pytest.mark.parametrize("arguments", INPUTS, ids=" ".join)
def test_the_exact_tree_of_every_input_weighs_what_the_oracle_says(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write_input(arguments[0])
    summary = summary_of(capsys, "tree", *arguments, "--algorithm", "exact", "-o", "t.npz")
    assert summary["exact"] is True
    assert summary["weight"] == pytest.approx(INPUTS[arguments], rel=1e-9)
    assert read_tree("t.npz").weights.sum() == pytest.approx(summary["weight"], rel=1e-12)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet", "t.npz", "t.graphml"])
def test_the_tree_in_every_output_spans_the_points(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    summary = summary_of(capsys, "tree", "x.csv", "--algorithm", "mfc", "-o", name)
    tree = read_tree(name)
    assert nx.is_tree(nx.Graph(tree.edges.tolist()))
    distances = np.linalg.norm(VECTORS[tree.edges[:, 0]] - VECTORS[tree.edges[:, 1]], axis=1)
    np.testing.assert_allclose(tree.weights, distances, rtol=1e-9)
    assert summary["output"] == name
    assert summary["weight"] >= EUCLIDEAN * (1 - 1e-9)
    assert summary["weight"] <= EUCLIDEAN * summary["mst_ratio_upper"]
    assert 1 <= summary["beta"] <= summary["alpha"] <= 2


def test_an_archive_is_a_saved_estimator(capsys: pytest.CaptureFixture[str]) -> None:
    from assay.mst import MetricMST

    write_csv("x.csv")
    summary = summary_of(capsys, "tree", "x.csv", "-m", "minkowski", "--p", "3", "--algorithm", "mfc", "-o", "t.npz")
    model = MetricMST.load("t.npz")
    assert (model.total_weight_, model.alpha_) == (summary["weight"], summary["alpha"])
    assert (model.metric, model.metric_params) == ("minkowski", {"p": 3.0})


def test_newick_names_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    Path("words.txt").write_text("cat\ncart\ndog\n")
    summary_of(capsys, "tree", "words.txt", "-o", "t.nwk")
    assert sorted(Path("t.nwk").read_text().replace("(", "").replace(")", "").split(",")) != []
    assert {"cat", "cart", "dog"} <= set(Path("t.nwk").read_text().translate(str.maketrans("(),:;", "     ")).split())


def test_the_same_seed_gives_the_same_file_whatever_the_threads(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    for name, jobs in (("a.csv", "1"), ("b.csv", "2")):
        summary_of(capsys, "tree", "x.csv", "--algorithm", "mfc", "--seed", "3", "--jobs", jobs, "-o", name)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def write_parts(folder: str) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(folder).mkdir()
    for number, rows in enumerate(np.array_split(VECTORS, 3)):
        pq.write_table(
            pa.table({f"x{i}": column for i, column in enumerate(rows.T)}), f"{folder}/part-{number}.parquet"
        )
    return folder


def test_points_read_in_blocks_give_the_file_that_points_in_memory_give(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-m", "euclidean", "--algorithm", "mfc", "--quiet", "-o"]
    assert run(["mst", "tree", write_csv("x.csv"), *options, "memory.csv"]) == 0
    assert run(["mst", "tree", write_parts("parts"), "--backend", "threads", *options, "blocks.csv"]) == 0
    assert Path("blocks.csv").read_bytes() == Path("memory.csv").read_bytes()


def test_a_stream_goes_in_and_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO("\n".join(WORDS).encode())))
    assert mst("tree", "-", "-m", "levenshtein", "-o", "-", "--algorithm", "exact") == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "u,v,weight"
    assert sum(float(line.split(",")[2]) for line in out.splitlines()[1:]) == EDITS
    assert "39 edges over 40 points" in err
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(out.encode())))
    assert mst("cut", "-", "-k", "3", "-o", "-") == 0
    labels = capsys.readouterr().out.splitlines()
    assert labels[0] == "point,label"
    assert len({line.split(",")[1] for line in labels[1:]}) == 3


def test_the_summary_for_people_says_how_good_the_tree_is(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    assert mst("tree", "x.csv", "-o", "t.csv", "--algorithm", "mfc") == 0
    out = capsys.readouterr().out
    assert "59 edges over 60 points, euclidean weight" in out
    assert "times the minimum spanning tree (certain: every point was compared with all)" in out
    assert "times the best completion of the first forest" in out
    assert "of all 1,770 pairs" in out
    assert out.endswith("wrote        t.csv\n")
    assert mst("tree", "x.csv", "--algorithm", "mfc", "--certify", "30", "-o", "s.csv") == 0
    assert "times the minimum spanning tree (99 % confidence, 30 points sampled)" in capsys.readouterr().out
    assert mst("tree", "x.csv", "-o", "e.csv", "--algorithm", "exact") == 0
    assert "exact: this is a minimum spanning tree" in capsys.readouterr().out


def test_quiet_prints_nothing_and_no_output_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    assert mst("tree", "x.csv", "-o", "t.csv", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert mst("tree", "x.csv") == 0
    assert capsys.readouterr().err == "The tree is not kept: add -o tree.csv to keep it.\n"


def test_one_point_two_points_and_equal_points_have_trees(capsys: pytest.CaptureFixture[str]) -> None:
    for name, rows, weight in (("one", [[1.0, 2.0]], 0), ("two", [[0.0], [3.0]], 3), ("same", [[1.0]] * 7, 0)):
        write_csv(f"{name}.csv", np.array(rows))
        summary = summary_of(capsys, "tree", f"{name}.csv", "-o", f"{name}.parquet")
        assert (summary["points"], summary["weight"]) == (len(rows), weight)
        assert read_tree(f"{name}.parquet").n_points == len(rows)
        assert mst("check", f"{name}.csv", f"{name}.parquet") == 0
        assert mst("cut", f"{name}.parquet", "-k", "1") == 0
        assert mst("plot", "tree", f"{name}.parquet", "-o", f"{name}.png") == 0
        assert mst("plot", "budget", f"{name}.csv", "-o", f"{name}.svg") == 0
        capsys.readouterr()


def test_mutual_reachability_raises_every_edge_to_its_core_distances(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    distances = cdist(VECTORS, VECTORS)
    core = np.sort(distances, axis=1)[:, 5]
    reach = np.maximum(distances, np.maximum(core[:, None], core[None]))
    np.fill_diagonal(reach, 0)
    summary = summary_of(capsys, "tree", "x.csv", "--min-samples", "5", "--algorithm", "exact")
    assert summary["weight"] == pytest.approx(exact_weight(reach), rel=1e-9)


@pytest.mark.parametrize("forest", ["labels.npy", "labels.csv", "labels.txt", "labels.parquet"])
def test_a_clustering_is_completed_to_the_best_tree_that_keeps_it(
    forest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.mst.trees import write_labels

    write_csv("x.csv")
    labels = (VECTORS[:, 0] > 0).astype(np.int64) + 2 * (VECTORS[:, 1] > 0)
    write_labels(forest, labels)
    summary = summary_of(capsys, "complete", "x.csv", "--forest", forest, "--exact", "-o", "t.csv")
    distances = cdist(VECTORS, VECTORS)
    members = [np.flatnonzero(labels == label) for label in range(4)]
    inside = sum(exact_weight(distances[np.ix_(part, part)]) for part in members)
    gaps = np.array([[distances[np.ix_(a, b)].min() for b in members] for a in members])
    assert summary["forest_weight"] == pytest.approx(inside, rel=1e-9)
    assert summary["completion_weight"] == pytest.approx(exact_weight(gaps), rel=1e-9)
    assert nx.is_tree(nx.Graph(read_tree("t.csv").edges.tolist()))


@pytest.mark.parametrize("forest", ["f.csv", "f.parquet", "f.npz", "f.graphml", "bare.csv"])
def test_the_edges_of_a_forest_are_kept(forest: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    chain = np.column_stack([np.arange(0, 30), np.arange(1, 31)])
    lengths = np.linalg.norm(VECTORS[chain[:, 0]] - VECTORS[chain[:, 1]], axis=1)
    if forest == "bare.csv":
        Path(forest).write_text("u,v\n" + "\n".join(f"{u},{v}" for u, v in chain.tolist()))
    elif forest == "f.graphml":
        nodes = "".join(f'<node id="{point}"/>' for point in range(60))
        links = "".join(f'<edge source="{u}" target="{v}"/>' for u, v in chain.tolist())
        Path(forest).write_text(f"<graphml><graph>{nodes}{links}</graph></graphml>")
    else:
        write_tree(forest, Tree(chain, lengths))
    summary = summary_of(capsys, "complete", "x.csv", "--forest", forest, "--budget", "2t", "-o", "t.csv")
    kept = {frozenset(edge) for edge in read_tree("t.csv").edges.tolist()}
    assert {frozenset(edge) for edge in chain.tolist()} <= kept
    assert (summary["components"], summary["largest_component"]) == (30, 31)
    assert len(kept) == 59


def exact_tree(name: str, points: np.ndarray = VECTORS) -> str:
    matrix = minimum_spanning_tree(cdist(points, points)).tocoo()
    write_tree(name, Tree(np.column_stack([matrix.row, matrix.col]).astype(np.int64), matrix.data))
    return name


def same_partition(first: np.ndarray, second: np.ndarray) -> bool:
    return len(set(zip(first.tolist(), second.tolist(), strict=True))) == len(set(first)) == len(set(second))


@pytest.mark.parametrize("k", [1, 4, 60])
def test_a_cut_into_k_clusters_is_that_of_single_linkage(k: int, capsys: pytest.CaptureFixture[str]) -> None:
    exact_tree("t.csv")
    summary = summary_of(capsys, "cut", "t.csv", "-k", str(k), "-o", "l.npy")
    assert same_partition(read_labels("l.npy"), fcluster(linkage(VECTORS, "single"), k, "maxclust"))
    assert summary["clusters"] == k
    assert sum(summary["sizes"]) == 60


def test_a_cut_at_a_height_is_that_of_single_linkage(capsys: pytest.CaptureFixture[str]) -> None:
    exact_tree("t.parquet")
    summary_of(capsys, "cut", "t.parquet", "--height", "0.9", "-o", "l.csv")
    assert same_partition(read_labels("l.csv"), fcluster(linkage(VECTORS, "single"), 0.9, "distance"))


def test_hdbscan_finds_the_groups_and_leaves_noise_out(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    groups = np.concatenate([rng.normal(size=(40, 2)) * 0.1, rng.normal(size=(40, 2)) * 0.1 + 5, [[20.0, -20.0]]])
    exact_tree("t.csv", groups)
    summary = summary_of(capsys, "cut", "t.csv", "--hdbscan", "--min-cluster-size", "10", "-o", "l.csv")
    labels = read_labels("l.csv")
    assert summary["clusters"] == 2
    assert labels[-1] == -1
    assert Path("l.csv").read_text().startswith("point,label,probability\n")
    for part in (labels[:40], labels[40:80]):
        assert len(set(part[part >= 0])) == 1


def test_check_accepts_an_exact_tree_and_bounds_a_worse_one(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    exact_tree("t.csv")
    report = summary_of(capsys, "check", "x.csv", "t.csv")
    assert report["spanning"] is True
    assert report["weights_right"] is True
    assert report["improvable_points"] == 0
    chain = np.column_stack([np.arange(59), np.arange(1, 60)])
    lengths = np.linalg.norm(VECTORS[chain[:, 0]] - VECTORS[chain[:, 1]], axis=1)
    write_tree("chain.csv", Tree(chain, lengths))
    report = summary_of(capsys, "check", "x.csv", "chain.csv")
    assert report["improvable_points"] > 0
    assert report["mst_ratio_upper"] >= lengths.sum() / EUCLIDEAN
    assert mst("check", "x.csv", "chain.csv") == 0
    assert "59 edges over 60 points" in capsys.readouterr().out


def test_check_fails_with_status_1_where_the_tree_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    tree = read_tree(exact_tree("t.csv"))
    wrong = tree.weights.copy()
    wrong[7] += 0.5
    write_tree("weights.csv", Tree(tree.edges, wrong))
    mst("check", "x.csv", "weights.csv")
    u, v = tree.edges[7]
    assert f"edge 7 ({u}, {v})" in capsys.readouterr().err
    assert mst("check", "x.csv", "weights.csv", "--quiet") == 1
    cycle = tree.edges.copy()
    cycle[0] = cycle[1]
    write_tree("cycle.csv", Tree(cycle, tree.weights))
    assert mst("check", "x.csv", "cycle.csv", "--quiet") == 1
    assert "cycle" in capsys.readouterr().err
    write_tree("short.csv", Tree(tree.edges[:-1], tree.weights[:-1]))
    assert mst("check", "x.csv", "short.csv", "--quiet") == 1
    assert "58 edges" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("tree", "t.csv"),
        ("tree", "t.csv", "--points", "x.csv"),
        ("dendrogram", "t.csv"),
        ("components", "x.csv"),
        ("budget", "x.csv"),
    ],
    ids=" ".join,
)
def test_every_picture_is_drawn(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    exact_tree("t.csv")
    assert summary_of(capsys, "plot", *arguments, "-o", "p.svg") == {
        "kind": arguments[0],
        "input": arguments[1],
        "output": "p.svg",
    }
    assert "<svg" in Path("p.svg").read_text()


def test_a_dendrogram_shows_the_names_of_its_points(capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.txt").write_text("cat\ncart\ndog\n")
    assert mst("tree", "w.txt", "-o", "t.csv") == 0
    assert mst("plot", "dendrogram", "t.csv", "--points", "w.txt", "-o", "d.svg") == 0
    assert all(f"<!-- {word} -->" in Path("d.svg").read_text() for word in ("cat", "cart", "dog"))


def fresh(name: str, data: str | bytes) -> str:
    Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return name


def array(name: str, values: np.ndarray) -> str:
    np.save(name, values)
    return name


REFUSALS: dict[str, tuple[Callable[[], list[str]], str]] = {
    "missing": (lambda: ["tree", "none.csv"], "none.csv: no such file"),
    "folder": (lambda: [Path("f.csv").mkdir() or "tree", "f.csv"], "f.csv: is a folder"),
    "empty": (lambda: ["tree", fresh("e.txt", "")], "e.txt: the file is empty"),
    "ending": (lambda: ["tree", fresh("e.xyz", "1")], "e.xyz: unknown ending '.xyz'"),
    "truncated": (lambda: ["tree", fresh("e.npz", b"PK\x03\x04")], "e.npz: damaged"),
    "NaN": (lambda: ["tree", array("n.npy", np.array([[0.0], [np.nan]]))], "NaN or infinity in the objects 1 "),
    "infinity": (lambda: ["tree", fresh("n.csv", "1,2\r\ninf,3\r\n")], "NaN or infinity in the objects 1 "),
    "cell": (lambda: ["tree", fresh("n.csv", "\ufeff1,2\r\n3,x\r\n"), "-m", "euclidean"], "row 2, column 2: 'x'"),
    "unknown metric": (lambda: ["tree", write_csv("x.csv"), "-m", "euclidian"], "euclidian"),
    "not square": (lambda: ["tree", array("d.npy", np.ones((2, 3))), "-m", "precomputed"], "has shape (2, 3)"),
    "asymmetric": (
        lambda: ["tree", array("d.npy", np.array([[0.0, 1], [2, 0]])), "-m", "precomputed"],
        "d.npy: ",
    ),
    "negative": (lambda: ["tree", array("d.npy", np.array([[0.0, -1], [-1, 0]])), "-m", "precomputed"], "d.npy: "),
    "diagonal": (lambda: ["tree", array("d.npy", np.array([[1.0, 1], [1, 0]])), "-m", "precomputed"], "d.npy: "),
    "ragged": (lambda: ["tree", fresh("h.txt", "abc\nab\n"), "-m", "hamming"], "line 2 has 2 letters"),
    "too many components": (lambda: ["tree", write_csv("x.csv"), "--components", "61", "--algorithm", "mfc"], "61"),
    "no components": (lambda: ["tree", write_csv("x.csv"), "--components", "few"], "components is 'few'"),
    "budget": (lambda: ["tree", write_csv("x.csv"), "--budget", "2x", "--algorithm", "mfc"], "budget is '2x'"),
    "forests": (
        lambda: ["tree", write_csv("x.csv"), "--forests", "0"],
        "assay: --forests is 0; expected a whole number >= 1\n",
    ),
    "part of a forest": (
        lambda: ["tree", write_csv("x.csv"), "--forests", "3.7"],
        "assay: --forests is '3.7'; expected an integer\n",
    ),
    "confidence": (lambda: ["tree", write_csv("x.csv"), "--confidence", "1.5"], "confidence is 1.5"),
    "jobs": (lambda: ["tree", write_csv("x.csv"), "--jobs", "0"], "assay: --jobs is 0; expected a positive number"),
    "seed": (lambda: ["tree", write_csv("x.csv"), "--seed", "-1"], "--seed is -1; expected a whole number >= 0\n"),
    "calls": (
        lambda: ["tree", write_csv("x.csv"), "--max-calls", "1", "--algorithm", "mfc"],
        "assay: --max-calls is 1; expected about ",
    ),
    "no calls": (lambda: ["tree", write_csv("x.csv"), "--max-calls", "0"], "--max-calls is 0; expected a whole number"),
    "threshold of another forest": (
        lambda: ["tree", write_csv("x.csv"), "--threshold", "1"],
        "assay: --threshold is 1.0 with another forest; expected --forest threshold\n",
    ),
    "no threshold": (
        lambda: ["tree", write_csv("x.csv"), "--forest", "threshold"],
        "--threshold is None; expected a distance >= 0 for --forest threshold\n",
    ),
    "metric of no file": (lambda: ["tree", fresh("w.txt", "a\nb\n"), "-m", "bogus"], "assay: --metric is 'bogus'"),
    "clusters of no file": (lambda: ["cut", exact_tree("t.csv"), "-k", "0"], "assay: --clusters is 0; "),
    "one sample": (
        lambda: ["check", write_csv("x.csv"), exact_tree("t.csv"), "--samples", "1"],
        "assay: --samples is 1; expected 0, or at least 2 objects to sample",
    ),
    "no name": (lambda: ["tree", ""], "name is empty"),
    "no numpy file": (lambda: ["tree", fresh("f.npy", "hello")], "f.npy: "),
    "labels of one point twice": (
        lambda: ["complete", write_csv("x.csv"), "--forest", fresh("l.csv", "point,label\n0,1\n0,2\n")],
        "l.csv, row 3, column point: point 0 is also in row 2",
    ),
    "text among numbers": (lambda: ["tree", fresh("x.csv", "a,b\nx,1\n")], "--column, one of a, b"),
    "decimal commas": (lambda: ["tree", fresh("x.csv", "a;b\n0,5;1,5\n")], "'0,5' has a decimal comma"),
    "choice": (lambda: ["tree", write_csv("x.csv"), "--allocation", "best"], "best"),
    "blocks without a metric": (lambda: ["tree", write_parts("d"), "--backend", "threads"], "no metric is given"),
    "blocks of a column": (
        lambda: ["tree", write_parts("d"), "--backend", "threads", "-m", "euclidean", "--column", "x0"],
        "--column with points that are read in blocks",
    ),
    "blocks of nothing": (lambda: ["tree", "none", "--backend", "threads", "-m", "euclidean"], "none: doesn't exist"),
    "output exists": (lambda: ["tree", write_csv("x.csv"), "-o", fresh("t.csv", "old")], "t.csv: exists already"),
    "output is the input": (
        lambda: ["tree", write_csv("x.csv"), "-o", "./x.csv", "--force"],
        "x.csv: is also an input",
    ),
    "labels over the tree": (
        lambda: ["cut", exact_tree("t.csv"), "-k", "2", "-o", "t.csv", "--force"],
        "t.csv: is also an input",
    ),
    "output folder": (lambda: ["tree", write_csv("x.csv"), "-o", "no/t.csv"], "the folder no doesn't exist"),
    "output ending": (lambda: ["tree", write_csv("x.csv"), "-o", "t.xml"], "t.xml: unknown ending '.xml'"),
    "two streams": (lambda: ["tree", write_csv("x.csv"), "-o", "-", "--json"], "both write to standard output"),
    "forest cycle": (
        lambda: ["complete", write_csv("x.csv"), "--forest", fresh("f.csv", "u,v\n0,1\n1,2\n2,0\n")],
        "f.csv: edge 2 (2, 0) closes a cycle",
    ),
    "forest range": (
        lambda: ["complete", write_csv("x.csv"), "--forest", fresh("f.csv", "u,v\n0,60\n")],
        "f.csv: edge 0 (0, 60) has an end out of range",
    ),
    "forest weight": (
        lambda: ["complete", write_csv("x.csv"), "--forest", fresh("f.csv", "u,v,weight\n0,1,99\n")],
        "f.csv: edge 0 (0, 1) has weight 99",
    ),
    "labels length": (
        lambda: ["complete", write_csv("x.csv"), "--forest", array("l.npy", np.zeros(5, dtype=int))],
        "l.npy: labels have shape (5,)",
    ),
    "forest missing": (lambda: ["complete", write_csv("x.csv"), "--forest", "l.npy"], "l.npy: no such file"),
    "two cuts": (lambda: ["cut", exact_tree("t.csv"), "-k", "2", "--height", "1"], "-k and --height given"),
    "no cut": (lambda: ["cut", exact_tree("t.csv")], "expected one of -k, --height, --hdbscan"),
    "too many clusters": (lambda: ["cut", exact_tree("t.csv"), "-k", "61"], "61"),
    "no tree": (lambda: ["cut", fresh("t.csv", "u,v,weight\n0,1,1\n0,1,1\n"), "-k", "2"], "t.csv: "),
    "tree without weights": (lambda: ["cut", fresh("t.csv", "u,v\n0,1\n"), "-k", "2"], "the edges have no weights"),
    "other points": (
        lambda: ["plot", "tree", exact_tree("t.csv"), "--points", write_csv("y.csv", VECTORS[:9]), "-o", "p.png"],
        "t.csv: the tree has 60 points, y.csv has 9",
    ),
    "picture ending": (lambda: ["plot", "tree", exact_tree("t.csv"), "-o", "p.gif"], "p.gif: unknown ending '.gif'"),
    "one file twice": (lambda: ["check", exact_tree("t.csv"), "t.csv"], "points and tree are both t.csv"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_wrong_input_gets_one_line_and_status_2(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    make, message = REFUSALS[case]
    arguments = make()
    assert message in refusal_of(capsys, *arguments)


def test_a_folder_without_permission_is_refused_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv("x.csv")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "no permission to write" in refusal_of(capsys, "tree", "x.csv", "-o", "t.csv", "--quiet")


def test_an_existing_output_is_replaced_only_with_force(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    fresh("t.csv", "precious")
    refusal_of(capsys, "tree", "x.csv", "-o", "t.csv", "--quiet")
    assert Path("t.csv").read_text() == "precious"
    summary_of(capsys, "tree", "x.csv", "-o", "t.csv", "--force")
    assert read_tree("t.csv").n_points == 60


def test_what_is_no_metric_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    assert mst("tree", "x.csv", "-m", "sqeuclidean", "--algorithm", "mfc", "-o", "t.csv") == 0
    out, err = capsys.readouterr()
    assert err.startswith("warning: ")
    assert err.count("\n") == err.count("warning: ")
    assert "not certified" in out


@pytest.mark.parametrize("checkpoint", [None, "kept"])
def test_a_stop_says_how_to_go_on(
    checkpoint: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.mst.estimator import MetricMST

    def stop(self: MetricMST, X: object, y: object = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(MetricMST, "fit", stop)
    write_csv("x.csv")
    arguments = ["tree", "x.csv", "-o", "t.csv", *(["--checkpoint", checkpoint] if checkpoint else [])]
    assert mst(*arguments) == 130
    err = capsys.readouterr().err
    assert ("the same command goes on" if checkpoint else "With --checkpoint FOLDER") in err
    assert not Path("t.csv").exists()


def test_a_checkpoint_gives_the_identical_tree(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    arguments = ["tree", "x.csv", "--algorithm", "mfc"]
    summary_of(capsys, *arguments, "-o", "a.csv")
    summary_of(capsys, *arguments, "-o", "b.csv", "--checkpoint", "kept")
    summary_of(capsys, *arguments, "-o", "c.csv", "--checkpoint", "kept")
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes() == Path("c.csv").read_bytes()


@pytest.mark.parametrize("verb", ["tree", "complete", "cut", "check", "plot"])
def test_help_shows_an_example_and_explains_every_option(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mst(verb, "--help") == 0
    text = capsys.readouterr().out
    assert f"assay mst {verb} " in text


def test_labels_of_shuffled_rows_make_the_same_tree(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    assert mst("cut", exact_tree("t.csv"), "-k", "5", "-o", "l.csv", "-q") == 0
    header, *rows = Path("l.csv").read_text().splitlines()
    fresh("shuffled.csv", "\n".join([header, *rows[::-1]]))
    for forest, out in (("l.csv", "a.csv"), ("shuffled.csv", "b.csv")):
        summary_of(capsys, "complete", "x.csv", "--forest", forest, "-o", out)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_noise_stays_single(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    fresh("l.txt", "\n".join(["-1"] * 10 + ["0"] * 50))
    assert summary_of(capsys, "complete", "x.csv", "--forest", "l.txt")["components"] == 11


def test_what_a_file_is_taken_for_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    fresh("x.csv", "\n".join(";".join(map(repr, row)) for row in VECTORS.tolist()))
    assert mst("tree", "x.csv", "-o", "t.csv", "--algorithm", "exact") == 0
    assert capsys.readouterr().err == "warning: x.csv is read as a table separated by semicolon\n"
    assert read_tree("t.csv").weights.sum() == pytest.approx(EUCLIDEAN, rel=1e-9)
    array("d.npy", squareform(pdist(VECTORS)))
    assert mst("tree", "d.npy", "-o", "d.csv") == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: d.npy looks like a distance matrix")
    assert err.count("\n") == 1


def test_an_output_that_is_a_link_is_written_to_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("x.csv")
    Path("link.csv").symlink_to(fresh("target.csv", "old"))
    assert mst("tree", "x.csv", "-o", "link.csv", "--force", "-q") == 0
    assert Path("link.csv").is_symlink()
    assert read_tree("target.csv").n_points == 60


def test_ctrl_c_in_compiled_code_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise SystemError("CPUDispatcher(prim_matrix) returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr("assay.mst.estimator.exact_mst", stop)
    monkeypatch.setattr("assay.mst.certificate.evaluate_edges", stop)
    write_csv("x.csv")
    for arguments in (["tree", "x.csv", "--algorithm", "exact"], ["check", "x.csv", exact_tree("t.csv")]):
        assert mst(*arguments) == 130
        err = capsys.readouterr().err
        assert err.startswith("assay: stopped")
        assert err.count("\n") == 1


def test_words_of_numpy_do_not_reach_the_user(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.mst.estimator import MetricMST

    fit = MetricMST.fit

    def overflowing(self: MetricMST, X: object, y: object = None) -> MetricMST:
        np.float64(1e300) * np.array([1e300])
        return fit(self, X, y)

    monkeypatch.setattr(MetricMST, "fit", overflowing)
    write_csv("x.csv")
    assert mst("tree", "x.csv", "-o", "t.csv") == 0
    assert capsys.readouterr().err == ""


def test_importing_the_package_or_its_commands_loads_nothing_heavy() -> None:
    code = (
        "import sys, assay.mst, assay.mst.jobs; "
        "print(sorted({'numba', 'numpy', 'scipy', 'pyarrow', 'matplotlib', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import assay.mst

    assert dir(assay.mst) == sorted(assay.mst.__all__)
    assert [name for name in assay.mst.__all__ if getattr(assay.mst, name).__name__ != name] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assay.mst.nothing  # noqa: B018
