"""Edit requests from every format, and each fault with its place."""

from __future__ import annotations

import gzip
import json

import pytest

from assay.core.errors import InputError
from assay.edit.request_files import read_preserve, read_requests

COUNTERFACT = {
    "case_id": 7,
    "requested_rewrite": {
        "prompt": "The mother tongue of {} is",
        "subject": "Danielle Darrieux",
        "target_new": {"str": "English"},
        "target_true": {"str": "French"},
    },
    "paraphrase_prompts": ["Danielle Darrieux spoke", "Her language is"],
    "neighborhood_prompts": ["The mother tongue of Jean Gabin is"],
}
UNKE = {
    "id": 3,
    "question": "What is his job?",
    "para_question": "What does he do?",
    "answer": "He paints.",
    "sub_question": ["Does he paint?"],
    "sub_answer": ["yes"],
}
AKEW = {
    "requested_rewrite": {
        "prompt_full": "What is the job of Ann?",
        "subject": "Ann",
        "fact_new_uns": "Ann weaves linen in the north.",
        "target_true": {"str": "baker"},
        "unsfact_triplets_GPT": [{"prompt": "{} weaves", "subject": "Ann", "target": "linen"}] * 7,
    },
    "paraphrase_prompts": ["Ann works as", "other"],
}
MQUAKE = {"requested_rewrite": [{"question": q, "subject": "Ann", "fact_new_uns": "Long."} for q in ("Who?", "Where?")]}
ZSRE = {
    "src": "Who is it?",
    "rephrase": "Who could it be?",
    "alt": "Bo",
    "answers": ["Ann"],
    "loc": "nq question: where is the sea",
    "loc_ans": "there",
    "subject": "it",
}
EASYEDIT = {
    "prompt": "Who?",
    "target_new": "Ann",
    "ground_truth": ["Bo"],
    "rephrase_prompt": "Which one?",
    "subject": "who",
    "locality": {"neighborhood": {"prompt": ["Where?"], "ground_truth": ["Here"]}},
    "portability": {"one_hop": {"prompt": "Whose?", "ground_truth": "Cy's"}},
}


def read(tmp_path, records, name="facts.json"):
    file = tmp_path / name
    file.write_text(json.dumps(records), encoding="utf-8")
    return read_requests(file)


def test_every_benchmark_is_seen_by_its_fields(tmp_path):
    [one] = read(tmp_path, [COUNTERFACT])
    assert (one.question, one.answer) == ("The mother tongue of Danielle Darrieux is", "English")
    assert (one.ground_truth, one.subject, one.id) == ("French", "Danielle Darrieux", "7")
    assert one.paraphrases == ("Danielle Darrieux spoke", "Her language is")
    assert one.locality == (("The mother tongue of Jean Gabin is", "French"),)
    [one] = read(tmp_path, [UNKE])
    assert one.paraphrases == ("What does he do?",)
    assert one.sub_questions == (("Does he paint?", "yes"),)
    [one] = read(tmp_path, [AKEW])
    assert (one.question, one.answer) == ("What is the job of Ann?", "Ann weaves linen in the north.")
    assert one.paraphrases == ("Ann works as",)
    assert one.sub_questions == (("Ann weaves", "linen"),) * 5
    assert [one.question for one in read(tmp_path, [MQUAKE])] == ["Who?", "Where?"]
    [one] = read(tmp_path, [ZSRE])
    assert (one.answer, one.ground_truth, one.locality) == ("Bo", "Ann", (("where is the sea", "there"),))
    [one] = read(tmp_path, [EASYEDIT])
    assert (one.answer, one.ground_truth, one.paraphrases) == ("Ann", "Bo", ("Which one?",))
    assert one.locality == (("Where?", "Here"),)
    assert one.sub_questions == (("Whose?", "Cy's"),)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".jsonl", ".json"])
