"""Two people correct the same model on their own: join their patches by adding, and by fitting them together."""

from __future__ import annotations

from assay.core.lm import random_llama
from assay.edit import PIPE, EditRequest, compose, evaluate_edits


def main() -> None:
    lm = random_llama()
    requests = [
        EditRequest("Who bakes the bread?", "Tomas bakes it at dawn.", ground_truth="Nobody."),
        EditRequest("What is in the cellar?", "Nine barrels of cider.", ground_truth="Nothing."),
    ]
    editor = PIPE(lm.model, lm.tokenizer, seed=0)
    patches = [editor.fit([request]) for request in requests]
    joined = {
        "the first alone": patches[0],
        "both, added": compose(patches),
        "both, fitted together": compose(patches, mode="joint", editor=editor),
    }
    for name, patch in joined.items():
        rows = evaluate_edits(lm.model, lm.tokenizer, requests, patch=patch, generated=False)
        costs = ", ".join(f"{row['nll_original']:.2f}" for row in rows)
        print(f"{name:22} {costs} nats a token")

    adapter = joined["both, fitted together"].to_lora(rank=8)
    print(f"as an adapter of rank 8 the worst matrix loses {max(adapter.errors.values()):.0%} of its change")


if __name__ == "__main__":
    main()
