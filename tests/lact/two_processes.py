"""What each of two processes does in test_parallel: everything divided, compared with one process alone."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import Tensor

from assay.core.errors import InputError
from assay.lact.fast_weights import FastWeights, has_momentum
from assay.lact.functional import lact
from assay.lact.parallel import (
    context_parallel_lact,
    gather_chunks,
    head_parallel_lact,
    heads_to_tokens,
    shard_chunks,
    tokens_to_heads,
)
from tests.lact.problems import RULES, Problem, betas, problem

CHUNK, LENGTH, HEADS = 8, 28, 2


def main(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    p = problem(LENGTH)
    for rule in RULES:
        for mode in ("shifted", "block", "full"):
            say(f"context-{rule}-{mode}", context(p, rule=rule, mode=mode))
        say(f"heads-{rule}", heads(p, rule=rule))
    say("exchange", exchange())
    try:
        context_parallel_lact(*p.tokens(slice(rank, 4)), chunk_size=CHUNK)
    except InputError as error:
        say("refused", 0.0 if "hold [4, 3] tokens" in str(error) else 1.0)
    dist.destroy_process_group()


def say(name: str, error: float) -> None:
    if dist.get_rank() == 0:
        print(name, "ok" if error <= 1e-10 else f"{error:.3g}")


def context(p: Problem, *, rule: str, mode: str) -> float:
    """The largest difference of answers and of gradients."""
    beta = betas(rule, p)
    whole = [one.clone().requires_grad_() for one in (*p[:4], *p.w_init)]
    given = {"rule": rule, "mode": mode, "chunk_size": CHUNK}
    expected = lact(*whole[:4], FastWeights(*whole[4:]), momentum=beta, **given)
    wanted = torch.autograd.grad(expected.square().sum(), whole)

    def mine(one: Tensor) -> Tensor:
        return shard_chunks(one, chunk_size=CHUNK)

    leaves = [mine(one).clone().requires_grad_() for one in p[:4]]
    leaves += [one.clone().requires_grad_() for one in p.w_init]
    momentum = None if beta is None else mine(beta)
    found = context_parallel_lact(*leaves[:4], FastWeights(*leaves[4:]), momentum=momentum, **given)
    gradients = list(torch.autograd.grad(found.square().sum(), leaves))
    for gradient in gradients[4:]:
        dist.all_reduce(gradient)
    pairs = [(gather_chunks(found, chunk_size=CHUNK), expected)]
    pairs += [(gather_chunks(one, chunk_size=CHUNK), other) for one, other in zip(gradients[:4], wanted, strict=False)]
    pairs += list(zip(gradients[4:], wanted[4:], strict=True))
    return max(float((ours - theirs).abs().max()) for ours, theirs in pairs)


def heads(p: Problem, *, rule: str) -> float:
    """One sequence of two heads; each process holds half of the tokens, and computes one head."""
    rank = dist.get_rank()
    beta = betas(rule, p)
    expected = lact(*p, rule=rule, momentum=beta, chunk_size=CHUNK)
    tokens = slice(rank * LENGTH // 2, (rank + 1) * LENGTH // 2)
    mine = [one.transpose(0, 1)[None, tokens].clone().requires_grad_() for one in p[:4]]
    found = head_parallel_lact(
        *mine,
        p.w_init.map(lambda matrix: matrix[rank : rank + 1]),
        rule=rule,
        momentum=beta.T[None, tokens] if has_momentum(rule) else None,
        chunk_size=CHUNK,
    )
    wanted = expected.transpose(0, 1)[None, tokens]
    whole = [one.clone().requires_grad_() for one in p[:4]]
    loss = lact(*whole, p.w_init, rule=rule, momentum=beta, chunk_size=CHUNK).square().sum()
    theirs = torch.autograd.grad(loss, whole)
    ours = torch.autograd.grad(found.square().sum(), mine)
    errors = [float((found - wanted).detach().abs().max())]
    errors += [
        float((one - other.transpose(0, 1)[None, tokens]).abs().max()) for one, other in zip(ours, theirs, strict=True)
    ]
    worst = torch.tensor(max(errors))
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return float(worst)


def exchange() -> float:
    x = torch.randn(3, 5, 4, 2, generator=torch.Generator().manual_seed(dist.get_rank()))
    return float((heads_to_tokens(tokens_to_heads(x)) - x).abs().max())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
