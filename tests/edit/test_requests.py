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
