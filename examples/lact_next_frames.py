"""Give a video model's attention layer a memory: unchanged at first, then every frame reaches all later ones."""

from __future__ import annotations

import torch

from assay.lact.video import InterleavedVideoLaCT, add_noise, interleaved, moving_shapes, video_rope_tables

CHUNKS, FRAMES, SIZE = 4, 2, 8


def main() -> None:
    torch.manual_seed(0)
    chance = torch.Generator().manual_seed(0)
    video = moving_shapes(1, CHUNKS * FRAMES, size=SIZE, generator=chance)
    patches = video.unfold(3, 4, 4).unfold(4, 4, 4).permute(0, 1, 3, 4, 5, 6, 2).flatten(4).flatten(2, 3)
    clean = patches.unflatten(1, (CHUNKS, FRAMES)).flatten(2, 3)
    noisy, _ = add_noise(clean, torch.randn(clean.shape, generator=chance), torch.tensor(0.5))
    sequence = interleaved(noisy[:, :, None], clean)
    chunk = clean.shape[2]
    print(f"noise 1, clean 1, noise 2, ...: {sequence.shape[1]} tokens for {CHUNKS} chunks of {chunk}")

    frames = torch.arange(CHUNKS * FRAMES).view(CHUNKS, 1, FRAMES).expand(-1, 2, -1).flatten()[:-FRAMES]
    rope = video_rope_tables(frames, 2, 2, sequence.shape[2] // 4)
    host = InterleavedVideoLaCT(sequence.shape[2], 4, memory=False)
    layer = InterleavedVideoLaCT(sequence.shape[2], 4)
    layer.load_state_dict(host.state_dict(), strict=False)
    before = host(sequence, rope, chunks=CHUNKS, chunk_size=chunk)
    same = torch.equal(layer(sequence, rope, chunks=CHUNKS, chunk_size=chunk), before)
    print(f"a fresh memory leaves the host's outputs as they are: {same}")

    with torch.no_grad():
        layer.gate.bias.fill_(1.0)
    sequence.requires_grad_(True)
    for name, one in (("attention within the window", host), ("with the memory", layer)):
        last = one(sequence, rope, chunks=CHUNKS, chunk_size=chunk)[:, -chunk:]
        (reach,) = torch.autograd.grad(last.square().sum(), sequence)
        clean_chunks = [reach[:, (2 * number + 1) * chunk : (2 * number + 2) * chunk] for number in range(CHUNKS - 1)]
        seen = [str(number + 1) for number, part in enumerate(clean_chunks) if bool((part != 0).any())]
        print(f"{name}, the last noisy chunk sees the clean chunks {', '.join(seen)}")


if __name__ == "__main__":
    main()
