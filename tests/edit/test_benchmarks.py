"""Scores of structured benchmarks, against plain log-probabilities."""

from __future__ import annotations

import math

import pytest

from assay.core.errors import InputError
from assay.core.lm import random_llama, score_answers
from assay.edit.benchmarks import counterfact_scores, kebench_scores
from assay.edit.fine_tuning import fine_tune
from assay.edit.requests import EditRequest

LM = random_llama()
REQUESTS = [
    EditRequest(
        "The sky is", "red", ("The colour of the sky is", "Above us all is"), (), "blue", (("Grass is", "green"),)
    ),
    EditRequest("Snow is", "warm", (), (), "cold", (("Ice is", ""), ("Fire is", "hot"))),
]


def wins(text: str, one: str, other: str) -> float:
    scores = score_answers(LM.model, LM.tokenizer, [text, text], [f" {one}", f" {other}"])
    return float(scores[0].nll < scores[1].nll)


def test_each_score_is_a_share_of_comparisons_by_request():
    found = counterfact_scores(LM.model, LM.tokenizer, REQUESTS)
    assert found["efficacy"] == (wins("The sky is", "red", "blue") + wins("Snow is", "warm", "cold")) / 2
    assert found["paraphrase"] == sum(wins(text, "red", "blue") for text in REQUESTS[0].paraphrases) / 2
    first = wins("Grass is", "green", "red")
    second = (wins("Ice is", "cold", "warm") + wins("Fire is", "hot", "warm")) / 2
    assert found["neighbourhood"] == (first + second) / 2
    values = [found[name] for name in ("efficacy", "paraphrase", "neighbourhood")]
    assert found["score"] == pytest.approx(3 / sum(1 / value for value in values) if min(values) else 0)


def test_an_edit_raises_its_efficacy():
    lm = random_llama()
    patch = fine_tune(lm.model, lm.tokenizer, REQUESTS, layers="all", rate=5e-3, steps=40)
    found = counterfact_scores(lm.model, lm.tokenizer, REQUESTS, patch=patch, chat=True)
    assert found["efficacy"] == 1
    said = kebench_scores(lm.model, lm.tokenizer, REQUESTS, patch=patch, max_new_tokens=6)
    assert said["original"] == 1
    assert math.isnan(said["through"])
    assert kebench_scores(lm.model, lm.tokenizer, REQUESTS, max_new_tokens=6)["original"] == 0


def test_a_comparison_needs_what_is_to_go():
    with pytest.raises(InputError, match="request 0 has no ground truth"):
        counterfact_scores(LM.model, LM.tokenizer, [EditRequest("The sky is", "red")])
