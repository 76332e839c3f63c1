"""The commands, end to end: what they read, write and print, and how they refuse what is wrong."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from assay.cli import run
from assay.probit import ChoiceData, CorrelatedProbit, read_choices
from assay.probit.choice_files import choice_text
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
    ("quoted.csv", 'user,item,rating\nu,"a\nb",3\nu,c,x\n'): "row 4, column rating: 'x' is not a number",
    ("blank.csv", "user,item,rating\nu,a,1\n\nu,b,x\n"): "row 4, column rating: 'x' is not a number",
    ("brace.toc", "# ALTERNATIVE NAME 1: a\n2: 1,{2,3\n"): "row 2: ' 1,{2,3' has a brace without its other",
    ("digit.soc", "²: 1,2,3\n"): "row 1: '²: 1,2,3' is no order",
    ("digit.order", "3 1\n0 ² 1\n"): "row 2: '0 ² 1' is no order",
    (
        "place.jsonl",
        '{"completions": ["a", "b", "c"], "ranking": [0, 1, 2]}\n\n{"completions": ["a", "b"], "ranking": [2]}',
    ): ("row 3: the ranking holds 2; expected positions from 0 to 1"),
    ("word.jsonl", '{"completions": ["a", "b", "c"], "ratings": [1, "x", 2]}'): "row 1: the rating 'x' is no finite",
    (
        "inf.jsonl",
        '{"completions": ["a", "b", "c"], "ratings": [1, Infinity, 2]}',
    ): "row 1: the rating inf is no finite",
    ("text.jsonl", '{"completions": "abc", "ratings": [1, 2, 3]}'): "row 1: 'completions' is a str",
    ("same.jsonl", '{"completions": ["a", "b", "a"], "ratings": [1, 2, 3]}'): "row 1: the ranking holds 'a' twice",
    (
        "user.jsonl",
        '{"completions": ["a", "b", "c"], "ratings": [1, 2, 3], "user": ["u"]}',
    ): "row 1: the user is a list",
    ("some.jsonl", '{"chosen": "a", "rejected": "b", "user": "u"}\n{"chosen": "a", "rejected": "c"}'): (
        "row 2: has no user, and others have"
    ),
    ("half.jsonl", '{"chosen": "a", "rejected": "b"}\n\n{"chosen": "a"}'): "row 3: has no 'rejected'",
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
    ("fit", "a.txt", "--rank", "9"): "assay: --rank is 9; expected at most 3 for 4 items",
    ("fit", "a.txt", "--rank", "2.5"): "--rank 2.5; expected auto, full",
    ("fit", "a.txt", "--rank", "²"): "--rank ²; expected auto, full",
    ("fit", "a.txt", "--starts", "0"): "assay: --starts is 0; expected at least 1",
    ("fit", "a.txt", "--starts", "2.5"): "--starts is '2.5'; expected an integer",
    ("fit", "a.txt", "--jobs", "1e1"): "--jobs is '1e1'; expected an integer",
    ("fit", "a.txt", "--jobs", "0"): "assay: --jobs is 0",
    ("fit", "a.txt", "--seed", "-1"): "assay: --seed is -1; expected a whole number from 0",
    ("fit", "a.txt", "--max-triples", "0"): "assay: --max-triples is 0",
    ("fit", "a.txt", "--max-triples", "2.5"): "--max-triples is '2.5'",
    ("fit", "a.txt", "--estimator", "moments", "--exact"): "--exact is given, and --estimator is 'moments'",
    ("fit", "a.txt", "--rank", "0", "--exact"): "--exact is given, and --rank is 0",
    ("fit", "a.txt", "--estimator", "moments", "--rank", "1"): "expected --rank full and no features",
    ("fit", "a.txt", "--ridge", "inf"): "assay: --ridge is inf",
    ("fit", "a.txt", "--user", "who"): "assay: --user is 'who', and txt is no table",
    ("fit", "a.txt", "--values", "rank"): "assay: --values is 'rank', and txt is no table",
    ("fit", "a.txt", "-o", ""): "the file's name is empty",
    ("fit", "a.txt", "-o", "."): "is a folder",
    ("fit", "a.txt", "-o", "-"): "unknown ending",
    ("fit", ""): "the file's name is empty",
    ("fit", "."): "is a folder",
    ("fit", "a.txt", "-o", "m.json"): "unknown ending",
    ("fit", "a.txt", "-o", "m.npz"): "exists already; expected another name, or --force",
    ("fit", "a.txt", "-o", "nowhere/m2.npz"): "doesn't exist",
    ("fit", "a.txt", "--ridge", "-1"): "assay: --ridge is -1",
    ("fit", "a.txt", "--format", "xls"): "unknown format 'xls'",
    ("fit", "long.csv", "--user", "nobody"): "no column 'nobody'",
    ("predict", "a.txt"): "unknown ending",
    ("predict", "m.npz", "--given", "a>b", "--given", "b>a", "--pairs", "c>d"): "contradict each other",
    ("predict", "m.npz", "--given", "a>x"): "unknown item 'x'",
    ("predict", "m.npz", "--pairs", "a>a"): "--pairs 'a>a' holds an item twice",
    ("predict", "m.npz", "--pairs", "a~b"): "--pairs 'a~b' prefers nothing",
    ("predict", "m.npz", "--given", "a"): "--given 'a' prefers nothing; expected an item above another",
    ("predict", "m.npz", "--given", ""): "'' has an empty item",
    ("predict", "m.npz", "--given", "a>b", "--method", "exact"): "--method is 'exact' without --pairs",
    ("predict", "m.npz", "-o", ""): "the file's name is empty",
    ("predict", "m.npz", "-o", "."): "is a folder",
    ("predict", "m.npz", "--given", "a>b", "--json", "-o", "-"): "both write to standard output",
    ("slate", "m.npz", "-k", "9"): "assay: -k is 9; expected 1 to 4 items",
    ("slate", "m.npz", "-k", "2.7"): "-k is '2.7'; expected an integer",
    ("slate", "m.npz", "-k", "2", "--seed", "-1"): "assay: --seed is -1",
    ("design", "2", "--budget", "3"): "assay: ITEMS is 2; expected at least 3 items",
    ("design", "6.5", "--budget", "3"): "'6.5'; expected an integer",
    ("design", "6", "--budget", "2e1"): "--budget is '2e1'; expected an integer",
    ("design", "6", "--budget", "0"): "assay: --budget is 0",
    ("design", "6", "--budget", "3", "--seed", "-1"): "assay: --seed is -1",
    ("design", "9", "--budget", "3", "--model", "m.npz"): "the model has 4 items",
    ("sample-size", "m.npz", "--eps", "0"): "assay: --eps is 0",
    ("sample-size", "m.npz", "--eps", "inf"): "assay: --eps is inf",
    ("sample-size", "m.npz", "--eps", "1e-300"): "assay: --eps is 1e-300",
    ("simulate", "m.npz", "0"): "assay: PEOPLE is 0",
    ("simulate", "m.npz", "5.5"): "'5.5'; expected an integer",
    ("simulate", "m.npz", "5", "--seed", "-3"): "assay: --seed is -3",
    ("simulate", "m.npz", "5", "-o", ""): "the file's name is empty",
    ("simulate", "m.npz", "5", "-o", "x.csv"): "unknown ending",
    ("plot", "map", "m.npz", "-o", "p.gif"): "unknown ending",
    ("plot", "map", "m.npz", "-o", "-"): "unknown ending",
    ("plot", "map", "m.npz", "-o", ""): "the file's name is empty",
    ("plot", "map", "m.npz", "-o", "p.png", "--centered"): "--centered is given, and map",
    ("plot", "map", "m.npz", "-o", "p.png", "--user", "x"): "map reads no choices",
    ("plot", "pairs", "a.txt", "-o", "p.png", "--data", "a.txt"): "--data is 'a.txt', and pairs takes none",
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


def test_rows_of_a_parquet_table_are_counted_from_its_first(capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"user": ["u"] * 3, "item": list("abc"), "rating": ["1", "x", "2"]}), "a.parquet")
    assert "a.parquet, row 2, column rating: 'x' is not a number" in refusal_of(capsys, "fit", "a.parquet")


def test_orders_are_predicted_by_the_method_that_is_asked_for(
    model: CorrelatedProbit, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in ("exact", "laplace", "gibbs"):
        options = ["--given", "b>d", "--pairs", "d>a>c", "--method", method]
        (row,) = summary_of(capsys, "predict", "m.npz", *options)["predictions"]
        assert row["probability"] == model.prob("d>a>c", given="b>d", method=method)


@pytest.mark.parametrize("size", ["3", "4"])
def test_names_that_separate_items_are_not_written_as_text(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    CorrelatedProbit.from_parameters(MU, COVARIANCE, items=["x>y", "b", "c", "d"]).save("m.npz")
    assert "'x>y' can't be written as text" in refusal_of(capsys, "simulate", "m.npz", "9", "--size", size)


def test_names_with_commas_are_one_item(capsys: pytest.CaptureFixture[str]) -> None:
    CorrelatedProbit.from_parameters(MU, COVARIANCE, items=["x, y", "b", "c", "d"]).save("m.npz")
    options = ["--given", "x, y>b", "--pairs", "c>x, y", "--pairs", "x, y>c>d"]
    found = summary_of(capsys, "predict", "m.npz", *options)["predictions"]
    assert [row["order"] for row in found] == ["c>x, y", "x, y>c>d"]
    assert found[0]["probability"] == CorrelatedProbit.load("m.npz").prob(["c", "x, y"], given=[["x, y", "b"]])


@pytest.mark.parametrize("name", ["m2.npz", "s.csv", "s.txt", "p.png"])
def test_a_full_disk_leaves_nothing_and_is_told_in_one_line(
    name: str, model: CorrelatedProbit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import os

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    write("a.txt", "txt")
    monkeypatch.setattr(os, "fsync", full)
    arguments = {
        "m2.npz": ["fit", "a.txt", "--starts", "1"],
        "s.csv": ["slate", "m.npz", "-k", "2"],
        "s.txt": ["simulate", "m.npz", "9"],
        "p.png": ["plot", "map", "m.npz"],
    }[name]
    assert probit(*arguments, "-o", name) == 1
    assert capsys.readouterr() == ("", f"assay: {name}: no space left on the disk; nothing was written\n")
    assert sorted(path.name for path in Path().iterdir()) == ["a.txt", "m.npz"]


@pytest.mark.parametrize("verb", ["fit", "predict", "design", "simulate"])
def test_an_interrupt_says_that_nothing_was_written(
    verb: str, model: CorrelatedProbit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    write("a.txt", "txt")
    what, arguments = {
        "fit": ("model.CorrelatedProbit.fit", ["a.txt", "-o", "m2.npz"]),
        "predict": ("model.CorrelatedProbit.posterior", ["m.npz", "-o", "p.csv"]),
        "design": ("information.design", ["5", "--budget", "9", "-o", "q.csv"]),
        "simulate": ("model.CorrelatedProbit.simulate", ["m.npz", "9", "-o", "s.txt"]),
    }[verb]
    monkeypatch.setattr(f"assay.probit.{what}", stop)
    assert probit(verb, *arguments) == 130
    assert capsys.readouterr() == ("", "assay: stopped; nothing was written\n")
    assert sorted(path.name for path in Path().iterdir()) == ["a.txt", "m.npz"]


def test_a_fit_at_the_edge_of_the_model_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    # A best of three without rankings says little: here two items end up as one.
    truth = CorrelatedProbit.from_parameters(MU, COVARIANCE, items=list("abcd"))
    Path("a.txt").write_text("\n".join(choice_text(truth.simulate(60, kind="best", random_state=0))))
    assert probit("fit", "a.txt", "--starts", "1", "--seed", "0") == 0
    _, err = capsys.readouterr()
    assert "at the edge of the model" in err


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
    summary = summary_of(capsys, "fit", "big.csv", "--starts", "1")
    assert summary["users"] == 250_000
    assert sum(summary["events"].values()) > 900_000
