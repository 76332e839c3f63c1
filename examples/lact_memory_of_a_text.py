"""Read a text once into a file of constant size, and go on from it in another session as if the text stood before."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import torch

from assay.core.texts import ByteTokens, standard_library
from assay.lact import LaCTConfig, LaCTForCausalLM, LaCTState
from assay.lact.text_training import TextRows, TrainingPlan, train_on_text


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = standard_library(60_000)
    config = LaCTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_fast_heads=2,
        window=64,
        chunk_size=64,
        rule="gd",
        init_rank=None,
    )
    model = LaCTForCausalLM(config)
    history = train_on_text(model, TextRows([text], ByteTokens(), context=128), TrainingPlan(20, batch=4, lr=5e-3))
    loss, guess = history[-1]["validation_loss"], math.log(256)
    print(f"trained for {len(history)} steps: {loss:.2f} nats a byte, where a guess has {guess:.2f}")

    numbers = torch.tensor([list(text.encode()[:6000])])
    document, continuation = numbers[:, :5000], numbers[:, 5000:]
    with tempfile.TemporaryDirectory() as place:
        with model.stream() as reader:
            for piece in document.split(700, dim=1):
                reader.feed(piece)
            file = reader.state().save(Path(place) / "document.safetensors")
        with model.stream(LaCTState.load(file, config=model.state_config)) as reader:
            remembered = reader.loss(continuation)[0, 1:]
            state = reader.state()
    with torch.no_grad():
        logits = model(numbers).logits[:, :-1]
    whole = torch.nn.functional.cross_entropy(logits.mT, numbers[:, 1:], reduction="none")[0, 5000:]
    print(f"with the file as with the text itself: {bool(torch.allclose(remembered, whole, atol=1e-4))}")
    cache = 2 * 2 * 32 * 4
    print(
        f"the file holds {state.nbytes:,} bytes at any length; keys and values of full attention, {cache} a byte read"
    )


if __name__ == "__main__":
    main()
