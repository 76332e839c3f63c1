"""Stag hunt of one instance in plain Python, with dictionaries of places: the rules written a second time."""

from __future__ import annotations

import numpy as np

MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
STAY, CATCH = 4, 5


class PlainStagHunt:
    """The rules on (row, column) places; None is who has left."""

    def __init__(self, grid: tuple[int, int], agents: list, stags: list, *, needs: int, penalty: float) -> None:
        self.rows, self.columns = grid
        self.agents, self.stags = list(agents), list(stags)
        self.needs, self.penalty = needs, penalty

    def inside(self, place: tuple[int, int]) -> bool:
        return 0 <= place[0] < self.rows and 0 <= place[1] < self.columns

    def taken(self, place: tuple[int, int]) -> bool:
        return place in self.agents or place in self.stags

    def next_to(self, agent: tuple[int, int], stag: tuple[int, int]) -> bool:
        return abs(agent[0] - stag[0]) + abs(agent[1] - stag[1]) == 1

    def step(self, actions: list[int], turns: list[int], keys: list[list[float]]) -> float:
        """A step in which agents move in the order of `turns` and stags choose the free move with the highest key."""
        reward = 0.0
        catching = [i for i, action in enumerate(actions) if action == CATCH and self.agents[i] is not None]
        leaving: list[int] = []
        tried = []
        for number, stag in enumerate(self.stags):
            if stag is None:
                continue
            around = [i for i in catching if self.next_to(self.agents[i], stag)]
            if len(around) >= self.needs:
                reward += 10.0
                leaving += around
                catching = [i for i in catching if i not in around]
                self.stags[number] = None
            else:
                tried.append(stag)
        for stag in tried:
            around = [i for i in catching if self.next_to(self.agents[i], stag)]
            reward += self.penalty if around else 0.0
            catching = [i for i in catching if i not in around]
        for i in leaving:
            self.agents[i] = None
        for i in turns:
            if self.agents[i] is not None and actions[i] < STAY:
                place = tuple(np.add(self.agents[i], MOVES[actions[i]]).tolist())
                if self.inside(place) and not self.taken(place):
                    self.agents[i] = place
        for number, stag in enumerate(self.stags):
            if stag is not None:
                places = [tuple(np.add(stag, move).tolist()) for move in MOVES]
                free = [d for d in range(4) if self.inside(places[d]) and not self.taken(places[d])]
                if free:
                    self.stags[number] = places[max(free, key=lambda d: keys[number][d])]
        return reward

    def observation(self, agent: int) -> np.ndarray:
        place = self.agents[agent]
        if place is None:
            return np.zeros(77)
        planes = np.zeros((3, 5, 5))
        for row in range(5):
            for column in range(5):
                seen = (place[0] + row - 2, place[1] + column - 2)
                planes[0, row, column] = seen in self.agents
                planes[1, row, column] = seen in self.stags
                planes[2, row, column] = not self.inside(seen)
        own = [place[0] / max(self.rows - 1, 1), place[1] / max(self.columns - 1, 1)]
        return np.concatenate([planes.ravel(), own])

    def state(self) -> np.ndarray:
        planes = np.zeros((2, self.rows, self.columns))
        for plane, places in zip(planes, (self.agents, self.stags), strict=True):
            for place in places:
                if place is not None:
                    plane[place] = 1
        return planes.ravel()

    def available(self, agent: int) -> list[bool]:
        place = self.agents[agent]
        if place is None:
            return [False] * 4 + [True, False]
        return [True] * 5 + [any(stag is not None and self.next_to(place, stag) for stag in self.stags)]
