"""Stag hunt on a grid: catching a stag takes several agents at once, and trying alone costs.

Inside, the grid has a margin of walls, so that windows and neighbours never leave it, and every entity is one index
into the flat grid. Who has left the board stands in a cell of the margin, where nothing can reach it.

Axes: N instances, n agents, m stags, w cells of a window, P cells of the grid with its margin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError
from assay.marl.environments.vector import Frame, Step, VecEnv, require_actions
from assay.marl.spec import EnvSpec

__all__ = ["StagHunt"]

EMPTY, AGENT, STAG, WALL = range(4)
STAY, CATCH = 4, 5
RADIUS = 2
"""How far agents see: their window is 5 by 5 cells."""
MARGIN = RADIUS + 1
"""One wall more than a window needs, so that the cell of those who left is next to walls alone."""
PIXELS = 32
"""Side of a cell in a picture."""
COLOURS = np.array([[245, 245, 240], [40, 90, 170], [150, 85, 40], [90, 90, 90]], dtype=np.uint8)


class StagHunt(VecEnv):
    """Agents who hunt stags together, in N instances.

    Actions are up, down, left, right, stay and catch; catch is available next to a stag. In a step, first catches are
    decided on where everyone stands: a stag with at least `catch_needs` catching neighbours is caught, pays `bounty`,
    and leaves the board with them. A stag whose catching neighbours are too few costs `penalty`. Then the other agents
    move, one after another in random order, and then each stag moves to a random free neighbouring cell. Moves into
    walls and others are cancelled. An episode terminates when no stag is left or too few agents are left to catch one,
    and is truncated at the horizon.

    Parameters
    ----------
    n : int
        Instances, N.
    grid : (int, int)
        Rows and columns.
    n_agents : int
        Agents.
    n_stags : int
        Stags, m.
    horizon : int
        Steps of an episode at most.
    catch_needs : int
        Agents that it takes to catch a stag.
    penalty : float
        Reward, at most 0, for each stag that too few try to catch in a step.
    bounty : float
        Reward for each stag caught.
    seed : int
        Of the places and the moves.

    Attributes
    ----------
    spec : EnvSpec
        An observation has the window around the agent as planes of agents, stags and walls, then its row and column
        between 0 and 1; it is zero for who has left. The state has planes of agents and of stags.

    Examples
    --------
    >>> hunt = StagHunt(n=256, penalty=-2.0, seed=0)
    >>> frame = hunt.reset()
    >>> frame.obs.shape, frame.state.shape, frame.avail.shape
    ((256, 4, 77), (256, 72), (256, 4, 6))
    >>> step = hunt.step(np.full((256, 4), 4))
    >>> float(step.reward.sum())
    0.0
    """

    def __init__(
        self,
        n: int = 1,
        *,
        grid: tuple[int, int] = (6, 6),
        n_agents: int = 4,
        n_stags: int = 2,
        horizon: int = 50,
        catch_needs: int = 2,
        penalty: float = 0.0,
        bounty: float = 10.0,
        seed: int = 0,
    ) -> None:
        counts = {"n": n, "rows": grid[0], "columns": grid[1], "n_agents": n_agents, "n_stags": n_stags}
        for name, value in {**counts, "horizon": horizon, "catch_needs": catch_needs}.items():
            if value < 1:
                raise InputError(f"{name} is {value}", expected="at least 1")
        if catch_needs > n_agents:
            raise InputError(f"catch_needs is {catch_needs}", expected=f"at most the {n_agents} agents")
        if n_agents + n_stags > grid[0] * grid[1]:
            raise InputError(
                f"{n_agents} agents and {n_stags} stags are on {grid[0]}x{grid[1]} cells",
                expected="a cell for each",
            )
        if not penalty <= 0:
            raise InputError(f"penalty is {penalty}", expected="at most 0: it is added to the reward")
        self.n = n
        self.grid = grid
        self.horizon = horizon
        self.catch_needs = catch_needs
        self.penalty = penalty
        self.bounty = bounty
        rows, columns = grid
        self._wide = columns + 2 * MARGIN
        padded = np.full((rows + 2 * MARGIN, self._wide), WALL, dtype=np.uint8)
        padded[MARGIN:-MARGIN, MARGIN:-MARGIN] = EMPTY
        self._empty = padded.ravel()
        self._gone = RADIUS * self._wide + RADIUS
        self._board = np.flatnonzero(self._empty == EMPTY)
        self._neighbours = np.array([-self._wide, self._wide, -1, 1])
        self._offsets = np.array([*self._neighbours, 0, 0])
        span = np.arange(-RADIUS, RADIUS + 1)
        self._window = (span[:, None] * self._wide + span).ravel()
        place = np.arange(padded.size)
        self._place = np.stack(
            [
                (place // self._wide - MARGIN) / max(rows - 1, 1),
                (place % self._wide - MARGIN) / max(columns - 1, 1),
            ],
            axis=-1,
        ).astype(np.float32)
        window = len(self._window)
        self.spec = EnvSpec(
            n_agents=n_agents,
            n_actions=len(self._offsets),
            obs_size=3 * window + 2,
            state_size=2 * rows * columns,
            horizon=horizon,
            name="stag hunt",
        )
        self._rng = np.random.default_rng(seed)
        self._all = np.arange(n)
        self._start = self._all * padded.size
        self._cells = np.tile(self._empty, (n, 1))
        self._agents = np.full((n, n_agents), self._gone)
        self._stags = np.full((n, n_stags), self._gone)
        self._terminated = np.ones(n, dtype=bool)
        self._truncated = np.zeros(n, dtype=bool)
        self._avail = np.ones((n, n_agents, self.spec.n_actions), dtype=bool)
        self._time = 0

    def reset(self, seed: int | None = None) -> Frame:
        """Put everyone on different random cells in every instance."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        n_agents, n_stags = self._agents.shape[1], self._stags.shape[1]
        order = self._rng.random((self.n, len(self._board))).argsort(axis=1)[:, : n_agents + n_stags]
        placed = self._board[order]
        self._agents, self._stags = placed[:, :n_agents].copy(), placed[:, n_agents:].copy()
        self._cells[:] = self._empty
        np.put_along_axis(self._cells, self._agents, AGENT, axis=1)
        np.put_along_axis(self._cells, self._stags, STAG, axis=1)
        self._terminated[:] = False
        self._truncated[:] = False
        self._time = 0
        return self._frame()

    def step(self, actions: NDArray[np.integer[Any]]) -> Step:
        """Let agents catch and move, and stags move."""
        running = ~(self._terminated | self._truncated)
        chosen = np.where(running[:, None], require_actions(actions, self._avail, running), STAY)
        reward = self._catch(chosen == CATCH)
        self._move_agents(chosen)
        self._move_stags(running)
        self._time += 1
        hunters = (self._agents != self._gone).sum(1)
        self._terminated |= (self._stags == self._gone).all(1) | (hunters < self.catch_needs)
        if self._time >= self.horizon:
            self._truncated |= ~self._terminated
        frame = self._frame()
        over, late = self._terminated.copy(), self._truncated.copy()
        return Step(frame.obs, frame.state, frame.avail, reward.astype(np.float32), over, late)

    def render(self, index: int = 0) -> NDArray[np.uint8]:
        """A picture of an instance: agents blue, stags brown, walls grey."""
        rows, columns = self.grid
        cells = self._cells[index].reshape(-1, self._wide)[MARGIN - 1 : 1 - MARGIN, MARGIN - 1 : 1 - MARGIN]
        picture = np.repeat(np.repeat(COLOURS[cells], PIXELS, axis=0), PIXELS, axis=1)
        picture[::PIXELS] = picture[:, ::PIXELS] = COLOURS[WALL]
        assert picture.shape == ((rows + 2) * PIXELS, (columns + 2) * PIXELS, 3)
        return picture

    def get_rng_state(self) -> dict[str, Any]:
        """The generator of places and moves."""
        return {"generator": self._rng.bit_generator.state}

    def set_rng_state(self, state: dict[str, Any]) -> None:
        """Put back what `get_rng_state` gave."""
        self._rng.bit_generator.state = state["generator"]
        self._terminated[:] = True

    def _catch(self, catching: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Remove stags with enough catching neighbours, and those; price the others."""
        reward = np.zeros(self.n)
        if not catching.any():
            return reward
        n_stags = self._stags.shape[1]
        apart = np.abs(self._agents[:, :, None] - self._stags[:, None, :])
        near = ((apart == 1) | (apart == self._wide)) & (self._stags != self._gone)[:, None, :]
        for stag in range(n_stags):
            around = catching & near[:, :, stag]
            caught = around.sum(1) >= self.catch_needs
            if caught.any():
                reward += self.bounty * caught
                around &= caught[:, None]
                self._remove(self._stags[:, [stag]], caught[:, None])
                self._remove(self._agents, around)
                self._stags[caught, stag] = self._gone
                self._agents[around] = self._gone
                catching = catching & ~around
        for stag in range(n_stags):
            around = catching & near[:, :, stag]
            reward += self.penalty * around.any(1)
            catching = catching & ~around
        return reward

    def _remove(self, places: NDArray[np.int64], which: NDArray[np.bool_]) -> None:
        rows, columns = np.nonzero(which)
        self._cells[rows, places[rows, columns]] = EMPTY

    def _move_agents(self, chosen: NDArray[np.int64]) -> None:
        """One agent after another, in random order, to the free cell that it chose."""
        flat = self._cells.ravel()
        order = self._rng.random(chosen.shape, dtype=np.float32).argsort(axis=1)
        wanted = self._agents + self._offsets[chosen]
        for turn in order.T:
            here, there = self._agents[self._all, turn], wanted[self._all, turn]
            place = np.where(flat[self._start + there] == EMPTY, there, here)
            flat[self._start + here] = EMPTY
            flat[self._start + place] = AGENT
            self._agents[self._all, turn] = place
        self._cells[:, self._gone] = WALL

    def _move_stags(self, running: NDArray[np.bool_]) -> None:
        """One stag after another, to a random free neighbouring cell where there is one."""
        flat = self._cells.ravel()
        keys = self._rng.random((self._stags.shape[1], self.n, 4), dtype=np.float32)
        for stag, key in enumerate(keys):
            here = self._stags[:, stag]
            around = here[:, None] + self._neighbours
            free = (flat[self._start[:, None] + around] == EMPTY) & running[:, None]
            way = (key + free).argmax(1)
            place = np.where(free[self._all, way], around[self._all, way], here)
            flat[self._start + here] = EMPTY
            flat[self._start + place] = STAG
            self._stags[:, stag] = place
        self._cells[:, self._gone] = WALL

    def _frame(self) -> Frame:
        flat = self._cells.ravel()
        on_board = self._agents != self._gone
        views = self._agents + self._start[:, None]
        seen = flat[views[:, :, None] + self._window]
        obs = np.empty((*self._agents.shape, self.spec.obs_size), dtype=np.float32)
        planes = obs[:, :, :-2].reshape(*self._agents.shape, 3, len(self._window))
        for plane, kind in enumerate((AGENT, STAG, WALL)):
            np.equal(seen, kind, out=planes[:, :, plane])
        obs[:, :, -2:] = self._place[self._agents]
        obs *= on_board[:, :, None]
        board = self._cells[:, self._board]
        state = np.concatenate([board == AGENT, board == STAG], axis=1).astype(np.float32)
        avail = np.empty((*self._agents.shape, self.spec.n_actions), dtype=bool)
        avail[:, :, :STAY] = on_board[:, :, None]
        avail[:, :, STAY] = True
        next_to = (flat[views[:, :, None] + self._neighbours] == STAG).any(-1)
        avail[:, :, CATCH] = next_to & on_board
        self._avail = avail
        return Frame(obs, state, avail)
