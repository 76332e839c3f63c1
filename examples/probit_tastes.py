"""Find out which dishes are liked by the same people, what pairs would have hidden, and what to put on a small menu.

Guests rank three dishes each. Two tastes are hidden in the data: for meat, and for sweet things.
"""

from __future__ import annotations

import numpy as np

from assay.probit import ChoiceData, CorrelatedProbit, identifiability

DISHES = ("steak", "burger", "salad", "tofu", "cake", "sorbet")
MEAT = np.array([1.4, 1.2, -1.0, -1.4, 0.0, 0.0])
SWEET = np.array([0.0, 0.0, -0.3, -0.3, 1.5, 1.3])


def answers(guests: int, *, rng: np.random.Generator) -> ChoiceData:
    """Each guest ranks three dishes that they are shown."""
    tastes = rng.standard_normal((guests, 2))
    liking = tastes @ np.vstack([MEAT, SWEET]) + 0.2 * np.arange(6) + 0.8 * rng.standard_normal((guests, 6))
    shown = np.argsort(rng.random((guests, 6)), axis=1)[:, :3]
    order = np.argsort(-np.take_along_axis(liking, shown, axis=1), axis=1)
    return ChoiceData.from_rankings(np.array(DISHES)[np.take_along_axis(shown, order, axis=1)])


def main() -> None:
    data = answers(6000, rng=np.random.default_rng(0))
    model = CorrelatedProbit(random_state=0).fit(data)
    for item, mean, error in zip(model.items_, model.mu_, model.stderr_.mu, strict=True):
        print(f"{item:7} {mean:+.2f} ± {error:.2f}")

    together = model.correlation()
    steak, burger, tofu = (model.position(item) for item in ("steak", "burger", "tofu"))
    print(f"steak and burger: {together[steak, burger]:+.2f}; steak and tofu: {together[steak, tofu]:+.2f}")
    print(f"burger over salad: {model.prob('burger>salad'):.2f}")
    print(f"the same for guests who prefer tofu to steak: {model.prob('burger>salad', given='tofu>steak'):.2f}")

    slate = model.slate(3)
    print(f"a menu of three: {', '.join(slate.items)}; the best liked: {', '.join(slate.top)}; gain {slate.gain:.2f}")
    print(f"from pairs alone: {identifiability(data.as_pairs()).witness.sentence()}")


if __name__ == "__main__":
    main()
