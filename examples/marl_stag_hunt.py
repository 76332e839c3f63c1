"""Train two hunters, ask which joint actions they have in mind, and hand the same game to a PettingZoo program.

Catching the stag takes both at once, and trying alone costs. The run is short: it shows the steps, not a good team.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from assay.marl import S2Q, PettingZooView, StagHunt, load_learner

ACTIONS = ("up", "down", "left", "right", "stay", "catch")


def hunt(n: int) -> StagHunt:
    return StagHunt(n, grid=(3, 3), n_agents=2, n_stags=1, horizon=15, penalty=-0.5)


def main() -> None:
    torch.set_num_threads(1)
    env = hunt(16)
    quick = {"recurrent": False, "learning_rate": 3e-3, "target_every": 50, "epsilon_steps": 5000}
    team = S2Q(env.spec, K=1, hidden=32, batch_size=16, temperature=1.0, seed=0, **quick)
    for row in team.fit(env, total_steps=9000, eval_every=3000):
        if "eval_return" in row:
            print(
                f"after {row['steps']:.0f} steps: return {row['eval_return']:.2f} with ε = 0, ε is {row['epsilon']:.2f}"
            )

    frame = env.reset(seed=1)
    held = team.candidates(frame.obs[0], frame.state[0], frame.avail[0])
    for level, (joint, value, share) in enumerate(zip(held.actions, held.reference, held.probability, strict=True)):
        print(f"level {level}: {' + '.join(ACTIONS[action] for action in joint)}, worth {value:.2f}, tried {share:.0%}")

    with TemporaryDirectory() as folder:
        team.save(Path(folder) / "team.safetensors", replay=False)
        team = load_learner(Path(folder) / "team.safetensors")

    zoo = PettingZooView(lambda: hunt(1))
    seen, _ = zoo.reset(seed=2)
    total = 0.0
    while zoo.agents:
        obs = np.stack([own["observation"] for own in seen.values()])
        avail = np.stack([own["action_mask"] for own in seen.values()]).astype(bool)
        joint = team.act(obs, avail)
        seen, rewards, *_ = zoo.step(dict(zip(zoo.agents, joint.tolist(), strict=True)))
        total += rewards["agent_0"]
    print(f"an episode in PettingZoo: return {total:g}")


if __name__ == "__main__":
    main()
