"""Independent, slow ways to the same numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from assay.tooluse.matchers import Matcher
from assay.tooluse.trajectories import Call


def best_weight_by_permutations(predicted: Sequence[Call], reference: Sequence[Call], matcher: Matcher) -> float:
    """The heaviest one-to-one pairing among those that pair most calls, by trying all of them."""
    short, long, swapped = (
        (predicted, reference, False) if len(predicted) <= len(reference) else (reference, predicted, True)
    )
    best = (0, 0.0)
    for chosen in itertools.permutations(range(len(long)), len(short)):
        total, count = 0.0, 0
        for a, b in enumerate(chosen):
            p, g = (b, a) if swapped else (a, b)
            if predicted[p].name != reference[g].name:
                continue
            got, want = predicted[p].args, reference[g].args
            share = sum(k in got and matcher.equal("", k, got[k], want[k]) for k in want) / len(want) if want else 1.0
            count += 1
            total += 1e4 * matcher.args_equal("", got, want) + share - 1e-6 * abs(p - g)
        best = max(best, (count, total))
    return best[1]


def rename(value: Any, names: dict[str, str]) -> Any:
    """Calls with other tool names."""
    from dataclasses import replace

    return [replace(call, name=names[call.name]) for call in value]
