"""Find the spelling variants in a list of words: a tree under edit distance, cut where words differ too much.

Strings have no coordinates, so the usual fast methods don't apply, and a matrix of all distances of a long list doesn't
fit into memory. `MetricMST` needs few of these distances, and says how far from the minimum its tree can be.
"""

from __future__ import annotations

import random
from collections import defaultdict

from assay.mst import MetricMST

PLACES = ["Alexandria", "Birmingham", "Constantinople", "Dubrovnik", "Edinburgh", "Florence", "Göttingen", "Heraklion"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def misspelt(word: str, *, rng: random.Random) -> str:
    """The word with one letter changed, left out or doubled, but never the first."""
    place = rng.randrange(1, len(word))
    replacement = rng.choice(["", 2 * word[place], rng.choice(LETTERS)])
    return word[:place] + replacement + word[place + 1 :]


def main() -> None:
    rng = random.Random(0)
    typed = {misspelt(misspelt(rng.choice(PLACES), rng=rng), rng=rng) for _ in range(4000)}
    words = sorted(typed | set(PLACES))

    tree = MetricMST(metric="levenshtein", algorithm="mfc", random_state=0, progress=False).fit(words)
    calls, pairs = sum(tree.n_distance_calls_.values()), len(words) * (len(words) - 1) // 2
    print(f"{len(words)} words, tree of {tree.total_weight_:.0f} edits from {calls / pairs:.0%} of all distances")
    print(f"at most {tree.mst_ratio_upper_:.3f} times the minimum (99 % confidence)")

    groups = defaultdict(set)
    for word, label in zip(words, tree.cut(height=2), strict=True):
        groups[label].add(word)
    for spellings in sorted(groups.values(), key=len, reverse=True):
        right = [word for word in PLACES if word in spellings]
        print(f"{len(spellings):4d} spellings of {', '.join(right)}, such as {', '.join(sorted(spellings)[:3])}")


if __name__ == "__main__":
    main()
