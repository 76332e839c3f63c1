"""Replay of whole episodes, kept in as few bytes as hold them exactly.

The usual layout pads every episode to the longest there may be and stores actions twice, as 64-bit numbers and one-hot,
masks as 32-bit numbers, and a state that is the joined observations a second time. Here an episode takes its own
length, an action one byte, an entry of a mask one bit, a feature that was a whole number from 0 to 255 throughout the
episode one byte, and a state that equals the observations nothing. What comes out is bit for bit what went in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.core.errors import InputError
from assay.marl.spec import EnvSpec

__all__ = ["Episode", "EpisodeBatch", "EpisodeReplay", "padded_layout_bytes"]


@dataclass(frozen=True)
class EpisodeBatch:
    """Episodes beside each other, shorter ones padded with zeros at the end; what `S2QLoss` takes.

    Attributes
    ----------
    obs : Tensor, shape (B, T + 1, N, O)
        Observations.
    state : Tensor, shape (B, T + 1, S)
        States.
    actions : Tensor of int64, shape (B, T, N)
        Actions.
    avail : Tensor of bool, shape (B, T + 1, N, A)
        Available actions.
    reward, terminated, filled : Tensor, shape (B, T)
        Rewards; 1 where an episode truly ended; 1 for real steps.
    """

    obs: Tensor
    state: Tensor
    actions: Tensor
    avail: Tensor
    reward: Tensor
    terminated: Tensor
    filled: Tensor

    def as_dict(self) -> dict[str, Tensor]:
        """The tensors by name, as arguments for `S2QLoss`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to(self, device: torch.device | str, dtype: torch.dtype) -> EpisodeBatch:
        """The batch on a device, its real numbers in a dtype."""
        moved = {
            name: value.to(device, dtype) if value.is_floating_point() else value.to(device)
            for name, value in self.as_dict().items()
        }
        return EpisodeBatch(**moved)


@dataclass(frozen=True)
class Episode:
    """One episode of T steps, as it was played.

    Attributes
    ----------
    obs : (T + 1, N, O) array of float32
        Observations, those after the last step included.
    state : (T + 1, S) array of float32
        States.
    actions : (T, N) array of integers
        Actions.
    avail : (T + 1, N, A) array of bool
        Available actions.
    reward : (T,) array of float32
        Rewards.
    terminated : bool
        Whether it truly ended; false at a time limit.
    """

    obs: NDArray[np.float32]
    state: NDArray[np.float32]
    actions: NDArray[np.integer[Any]]
    avail: NDArray[np.bool_]
    reward: NDArray[np.float32]
    terminated: bool

    @property
    def length(self) -> int:
        """T."""
        return len(self.reward)


@dataclass(frozen=True)
class _Table:
    """Rows of float32 features, those apart that are whole numbers from 0 to 255 in every row."""

    narrow: NDArray[np.bool_]
    """Which features take a byte, shape (features,)."""
    small: NDArray[np.uint8]
    wide: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.narrow.nbytes + self.small.nbytes + self.wide.nbytes

    @classmethod
    def pack(cls, rows: NDArray[np.float32]) -> _Table:
        with np.errstate(invalid="ignore"):
            small = rows.astype(np.uint8)
        # Bits are compared, because −0 equals 0 and wouldn't come back.
        narrow = (small.astype(np.float32).view(np.uint32) == rows.view(np.uint32)).all(0)
        return cls(narrow, np.ascontiguousarray(small[:, narrow]), np.ascontiguousarray(rows[:, ~narrow]))

    def unpack(self, out: NDArray[np.float32]) -> None:
        if self.small.shape[1] == 0:
            out[:] = self.wide
        else:
            out[:, self.narrow] = self.small
            out[:, ~self.narrow] = self.wide


@dataclass(frozen=True)
class _Packed:
    """An episode in few bytes; `state` is None where it is the observations, joined."""

    obs: _Table
    state: _Table | None
    actions: NDArray[np.unsignedinteger[Any]]
    avail: NDArray[np.uint8]
    reward: NDArray[np.float32]
    terminated: bool

    @property
    def nbytes(self) -> int:
        state = 0 if self.state is None else self.state.nbytes
        return self.obs.nbytes + state + self.actions.nbytes + self.avail.nbytes + self.reward.nbytes + 1


