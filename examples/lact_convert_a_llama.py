"""Give a Llama a memory beside its attention: unchanged at first, then trained with the rest frozen."""

from __future__ import annotations

import torch

from assay.core.lm import random_llama
from assay.lact import branch_parameters, convert_attention_to_lact, freeze_host, parameter_groups
from assay.lact.fast_branch import MixerSettings


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = random_llama().model
    tokens = torch.randint(300, (4, 96))
    before = model(tokens).logits

    settings = MixerSettings(num_fast_heads=4, chunk_size=32, window=32, init_rank=None, base_lr=0.01)
    convert_attention_to_lact(model, settings=settings, layers=[1, 3])
    new = sum(parameter.numel() for parameter in branch_parameters(model))
    print(f"{new:,} new parameters; the answers are the same bit by bit: {torch.equal(model(tokens).logits, before)}")

    freeze_host(model)
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=1e-3))
    losses = []
    for _ in range(8):
        loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"trained alone, the memory lowers the loss of these rows: {losses[-1] < losses[0]}")

    prompt, asked = tokens[:1, :40], {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    same = torch.equal(model.generate(prompt, **asked), model.generate(prompt, use_cache=False, **asked))
    print(f"generate keeps the memory's state with the model's own cache: {same}")


if __name__ == "__main__":
    main()
