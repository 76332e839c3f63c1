"""Everything that a learner can be told, with the published values as defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from assay.core.errors import InputError

__all__ = ["LOSS_SETTINGS", "Settings"]


@dataclass(frozen=True)
class Settings:
    """How a learner learns.

    Parameters
    ----------
    K, mixer, central, recurrent, hidden, embed, hypernet, hypernet_layers, critic_width
        The networks, as for `S2QLoss`.
    temperature, temperature_factor, suppression, alpha, floor, weighting, w_c, gamma, td_lambda, coord_coef
        The losses, as for `S2QLoss`.
    last_action, agent_id, comm, double_q
        What agents see, and how a learner without a central value bootstraps, as for `S2QLoss`.
    selector : str
        Which sub-value a team follows where it doesn't follow Q₀: drawn from the ``coordinator``'s P̂, from the exact P
        of the target critic (``oracle``), ``uniform``, drawn from P̂ by each agent for itself (``independent``), or
        always Q₀ (``greedy``).
    mix : float
        Probability that an episode is one in which levels are drawn; decided for each instance. 1 is the paper's text,
        0.5 its code.
    learning_rate : float
        Of Adam.
    batch_size : int
        Episodes of a gradient step.
    buffer_size : int
        Episodes that are kept.
    episodes_per_update : int
        Collected episodes for each gradient step.
    target_every : int
        Episodes between copies into the target networks.
    clip : float
        Largest joint norm of all gradients.
    epsilon_start, epsilon_end : float
        ε at the start and at the end of its schedule.
    epsilon_steps : int
        Environment steps of that schedule.
    dtype : str
        ``float32`` or ``float64``.
    device : str
        ``cpu``, ``cuda``, ``cuda:N`` or ``auto``.
    bucket : int
        Batches are padded to a multiple of this many steps.
    compile : bool
        Whether `torch.compile` makes one program of the loss; worth it on a GPU, with a `bucket`.

    Examples
    --------
    >>> Settings(K=1).changed(K=3).K
    3
    """

    K: int = 2
    mixer: str = "qmix"
    central: bool = True
    recurrent: bool = True
    hidden: int = 64
    embed: int = 32
    hypernet: int = 64
    hypernet_layers: int = 2
    critic_width: int = 256
    temperature: float | str = 0.1
    temperature_factor: float = 0.5
    suppression: str = "paper"
    alpha: float | str = 1.0
    floor: float = 1.0
    weighting: str = "s2q"
    w_c: float = 0.9
    gamma: float = 0.99
    td_lambda: float = 0.6
    coord_coef: float | None = None
    last_action: bool = True
    agent_id: bool | None = None
    comm: bool = False
    double_q: bool = True
    selector: str = "coordinator"
    mix: float = 0.5
    learning_rate: float = 1e-3
    batch_size: int = 128
    buffer_size: int = 5000
    episodes_per_update: int = 8
    target_every: int = 200
    clip: float = 10.0
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_steps: int = 100_000
    dtype: str = "float32"
    device: str = "cpu"
    bucket: int = 1
    compile: bool = False

    def __post_init__(self) -> None:
        for name in ("hidden", "embed", "hypernet", "critic_width", "batch_size", "buffer_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", expected="at least 1")
        for name in ("episodes_per_update", "target_every", "bucket"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", expected="at least 1")
        for name in ("mix", "epsilon_start", "epsilon_end"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}", expected="0 to 1")
        for name in ("learning_rate", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}", expected="above 0")
        if self.epsilon_steps < 0:
            raise InputError(f"epsilon_steps is {self.epsilon_steps}", expected="0 or more")
        if self.dtype not in ("float32", "float64"):
            raise InputError(f"dtype '{self.dtype}'", expected="float32 or float64")

    def changed(self, **changes: Any) -> Settings:
        """The same settings but for `changes`.

        Parameters
        ----------
        **changes
            New values by name.

        Raises
        ------
        InputError
            There is no setting of that name.
        """
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in changes:
            if name not in known:
                raise InputError(f"there is no setting '{name}'", expected=f"one of {', '.join(known)}")
        return Settings(**{**known, **changes})

    def for_loss(self) -> dict[str, Any]:
        """Those that `S2QLoss` takes."""
        return {name: getattr(self, name) for name in LOSS_SETTINGS}


LOSS_SETTINGS = tuple(field.name for field in fields(Settings))[: [f.name for f in fields(Settings)].index("selector")]
"""The names of the settings that `S2QLoss` takes."""