class EpisodeReplay:
    """The last episodes, from which batches are drawn with equal probability.

    Parameters
    ----------
    spec : EnvSpec
        The sizes.
    capacity : int
        Episodes that are kept; the oldest is dropped.

    Raises
    ------
    InputError
        `capacity` is below 1.

    Examples
    --------
    >>> import numpy as np
    >>> spec = EnvSpec(n_agents=2, n_actions=3, obs_size=1, state_size=1, horizon=1)
    >>> replay = EpisodeReplay(spec, capacity=10)
    >>> replay.add(Episode(np.zeros((2, 2, 1), np.float32), np.zeros((2, 1), np.float32), np.array([[0, 2]]),
    ...                    np.ones((2, 2, 3), bool), np.ones(1, np.float32), terminated=True))
    >>> replay.sample(4, np.random.default_rng(0)).actions.tolist()
    [[[0, 2]], [[0, 2]], [[0, 2]], [[0, 2]]]
    """

    def __init__(self, spec: EnvSpec, *, capacity: int = 5000) -> None:
        if capacity < 1:
            raise InputError(f"capacity is {capacity}", expected="at least 1 episode")
        self.spec, self.capacity = spec, capacity
        self._episodes: deque[_Packed] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._episodes)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that are kept."""
        return sum(episode.nbytes for episode in self._episodes)

    def clear(self) -> None:
        """Forget all episodes."""
        self._episodes.clear()

    def add(self, episode: Episode) -> None:
        """Keep an episode.

        Parameters
        ----------
        episode : Episode
            Of at least one step.

        Raises
        ------
        InputError
            Its arrays don't have the sizes of the environment.
        """
        self._require_sizes(episode)
        obs = np.ascontiguousarray(episode.obs, np.float32).reshape(episode.length + 1, -1)
        state = np.ascontiguousarray(episode.state, np.float32)
        joined = state.shape == obs.shape and np.array_equal(state.view(np.uint32), obs.view(np.uint32))
        self._episodes.append(
            _Packed(
                _Table.pack(obs),
                None if joined else _Table.pack(state),
                episode.actions.astype(np.uint8 if self.spec.n_actions <= 256 else np.uint32),
                np.packbits(episode.avail.reshape(episode.length + 1, -1), axis=1),
                episode.reward.astype(np.float32),
                bool(episode.terminated),
            )
        )

    def sample(self, size: int, rng: np.random.Generator, *, bucket: int = 1) -> EpisodeBatch:
        """Draw episodes, with repetition only where there are fewer than `size`.

        Parameters
        ----------
        size : int
            B.
        rng : numpy.random.Generator
            Where chance comes from.
        bucket : int
            T is the longest drawn length, rounded up to a multiple of this; compiled losses like few shapes.

        Returns
        -------
        EpisodeBatch
            float32, on the CPU.

        Raises
        ------
        InputError
            Nothing has been added yet.
        """
        if not self._episodes:
            raise InputError("the replay is empty", expected="at least one episode")
        return self.batch(rng.choice(len(self), size, replace=size > len(self)).tolist(), bucket=bucket)

    def batch(self, indices: Sequence[int], *, bucket: int = 1) -> EpisodeBatch:
        """Episodes by their number, from the oldest on.

        Parameters
        ----------
        indices : sequence of int
            Which.
        bucket : int
            As for `sample`.

        Returns
        -------
        EpisodeBatch
            float32, on the CPU.
        """
        spec, drawn = self.spec, [self._episodes[index] for index in indices]
        steps = -(-max(len(episode.reward) for episode in drawn) // bucket) * bucket
        size, n, actions = len(drawn), spec.n_agents, spec.n_actions
        obs = np.zeros((size, steps + 1, n * spec.obs_size), np.float32)
        state = np.zeros((size, steps + 1, spec.state_size), np.float32)
        taken = np.zeros((size, steps, n), np.int64)
        avail = np.zeros((size, steps + 1, n * actions), np.bool_)
        reward, terminated, filled = (np.zeros((size, steps), np.float32) for _ in range(3))
        for row, episode in enumerate(drawn):
            length = len(episode.reward)
            episode.obs.unpack(obs[row, : length + 1])
            if episode.state is None:
                state[row, : length + 1] = obs[row, : length + 1]
            else:
                episode.state.unpack(state[row, : length + 1])
            taken[row, :length] = episode.actions
            avail[row, : length + 1] = np.unpackbits(episode.avail, axis=1, count=n * actions)
            reward[row, :length] = episode.reward
            terminated[row, length - 1] = episode.terminated
            filled[row, :length] = 1
        return EpisodeBatch(
            torch.from_numpy(obs).unflatten(-1, (n, spec.obs_size)),
            torch.from_numpy(state),
            torch.from_numpy(taken),
            torch.from_numpy(avail).unflatten(-1, (n, actions)),
            *(torch.from_numpy(array) for array in (reward, terminated, filled)),
        )

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """All episodes as a few arrays, from which `load_state_dict` makes them again."""
        episodes = list(self._episodes)
        arrays: dict[str, NDArray[Any]] = {
            "length": np.array([len(episode.reward) for episode in episodes], np.int64),
            "terminated": np.array([episode.terminated for episode in episodes], np.uint8),
            "joined": np.array([episode.state is None for episode in episodes], np.uint8),
            "actions": _joined((episode.actions for episode in episodes), np.uint32),
            "avail": _joined((episode.avail for episode in episodes), np.uint8),
            "reward": _joined((episode.reward for episode in episodes), np.float32),
        }
        for name in ("obs", "state"):
            tables = [table for episode in episodes if (table := getattr(episode, name)) is not None]
            arrays[f"{name}.narrow"] = _joined((table.narrow for table in tables), np.uint8)
            arrays[f"{name}.small"] = _joined((table.small for table in tables), np.uint8)
            arrays[f"{name}.wide"] = _joined((table.wide for table in tables), np.float32)
        return arrays

    def load_state_dict(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Put back what `state_dict` gave, in place of what is kept now.

        Parameters
        ----------
        arrays : mapping of str to array
            From `state_dict`.
        """
        spec = self.spec
        left = {name: _Reader(array) for name, array in arrays.items()}

        def table(name: str, rows: int, features: int) -> _Table:
            narrow = left[f"{name}.narrow"].take(features).astype(np.bool_)
            narrows = int(narrow.sum())
            small = left[f"{name}.small"].take(rows * narrows).reshape(rows, -1 if narrows else 0)
            wides = features - narrows
            wide = left[f"{name}.wide"].take(rows * wides).reshape(rows, -1 if wides else 0)
            return _Table(narrow, small, wide)

        self.clear()
        bits = -(-spec.n_agents * spec.n_actions // 8)
        dtype = np.uint8 if spec.n_actions <= 256 else np.uint32
        for length, terminated, joined in zip(arrays["length"], arrays["terminated"], arrays["joined"], strict=True):
            rows = int(length) + 1
            self._episodes.append(
                _Packed(
                    table("obs", rows, spec.n_agents * spec.obs_size),
                    None if joined else table("state", rows, spec.state_size),
                    left["actions"].take((rows - 1) * spec.n_agents).reshape(rows - 1, -1).astype(dtype),
                    left["avail"].take(rows * bits).reshape(rows, -1),
                    left["reward"].take(rows - 1),
                    bool(terminated),
                )
            )

    def _require_sizes(self, episode: Episode) -> None:
        spec, steps = self.spec, episode.length
        wanted = {
            "obs": (steps + 1, spec.n_agents, spec.obs_size),
            "state": (steps + 1, spec.state_size),
            "actions": (steps, spec.n_agents),
            "avail": (steps + 1, spec.n_agents, spec.n_actions),
        }
        if steps < 1:
            raise InputError("the episode has no step", expected="at least one")
        for name, shape in wanted.items():
            found = getattr(episode, name).shape
            if found != shape:
                raise InputError(f"{name} of an episode has the shape {found}", expected=f"{shape}")


class _Reader:
    """Hands out the entries of a flat array in turn."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array, self._at = array, 0

    def take(self, count: int) -> NDArray[Any]:
        self._at += count
        return self._array[self._at - count : self._at].copy()


def _joined(arrays: Iterator[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    flat = [array.ravel().astype(dtype, copy=False) for array in arrays]
    return np.concatenate(flat) if flat else np.zeros(0, dtype)


def padded_layout_bytes(spec: EnvSpec, *, episodes: int, steps: int) -> int:
    """Bytes of the usual layout, to compare with: everything padded to the longest episode, actions also one-hot.

    Parameters
    ----------
    spec : EnvSpec
        The sizes.
    episodes : int
        Episodes that are kept.
    steps : int
        The longest episode that there may be.

    Returns
    -------
    int
        Bytes: float32 state, observations, one-hot actions and reward, int64 actions and filled marks, int32 masks, one
        byte for termination.

    Examples
    --------
    >>> padded_layout_bytes(EnvSpec(2, 3, 4, 5, 10), episodes=1, steps=10)
    1419
    """
    n, actions = spec.n_agents, spec.n_actions
    step = 4 * (spec.state_size + n * spec.obs_size + n * actions + 1) + 8 * (n + 1) + 4 * n * actions + 1
    return episodes * (steps + 1) * step