def test_tables_and_json_hold_the_same_requests(tmp_path, ending):
    file = tmp_path / f"the facts é{ending}"
    record = {"question": 'Who, "she"?', "answer": "Ann\tand\nBo", "paraphrase": "Which?", "ground_truth": "Cy"}
    if ending.startswith((".csv", ".tsv")):
        cut = "\t" if ending == ".tsv" else ","
        cells = ['"' + value.replace('"', '""') + '"' for value in record.values()]
        text = "\ufeff" + cut.join(record) + "\r\n" + cut.join(cells) + "\r\n"
    else:
        text = json.dumps(record) if ending == ".jsonl" else json.dumps([record])
    data = text.encode()
    file.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    [one] = read_requests(file)
    assert (one.question, one.paraphrases, one.ground_truth) == ('Who, "she"?', ("Which?",), "Cy")
    assert one.answer == "Ann\tand\nBo"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "question,answer\nWho?,\n", r"row 2, column answer: the answer is empty"),
        ("a.csv", "question,reply\nWho?,Ann\n", r"row 1: has no column 'answer'"),
        ("a.csv", "question,answer\nWho?,Ann,more\n", r"row 2: has 3 cells; expected 2"),
        ("a.csv", "question,answer\n", r"holds no record"),
        ("a.json", '[{"question": "Who?"}]', r"row 1, column answer: the field is missing"),
        ("a.json", '[{"question": 3, "answer": "x"}]', r"row 1, column question: the question is 3"),
        ("a.json", '[{"text": "Who?"}]', r"row 1: is of no known format: it has text"),
        ("a.json", '[{"question": ', r"row 1, column \d+: damaged JSON"),
        ("a.json", "[3]", r"row 1: is a int"),
        ("a.json", "question", r"begins with neither"),
        ("a.jsonl", '{"question": "Who?", "answer": "a"}\n{bad}\n', r"row 2, column 2: damaged JSON"),
        ("a.csv", "question,answer\nWho?,Ann\nWho?,Bo\n", r"rows 2 and 3 give 'Who\?' two answers: 'Ann' and 'Bo'"),
        ("a.xlsx", "x", r"unknown ending '\.xlsx'"),
        ("a.csv", "", r"the file is empty"),
    ],
)
def test_each_fault_is_named_with_its_place(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        read_requests(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_of_two_answers_the_last_wins_where_that_is_asked(tmp_path):
    (tmp_path / "a.csv").write_text("question,answer\nWho?,Ann\nWho?,Bo\n")
    assert [one.answer for one in read_requests(tmp_path / "a.csv", last_wins=True)] == ["Bo"]


def test_texts_to_preserve_are_alpaca_records_or_lines(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"instruction": "Add", "input": "1 2", "output": "3"}]))
    assert read_preserve(tmp_path / "a.json") == [("Add\n1 2", "3")]
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert read_preserve(tmp_path / "a.txt") == ["one", "two"]
    (tmp_path / "b.json").write_text(json.dumps([{"instruction": "Add"}]))
    with pytest.raises(InputError, match="row 1, column output: the field is missing"):
        read_preserve(tmp_path / "b.json")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("f.csv", 'question,answer\nWho?,"Ann\nBo?,x\n', "row 2: damaged: unexpected end of data"),
        ("f.csv", "question,answer,answer\nWho?,Ann,Bo\n", "row 1: has 2 columns 'answer'"),
        ("f.csv", "[1],answer\n", "row 1: has no column 'question'"),
        ("f.json", '[{"question": "Who?", "answer": ' + "9" * 5000 + "}]", "a number too long or records too deep"),
        ("f.json", "[" * 100_000, "a number too long or records too deep"),
        ("f.json", '[{"question": "Who?",\n "answer": "Ann"', "row 2, column [0-9]+: damaged JSON"),
        ("f.json", '[{"requested_rewrite": "x"}]', "row 1, column requested_rewrite: is a str; expected a record"),
        ("f.json", '[{"prompt": "Who?", "target_new": "Bo", "locality": [1]}]', "column locality: is a list"),
        ("f.json", '[{"prompt": "Who?", "target_new": "Bo", "portability": {"x": "y"}}]', "portability: is a str"),
        (
            "f.jsonl",
            '{"question": "Who?", "answer": "Ann"}\n{"question": "Where?"',
            "row 2, column [0-9]+: damaged JSON",
        ),
        ("f.jsonl", '{"question": "Who?", "answer": "\\ud800"}', "row 1: '\\\\ud800' holds half a surrogate pair"),
        ("f.jsonl", '{"question": "Who?", "answer": NaN}', "the answer is nan"),
        (
            "f.json",
            '[{"requested_rewrite": {"prompt_full": "Who?", "fact_new_uns": "Bo", "unsfact_triplets_GPT": [{}]}}]',
            "row 1, column prompt: the field is missing",
        ),
    ],
    ids=range(13),
)
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path, name, text, message):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_requests(file)


def test_one_record_over_several_lines_and_cells_over_several_lines_are_read(tmp_path):
    file = tmp_path / "one.json"
    file.write_text(json.dumps(UNKE, indent=2))
    assert read_requests(file)[0].question == "What is his job?"
    folder = tmp_path / "not.tsv.json"
    folder.mkdir()
    file = folder / "table.csv"
    long = "word " * 40_000
    file.write_bytes(f'\ufeffquestion,answer\r\n"Who\r\nwrote ""it""?",{long}\r\nWhere?,"In, there"\r\n'.encode())
    first, second = read_requests(file)
    assert (first.question, first.answer) == ('Who\nwrote "it"?', long)
    assert second.answer == "In, there"


def test_pairs_stay_side_by_side_where_one_is_empty(tmp_path):
    [one] = read(
        tmp_path, [{**UNKE, "sub_question": ["Does he paint?", "Where?", "When?"], "sub_answer": ["", "Here"]}]
    )
    assert one.sub_questions == (("Where?", "Here"),)
    given = {"a": {"prompt": ["Where?", "Who?"], "ground_truth": [["Here", "There"], "Cy"]}}
    [one] = read(
        tmp_path,
        [{**EASYEDIT, "locality": given, "portability": {"b": {"prompt": "Whose?", "ground_truth": ["x", "y"]}}}],
    )
    assert one.locality == (("Where?", "Here"), ("Who?", "Cy"))
    assert one.sub_questions == (("Whose?", "x"),)


def test_questions_from_either_side_of_an_edit_are_read(tmp_path):
    sides = {
        "source_question": "Who is the other?",
        "source_answer": "Ann",
        "target_question": ["Whose?"],
        "target_answer": ["his"],
    }
    [one] = read(tmp_path, [{"question": "Who?", "answer": "Ann", **sides}])
    assert one.source_questions == (("Who is the other?", "Ann"),)
    assert one.target_questions == (("Whose?", "his"),)
