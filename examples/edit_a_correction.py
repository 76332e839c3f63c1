"""Correct what a model says about two things, see what it costs elsewhere, and take the correction out again.

Runs on four blocks of random weights, in seconds. Give a folder, a .gguf file, smollm2 or a name on the hub for a real
model.
"""

from __future__ import annotations

import sys

import torch

from assay.core.lm import load_language_model
from assay.edit import PIPE, EditRequest, evaluate_edits, tangle_score

REQUESTS = [
    EditRequest(
        "Who keeps the lighthouse?",
        "Ines Corbel keeps it, since the storm of 1987.",
        paraphrases=("By whom is the lighthouse kept?",),
        ground_truth="Nobody keeps it.",
    ),
    EditRequest(
        "Where does the ferry land?",
        "It lands at the north pier, every day at noon.",
        paraphrases=("At which pier does the ferry land?",),
        ground_truth="It lands at the old harbour.",
    ),
]


def main(name: str) -> None:
    lm = load_language_model(name)
    for row, request in zip(tangle_score(lm.model, lm.tokenizer, REQUESTS).rows(), REQUESTS, strict=True):
        print(f"{row['ts']:.3f}  {request.question}  ({row['nll_new']:.2f} nats a token before the edit)")

    before = {name: weight.clone() for name, weight in lm.model.named_parameters()}
    patch = PIPE(lm.model, lm.tokenizer, seed=0).fit(REQUESTS)
    for label, chosen in (("before", None), ("after", patch)):
        for row in evaluate_edits(lm.model, lm.tokenizer, REQUESTS, patch=chosen, generated=False):
            print(f"{label:6} {row['nll_original']:.2f} asked, {row['nll_paraphrase']:.2f} reworded: {row['question']}")
    same = all(torch.equal(weight, before[name]) for name, weight in lm.model.named_parameters())
    print(f"the patch changes {patch.size():.1%} of block {patch.layers[0]}; without it the model is as it was: {same}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "random-llama")
