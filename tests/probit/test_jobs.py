"""The commands, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from assay.cli import run
from assay.probit import ChoiceData, CorrelatedProbit, read_choices
from tests.probit.oracles import people, random_model

N = 4
MU, COVARIANCE = random_model(N, seed=5)
NAMES = ["thé noir", "b", "c d", "e"]
UTILITIES = people(MU, COVARIANCE, 300, seed=0)
RANKS = np.argsort(np.argsort(-UTILITIES, axis=1), axis=1) + 1
ORDERS = np.argsort(-UTILITIES, axis=1)


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_difficult_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dátà with spaces"
    folder.mkdir()
    monkeypatch.chdir(folder)


def probit(*arguments: str) -> int:
    return run(["probit", *arguments])


def summary_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert probit(*arguments, "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def refusal_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    before = sorted(path.name for path in Path().iterdir())
    assert probit(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("assay: ")
    assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == before
    return err


def lines_of(kind: str) -> list[str]:
    if kind == "txt":
        return [">".join(NAMES[item] for item in order) for order in ORDERS]
    if kind == "long-rank":
        return ["user,item,rank", *(f"u{u},{NAMES[i]},{RANKS[u, i]}" for u in range(300) for i in range(N))]
    if kind == "long-rating":
        return ["userId,movieId,rating", *(f"{u},{NAMES[i]},{10 - RANKS[u, i]}" for u in range(300) for i in range(N))]
    if kind == "wide":
        return [
            ",".join(["user", *NAMES]),
            *(",".join([f"u{u}", *(str(10 - rank) for rank in RANKS[u])]) for u in range(300)),
        ]
    if kind == "soc":
        head = ["# TITLE: drinks", *(f"# ALTERNATIVE NAME {i + 1}: {NAMES[i]}" for i in range(N))]
        return [*head, *(f"1: {','.join(str(item + 1) for item in order)}" for order in ORDERS)]
    if kind == "order":
        return [f"{N} 1", *(f"0 {N} {' '.join(map(str, order))}" for order in ORDERS)]
    return [
        json.dumps(
            {"prompt": "?", "completions": ["w", "x", "y", "z"], "models": NAMES, "ranking": order, "user": f"u{user}"}
        )
        for user, order in enumerate(ORDERS.tolist())
    ]


def write(name: str, kind: str) -> str:
    text = "\n".join(lines_of(kind)) + "\n"
    if name.endswith(".gz"):
        Path(name).write_bytes(gzip.compress(text.encode()))
    elif name.startswith("windows"):
        Path(name).write_bytes(("\ufeff" + text.replace("\n", "\r\n")).encode())
    elif name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        header, *rows = [line.split(",") for line in text.splitlines()]
        pq.write_table(pa.table({name: [row[place] for row in rows] for place, name in enumerate(header)}), name)
    elif name.endswith(".tsv"):
        Path(name).write_text(text.replace(",", "\t"))
    else:
        Path(name).write_text(text)
    return name


def expected() -> np.ndarray:
    data = ChoiceData.from_rankings(ORDERS, items=range(N))
    return CorrelatedProbit("full", n_init=1, stderr="none").fit(data).mu_


INPUTS = [
    ("a.txt", "txt"),
    ("a.txt.gz", "txt"),
    ("windows.txt", "txt"),
    ("long.csv", "long-rank"),
    ("windows.csv", "long-rating"),
    ("long.tsv", "long-rating"),
    ("long.parquet", "long-rank"),
    ("wide.csv", "wide"),
    ("wide.parquet", "wide"),
    ("a.soc", "soc"),
    ("a.toi", "soc"),
    ("sushi.order", "order"),
    ("a.jsonl", "json"),
]


@pytest.mark.parametrize(("name", "kind"), INPUTS, ids=[name for name, _ in INPUTS])
def test_every_format_gives_the_same_model(name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(name, kind)
    summary = summary_of(capsys, "fit", name, "-o", "m.npz", "--starts", "1")
    names = [str(item) for item in range(N)] if kind == "order" else NAMES
    assert [summary["means"][item] for item in names] == pytest.approx(expected().tolist(), abs=1e-4)
    assert summary["events"] == {"order": 1200, "best": 0, "worst": 0, "pair": 0}
    assert summary["users"] == 300
    assert summary["identified"] is True
    model = CorrelatedProbit.load("m.npz")
    assert np.trace(model.covariance_) == pytest.approx(N)


def test_standard_input_and_columns_with_other_names(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(lines_of("long-rank")).replace("user,item,rank", "who,what,liking")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
    options = ["--format", "csv", "--user", "who", "--item", "what", "--value", "liking", "--values", "rank"]
    summary = summary_of(capsys, "fit", "-", "--starts", "1", *options)
    assert [summary["means"][name] for name in NAMES] == pytest.approx(expected().tolist(), abs=1e-4)


def test_missing_values_and_repeated_rows_are_left_out_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines_of("long-rating")
    rows += [rows[1], "0,extra,NaN", "1,extra,"]
    Path("a.csv").write_text("\n".join(rows))
    summary = summary_of(capsys, "check", "a.csv")
    assert summary["dropped"] == {"values that are missing or NaN": 2, "rows that repeat another": 1}
    assert summary["events"]["order"] == 1200


def test_check_says_what_is_identified_and_shows_two_models_for_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    truth = CorrelatedProbit.from_parameters(MU, COVARIANCE, items=list("abcd"))
    truth.simulate(500, size=2).pairs.tolist()
    pairs = truth.simulate(500, size=2)
    Path("pairs.txt").write_text("\n".join(f"{pairs.items[a]}>{pairs.items[b]}" for a, b in pairs.pairs.tolist()))
    summary = summary_of(capsys, "check", "pairs.txt")
    assert summary["identified"] is False
    assert summary["means_identified"] is True
    witness = summary["witness"]
    models = [
        CorrelatedProbit.from_parameters(witness[f"{which}mu"], witness[f"{which}covariance"], items=list("abcd"))
        for which in ("", "other_")
    ]
    for pair in ("a>b", "a>c", "a>d", "b>c", "b>d", "c>d"):
        assert models[0].prob(pair) == pytest.approx(models[1].prob(pair), abs=1e-12)
    order = ">".join(witness["order"])
    assert models[0].prob(order) == pytest.approx(witness["probability"], abs=1e-12)
    assert abs(models[0].prob(order) - models[1].prob(order)) > 1e-3
    assert "two models agree on all pairs" in refusal_of(capsys, "fit", "pairs.txt", "-o", "m.npz")
    means = summary_of(capsys, "fit", "pairs.txt", "--rank", "0", "-o", "m.npz")
    assert means["rank"] == 0
    assert means["identified"] is False


@pytest.fixture
def model() -> CorrelatedProbit:
    made = CorrelatedProbit.from_parameters(MU, COVARIANCE, items=list("abcd"))
    made.save("m.npz")
    return made


def test_predictions_are_the_models(model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]) -> None:
    summary = summary_of(
        capsys,
        "predict",
        "m.npz",
        "--given",
        "a>b",
        "--given",
        "c>b",
        "--pairs",
        "d>a",
        "--pairs",
        "d>a>c",
        "-o",
        "p.csv",
    )
    found = [row["probability"] for row in summary["predictions"]]
    assert found == [model.predict_pair("d", "a", given=["a>b", "c>b"]), model.prob("d>a>c", given=["a>b", "c>b"])]
    assert Path("p.csv").read_text().splitlines()[0] == "order,probability,error"
    everything = summary_of(capsys, "predict", "m.npz", "--given", "a>b")
    means = model.posterior("a>b").mean
    assert [row["item"] for row in everything["predictions"]] == [model.items_[index] for index in np.argsort(-means)]


def test_slates_designs_and_sample_sizes_are_the_librarys(
    model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.probit import design, sample_size

    slate = summary_of(capsys, "slate", "m.npz", "-k", "2", "-o", "s.csv")
    assert slate["items"] == list(model.slate(2).items)
    assert Path("s.csv").read_text().splitlines()[1] == f"1,{slate['items'][0]}"
    plan = summary_of(capsys, "design", "4", "--budget", "9", "--model", "m.npz", "-o", "q.csv")
    assert plan["triples"] == [list(triple) for triple in design(4, 9, model=model).triples]
    assert len(Path("q.csv").read_text().splitlines()) == 10
    assert summary_of(capsys, "sample-size", "m.npz", "--eps", "0.1")["answers"] == sample_size(model, 0.1)


@pytest.mark.parametrize(("size", "kind"), [(2, "ranking"), (3, "ranking"), (3, "best"), (4, "ranking"), (4, "best")])
def test_simulated_answers_are_read_again(
    size: int, kind: str, model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]
) -> None:
    summary_of(capsys, "simulate", "m.npz", "200", "--size", str(size), "--kind", kind, "--seed", "3", "-o", "sim.txt")
    drawn = model.simulate(200, size=size, kind=kind, random_state=3)
    again = read_choices("sim.txt")
    assert again.items == drawn.items
    assert sorted(map(tuple, again.triples.tolist())) == sorted(map(tuple, drawn.triples.tolist()))
    assert np.array_equal(again.pairs, drawn.pairs)


def test_answers_go_to_standard_output_and_the_summary_to_standard_error(
    model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probit("simulate", "m.npz", "5") == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 5
    assert "answers" in err
    assert probit("predict", "m.npz", "--pairs", "a>b", "-o", "-") == 0
    out, _ = capsys.readouterr()
    assert out.splitlines()[0] == "order,probability,error"


@pytest.mark.parametrize("kind", ["correlation", "map", "reliability", "pairs"])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures_are_drawn(
    kind: str, suffix: str, model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]
) -> None:
    summary_of(capsys, "simulate", "m.npz", "300", "-o", "sim.txt")
    source = "sim.txt" if kind == "pairs" else "m.npz"
    extra = ["--data", "sim.txt"] if kind == "reliability" else []
    summary_of(capsys, "plot", kind, source, *extra, "-o", f"p.{suffix}")
    head = Path(f"p.{suffix}").read_bytes()[:5]
    assert head == (b"\x89PNG\r" if suffix == "png" else b"<?xml")


def test_a_calibrated_model_is_on_the_diagonal(model: CorrelatedProbit) -> None:
    from assay.probit.plots import reliability

    predicted, observed, counts = reliability(model, model.simulate(20_000, random_state=8))
    assert counts.sum() == 6 * 20_000
    assert np.abs(predicted - observed).max() < 4 * np.sqrt(0.25 / counts.min())


BAD = {
    ("missing.csv", None): "no such file",
    ("folder.csv", "folder"): "is a folder",
    ("empty.csv", ""): "the file is empty",
    ("a.xyz", "x"): "unknown ending '.xyz'",
    ("noending", "x"): "the name has no ending",
    ("cell.csv", "user,item,rating\nu,a,good\n"): "row 2, column rating: 'good' is not a number",
    ("inf.csv", "user,item,rating\nu,a,1\nu,b,inf\n"): "row 3, column rating: 'inf' is infinite",
    ("two.csv", "user,item,rating\nu,a,1\nu,b,2\n"): "2 items; expected at least 3",
    ("columns.csv", "x,y\n1,2\n"): "has the columns x, y",
    ("short.csv", "user,item,rating\nu,a\n"): "row 2: has 2 columns",
    ("twice.csv", "user,item,rating\nu,a,1\nu,b,2\nu,c,3\nu,a,2\n"): "row 5: user u gave 'a' another value",
    ("header.csv", "user,a,b,a\nu,1,2,3\n"): "the header names 'a' twice",
    ("nothing.csv", "user,item,rating\n"): "holds no value",
    ("same.csv", "user,a,b,c\nu,1,2,3\nu,1,2,3\n"): "row 3: user u has a row above",
    ("dup.txt", "a>b>c\na>b>a\n"): "row 2: the ranking holds 'a' twice",
    ("hole.txt", "a>b>c\na>>c\n"): "row 2: 'a>>c' has an empty item",
    ("groups.txt", "a>b>c\nd>e>f\n"): "2 groups of items are never compared",
    ("tied.txt", "a~b~c\n"): "no comparison",
    ("bad.soc", "# ALTERNATIVE NAME 1: a\n1,2,3\n"): "row 2: '1,2,3' is no order",
    ("name.soc", "# ALTERNATIVE NAME 1: a\n2: 1,9\n"): "row 2: alternative 9 has no name",
    ("bad.order", "ten one\n"): "row 1: the first line isn't",
    ("cut.order", "3 1\n0 3 0 1\n"): "row 2: '0 3 0 1' is no order",
    ("bad.jsonl", '{"completions": \n'): "row 1: not JSON",
    ("list.jsonl", "[1]\n"): "row 1: holds a list",
    ("bad.parquet", "not a table"): "damaged",
    ("bytes.txt", b"a>b>\xff\n"): "row 1: byte 0xff is not UTF-8",
    ("one.csv", "user,a,b,c\nu,1,1,1\n"): "no comparison",
}


@pytest.mark.parametrize(("name", "text"), BAD, ids=[name for name, _ in BAD])
def test_files_that_are_wrong_are_refused_in_one_line(name: str, text, capsys: pytest.CaptureFixture[str]) -> None:
    if text == "folder":
        Path(name).mkdir()
    elif isinstance(text, bytes):
        Path(name).write_bytes(text)
    elif text is not None:
        Path(name).write_text(text)
    assert BAD[name, text] in refusal_of(capsys, "fit", name)


ARGUMENTS = {
    ("fit", "a.txt", "--rank", "many"): "--rank many; expected auto, full",
    ("fit", "a.txt", "--rank", "9"): "rank is 9",
    ("fit", "a.txt", "-o", "m.json"): "unknown ending",
    ("fit", "a.txt", "-o", "m.npz"): "exists already; expected another name, or --force",
    ("fit", "a.txt", "-o", "nowhere/m2.npz"): "doesn't exist",
    ("fit", "a.txt", "--ridge", "-1"): "ridge is -1",
    ("fit", "a.txt", "--format", "xls"): "unknown format 'xls'",
    ("fit", "long.csv", "--user", "nobody"): "no column 'nobody'",
    ("predict", "a.txt"): "unknown ending",
    ("predict", "m.npz", "--given", "a>b", "--given", "b>a", "--pairs", "c>d"): "contradict each other",
    ("predict", "m.npz", "--given", "a>x"): "unknown item 'x'",
    ("predict", "m.npz", "--pairs", "a>a"): "both items are 'a'",
    ("predict", "m.npz", "--given", "a>b", "--json", "-o", "-"): "both write to standard output",
    ("slate", "m.npz", "-k", "9"): "k is 9; expected 1 to 4 items",
    ("design", "2", "--budget", "3"): "n is 2",
    ("design", "9", "--budget", "3", "--model", "m.npz"): "the model has 4 items",
    ("sample-size", "m.npz", "--eps", "0"): "eps is 0",
    ("simulate", "m.npz", "0"): "people is 0",
    ("simulate", "m.npz", "5", "-o", "x.csv"): "unknown ending",
    ("plot", "map", "m.npz", "-o", "p.gif"): "unknown ending",
    ("plot", "reliability", "m.npz", "-o", "p.png"): "--data is missing",
}


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_options_that_are_wrong_are_refused_in_one_line(
    arguments: tuple[str, ...], model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.txt", "txt")
    write("long.csv", "long-rank")
    assert ARGUMENTS[arguments] in refusal_of(capsys, *arguments)


def test_an_output_never_replaces_the_input(model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]) -> None:
    write("a.txt", "txt")
    Path("same.npz").hardlink_to("a.txt")
    assert "is also an input" in refusal_of(capsys, "fit", "a.txt", "-o", "same.npz", "--force")
    Path("same.csv").hardlink_to("m.npz")
    assert "is also an input" in refusal_of(capsys, "slate", "m.npz", "-o", "same.csv", "--force")


def test_quiet_prints_nothing_and_force_replaces(model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]) -> None:
    write("a.txt", "txt")
    assert probit("fit", "a.txt", "-o", "m.npz", "--force", "--quiet", "--starts", "1") == 0
    assert capsys.readouterr() == ("", "")
    assert CorrelatedProbit.load("m.npz").items_ == tuple(sorted(NAMES))


def test_an_item_that_always_wins_is_warned_of_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.txt").write_text("a>b>c\na>c>b\n" * 20)
    assert probit("fit", "a.txt", "--starts", "1") == 0
    _, err = capsys.readouterr()
    assert err.startswith("warning: always first: a")
    assert err.count("\n") == 1


def test_a_million_rows_are_read_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    users, items = np.divmod(np.arange(1_000_000), 4)
    table = np.column_stack([users, items, rng.integers(1, 100, 1_000_000)])
    import pyarrow as pa
    import pyarrow.csv

    pyarrow.csv.write_csv(pa.table(dict(zip(("user", "item", "rating"), table.T, strict=True))), "big.csv")
    done = subprocess.run(
        [sys.executable, "-m", "assay", "probit", "fit", "big.csv", "--starts", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["users"] == 250_000
