"""The games of few steps, the adapters for other people's environments, and what each refuses."""

from __future__ import annotations

import importlib
import sys
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from pettingzoo import ParallelEnv
from pettingzoo.test import parallel_api_test

from assay.core.errors import AssayError, InputError, MissingPackageError
from assay.marl.environments import (
    ChainGame,
    InstanceEnv,
    MatrixGame,
    PettingZooView,
    SMAXEnv,
    StagHunt,
    StandardisedRewards,
    VecEnv,
    make_vec_env,
    random_actions,
)
from assay.marl.environments.pymarl import make_football, make_smac, make_smacv2
from assay.marl.rewards import team_reward

EXAMPLE = np.diag([8.0, 4.0, 6.0])


class Pair(ParallelEnv):
    """Two agents in PettingZoo's words. Every switch makes one thing as somebody's environment has it."""

    metadata = {"name": "pair"}  # noqa: RUF012

    def __init__(self, **switches: Any) -> None:
        self.has = {
            "sizes": (2, 2), "shared": True, "state": True, "mask": None, "space": None, "dies": None, "wrong": None,
            "ends": None, "cut": 5, **switches,
        }  # fmt: skip
        self.possible_agents = ["left", "right"]
        self.agents: list[str] = []
        self.time = 0

    def observation_space(self, agent: str) -> Any:
        return Box(-np.inf, np.inf, (self.has["sizes"][self.possible_agents.index(agent)],), np.float32)

    def action_space(self, agent: str) -> Any:
        return self.has["space"] or Discrete(3 if agent == "left" else 2)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.agents, self.time = list(self.possible_agents), 0
        self.start = np.random.default_rng(seed).normal()
        return self._seen(), self._infos()

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        assert set(actions) == set(self.agents)
        self.time += 1
        over = self.time == self.has["ends"]
        cut = self.time == self.has["cut"] and not over
        rewards = {agent: float(self.time if self.has["shared"] else place) for place, agent in enumerate(self.agents)}
        if self.has["wrong"] == ("reward", self.time):
            rewards = dict.fromkeys(rewards, float("nan"))
        ended = {agent: over or self.has["dies"] == (agent, self.time) for agent in self.agents}
        late = dict.fromkeys(self.agents, cut)
        self.agents = [agent for agent in self.agents if not (ended[agent] or late[agent])]
        return self._seen(), rewards, ended, late, self._infos()

    def state(self) -> np.ndarray:
        if not self.has["state"]:
            raise NotImplementedError
        return np.array([self.time, self.start], dtype=np.float32)

    def _seen(self) -> dict:
        seen = {
            agent: np.full(size, self.start + self.time, dtype=np.float32)
            for agent, size in zip(self.possible_agents, self.has["sizes"], strict=True)
        }
        if self.has["wrong"] == ("observation", self.time):
            seen["right"][1] = np.inf
        return seen

    def _infos(self) -> dict:
        mask = self.has["mask"]
        return {
            agent: {} if mask is None else {"action_mask": np.array(mask(agent, self.time), dtype=np.int8)}
            for agent in self.possible_agents
        }


class Line(gymnasium.Env):
    """Two agents in Gymnasium's words, with a list of rewards, a limit of its own, and "done" for everything."""

    def __init__(self, limit: int = 4, action_space: Any = None) -> None:
        self.action_space = action_space or Tuple((Discrete(2), Discrete(2, start=1)))
        self.observation_space = Tuple((Box(-1, 1, (2, 2)), Discrete(5)))
        self._max_episode_steps = limit
        self.taken: list[tuple[int, ...]] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.time, self.level = 0, float(self.np_random.random())
        return (np.full((2, 2), self.level), 0), {}

    def step(self, action: tuple[int, ...]) -> tuple[Any, list[float], bool, bool, dict]:
        self.time += 1
        self.taken.append(tuple(action))
        done = self.time >= self._max_episode_steps or action == (1, 2)
        return (np.full((2, 2), self.level), self.time), [1.0, 2.0], done, False, {}


class Squad:
    """Three agents in PyMARL's words."""

    def __init__(self, *, seeds: bool = True, five: bool = False, stuck_at: int | None = None) -> None:
        self.five, self.stuck_at, self.closed = five, stuck_at, False
        self.rng = np.random.default_rng(0)
        self.reset = self._reset if seeds else lambda: self._reset(None)

    def get_env_info(self) -> dict:
        return {"n_agents": 3, "n_actions": 2, "obs_shape": 2, "state_shape": 4, "episode_limit": 3}

    def _reset(self, seed: int | None = None) -> None:
        self.rng = self.rng if seed is None else np.random.default_rng(seed)
        self.time, self.here = 0, self.rng.normal(size=2).astype(np.float32)

    def step(self, actions: list[int]) -> tuple:
        self.time += 1
        won, late = sum(actions) == 3, self.time == 3
        if self.five:
            return self.get_obs(), 0.5, won, late and not won, {}
        return 0.5, won or late, {"episode_limit": late and not won}

    def get_obs(self) -> list[np.ndarray]:
        return [self.here] * 3

    def get_state(self) -> np.ndarray:
        return np.concatenate([self.here, [self.time, 1]])

    def get_avail_actions(self) -> list[list[int]]:
        return [[1, 1], [0, 0] if self.time == self.stuck_at else [1, 0], [1, 1]]

    def close(self) -> None:
        self.closed = True


def quiet(make: Any, n: int = 2, **options: Any) -> VecEnv:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_vec_env(make, n, **options)


def first_actions(env: VecEnv) -> np.ndarray:
    return np.zeros((env.n, env.spec.n_agents), dtype=np.int64)


class TestMatrixGame:
    def test_pays_what_the_joint_action_is_worth_and_ends(self) -> None:
        payoff = np.arange(27.0).reshape(3, 3, 3)
        env, rng = MatrixGame(payoff, 50), np.random.default_rng(0)
        frame = env.reset()
        actions = random_actions(frame.avail, rng)
        step = env.step(actions)
        assert step.reward.tolist() == [payoff[tuple(joint)] for joint in actions]
        assert step.terminated.all()
        assert not step.truncated.any()
        assert (env.step(actions).reward == 0).all()

    def test_the_payoff_moves_after_so_many_steps_of_all_instances_and_a_saved_game_knows_when(self) -> None:
        env = MatrixGame(EXAMPLE, 4, shifts=[(8, EXAMPLE + 1), (12, EXAMPLE + 2)])
        paid = []
        for _ in range(4):
            env.reset()
            paid.append(float(env.step(first_actions(env)).reward[0]))
        assert paid == [8, 8, 9, 10]
        other = MatrixGame(EXAMPLE, 4, shifts=[(8, EXAMPLE + 1), (12, EXAMPLE + 2)])
        other.set_rng_state(env.get_rng_state())
        assert other.payoff[0, 0] == 10

    def test_noise_has_the_deviation_that_was_asked_for(self) -> None:
        env = MatrixGame(EXAMPLE, 20_000, noise=0.5, seed=1)
        env.reset()
        reward = env.step(first_actions(env)).reward
        assert abs(reward.mean() - 8) < 0.02
        assert abs(reward.std() - 0.5) < 0.02

    @pytest.mark.parametrize(
        ("payoff", "says"),
        [
            (np.zeros((2, 3)), r"the shape \(2, 3\); expected a square"),
            (np.zeros((2, 2, 3)), r"the shape \(2, 2, 3\)"),
            ([[1, float("nan")], [0, 1]], r"nan at \(0, 1\)"),
            ([["a", "b"], ["c", "d"]], "isn't an array of numbers"),
        ],
        ids=["oblong", "box", "nan", "words"],
    )
    def test_what_is_no_payoff_is_refused(self, payoff: Any, says: str) -> None:
        with pytest.raises(InputError, match=says):
            MatrixGame(payoff)

    def test_shifts_must_rise_and_have_the_same_shape(self) -> None:
        with pytest.raises(InputError, match=r"from step 3 on has the shape \(2, 2\)"):
            MatrixGame(EXAMPLE, shifts=[(3, np.eye(2))])
        with pytest.raises(InputError, match="a shift is at step 3; expected steps that rise"):
            MatrixGame(EXAMPLE, shifts=[(5, EXAMPLE), (3, EXAMPLE)])


class TestChainGame:
    def test_a_joint_action_pays_at_its_stage_and_leads_on_or_ends(self) -> None:
        env = ChainGame(3, 3)
        frame = env.reset()
        assert frame.state.tolist() == [[1, 0, 0]] * 3
        step = env.step(np.array([[0, 0], [2, 2], [2, 1]]))
        assert step.reward.tolist() == [8, 6, 0]
        assert step.terminated.tolist() == [True, False, True]
        assert step.state.tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
        assert step.obs[1].tolist() == [[0, 1, 0]] * 2
        step = env.step(np.array([[0, 0], [2, 2], [0, 0]]))
        assert step.reward.tolist() == [0, 6, 0]
        step = env.step(np.array([[0, 0], [2, 2], [0, 0]]))
        assert step.reward.tolist() == [0, 6, 0]
        assert step.terminated.all()

    def test_the_best_first_joint_action_moves_with_what_is_known_of_later_stages(self) -> None:
        """By brute force over all sequences of joint actions."""
        chain = ChainGame(3)
        assert chain.best_return() == max(8, 6 + 8, 6 + 6 + 8)
        assert ChainGame(1).best_return() == 8
        rng = np.random.default_rng(0)
        payoffs, leads = rng.normal(size=(3, 2, 2)), rng.random((3, 2, 2)) < 0.5
        env = ChainGame(payoffs, goes_on=leads)

        def best(stage: int) -> float:
            if stage == 3:
                return 0.0
            later = 0.9 * best(stage + 1) if stage < 2 else 0.0
            return max(payoffs[stage][cell] + later * leads[stage][cell] for cell in np.ndindex(2, 2))

        assert env.best_return(0.9) == pytest.approx(best(0))

    def test_impossible_chains_are_refused(self) -> None:
        with pytest.raises(InputError, match="the payoff of stage 1 has the shape"):
            ChainGame([EXAMPLE, np.eye(3)[:, :2]])
        with pytest.raises(InputError, match=r"the payoff of stage 1 has the shape \(2, 2\); expected \(3, 3\)"):
            ChainGame([EXAMPLE, np.eye(2)])
        with pytest.raises(InputError, match=r"goes_on has the shape \(2,\)"):
            ChainGame(2, goes_on=[True, False])


class TestPettingZoo:
    def test_arrays_hold_what_the_environments_give(self) -> None:
        env = make_vec_env(Pair, 3)
        spec = env.spec
        assert (spec.n_agents, spec.n_actions, spec.obs_size, spec.state_size, spec.name) == (2, 3, 2, 2, "pair")
        frame = env.reset(4)
        assert frame.obs.shape == (3, 2, 2)
        assert len(set(frame.obs[:, 0, 0].tolist())) == 3
        assert frame.avail.tolist() == [[[True] * 3, [True, True, False]]] * 3
        step = env.step(first_actions(env))
        np.testing.assert_allclose(step.obs, frame.obs + 1)
        np.testing.assert_allclose(step.state[:, 0], 1)
        assert step.reward.tolist() == [1, 1, 1]

    def test_time_that_runs_out_is_a_truncation_and_an_end_is_a_termination(self) -> None:
        for switches, end in ({"cut": 3}, (False, True)), ({"ends": 3}, (True, False)):
            env = make_vec_env(lambda switches=switches: Pair(**switches), 1)
            env.reset()
            for _ in range(3):
                step = env.step(first_actions(env))
            assert (bool(step.terminated[0]), bool(step.truncated[0])) == end
            assert env.step(first_actions(env)).reward[0] == 0

    def test_an_agent_that_is_gone_has_its_first_action_alone_and_the_others_go_on(self) -> None:
        env = make_vec_env(lambda: Pair(dies=("left", 2)), 1, reward="sum")
        env.reset()
        env.step(first_actions(env))
        step = env.step(first_actions(env))
        assert not step.terminated[0]
        assert step.avail[0].tolist() == [[True, False, False], [True, True, False]]
        assert env.step(first_actions(env)).reward[0] == 3

    def test_masks_come_from_the_info_or_from_beside_the_observation(self) -> None:
        env = make_vec_env(lambda: Pair(mask=lambda agent, time: [0, 1, 1] if agent == "left" else [1, 0]), 1)
        assert env.reset().avail[0].tolist() == [[False, True, True], [True, False, False]]
        hunt = make_vec_env(lambda: PettingZooView(lambda: StagHunt(1, grid=(3, 3))), 2)
        assert hunt.spec.obs_size == 77
        assert hunt.reset(0).avail.shape == (2, 4, 6)
        assert hunt.spec.horizon == 50

    def test_without_a_state_training_sees_all_observations(self) -> None:
        with pytest.warns(UserWarning, match="pair gives no state: training sees all agents' observations"):
            env = make_vec_env(lambda: Pair(state=False), 2)
        frame = env.reset(0)
        np.testing.assert_array_equal(frame.state, frame.obs.reshape(2, -1))
        assert env.spec.state_size == 4

    def test_observations_of_different_sizes_are_padded_and_agents_told_apart(self) -> None:
        with pytest.warns(UserWarning, match=r"observe different numbers of things \(2, 4\): observations are padded"):
            env = make_vec_env(lambda: Pair(sizes=(2, 4)), 2)
        assert env.spec.obs_size == 4
        assert env.spec.agent_ids
        assert (env.reset(0).obs[:, 0, 2:] == 0).all()
        assert not make_vec_env(Pair, 1).spec.agent_ids

    def test_rewards_that_differ_need_a_word_on_how_to_join_them(self) -> None:
        env = make_vec_env(lambda: Pair(shared=False), 1)
        env.reset()
        with pytest.raises(InputError, match=r"different rewards \(0, 1\); expected reward='sum' or reward='mean'"):
            env.step(first_actions(env))
        for reward, value in ("sum", 1.0), ("mean", 0.5):
            env = make_vec_env(lambda: Pair(shared=False), 1, reward=reward)
            env.reset()
            assert env.step(first_actions(env)).reward[0] == value
        with pytest.raises(InputError, match="reward is 'most'"):
            make_vec_env(Pair, 1, reward="most")

    def test_continuous_actions_are_refused_with_their_space(self) -> None:
        with pytest.raises(InputError, match=r"the actions of agent left of pair are Box\(0.0, 1.0, \(2,\), float32\)"):
            make_vec_env(lambda: Pair(space=Box(0, 1, (2,))), 1)

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            (("observation", 2), "environment 0, step 2, agent 1, number 1: the observation is inf"),
            (("reward", 3), "environment 0, step 3: the reward is nan"),
        ],
        ids=["observation", "reward"],
    )
    def test_what_is_not_finite_is_refused_with_its_place(self, wrong: Any, says: str) -> None:
        env = make_vec_env(lambda: Pair(wrong=wrong), 1)
        env.reset()
        with pytest.raises(InputError, match=says):  # noqa: PT012
            for _ in range(4):
                env.step(first_actions(env))

    def test_an_agent_without_an_action_is_refused_with_environment_step_and_agent(self) -> None:
        mask = lambda agent, time: [int(time != 2 or agent == "left")] * (3 if agent == "left" else 2)  # noqa: E731
        env = make_vec_env(lambda: Pair(mask=mask), 2)
        env.reset()
        env.step(first_actions(env))
        with pytest.raises(InputError, match="environment 0, step 2: agent 1 has no available action"):
            env.step(first_actions(env))

    def test_a_horizon_truncates(self) -> None:
        env = make_vec_env(Pair, 1, horizon=2)
        assert env.spec.horizon == 2
        env.reset()
        env.step(first_actions(env))
        assert env.step(first_actions(env)).truncated[0]

    def test_the_view_of_our_games_passes_pettingzoos_own_test(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parallel_api_test(PettingZooView(lambda: MatrixGame(EXAMPLE)), 50)
            parallel_api_test(PettingZooView(lambda: ChainGame(4)), 50)
        # Its actions are sampled with the mask that is in the observation.
        parallel_api_test(PettingZooView(lambda: StagHunt(1, penalty=-2.0)), 50)

    def test_the_view_gives_what_the_environment_gives(self) -> None:
        view, env = PettingZooView(lambda: StagHunt(1), render_mode="rgb_array"), StagHunt(1)
        rng = np.random.default_rng(0)
        seen, _ = view.reset(seed=3)
        frame = env.reset(3)
        for _ in range(50):
            actions = random_actions(frame.avail, rng)
            frame = env.step(actions)
            sent = dict(zip(view.possible_agents, actions[0].tolist(), strict=True))
            seen, rewards, ended, cut, _ = view.step(sent)
            np.testing.assert_array_equal(seen["agent_2"]["observation"], frame.obs[0, 2])
            np.testing.assert_array_equal(view.state(), frame.state[0])
            assert rewards == dict.fromkeys(view.possible_agents, frame.reward[0])
            assert (ended["agent_0"], cut["agent_0"]) == (frame.terminated[0], frame.truncated[0])
            if not view.agents:
                break
        np.testing.assert_array_equal(view.render(), env.render())
        with pytest.raises(InputError, match="the episode has ended"):
            view.step({})
        with pytest.raises(InputError, match="has 2 instances"):
            PettingZooView(lambda: StagHunt(2))

    def test_there_and_back_is_the_same_game(self) -> None:
        """Our game through the view and the adapter, against itself."""
        env = make_vec_env(lambda: PettingZooView(lambda: ChainGame(3)), 2)
        ours = ChainGame(3, 2)
        there, here = env.reset(), ours.reset()
        for actions in ([[2, 2], [2, 2]], [[2, 2], [0, 0]], [[1, 1], [0, 0]]):
            there, here = env.step(np.array(actions)), ours.step(np.array(actions))
            np.testing.assert_array_equal(there.obs[~here.terminated], here.obs[~here.terminated])
            assert there.reward.tolist() == here.reward.tolist()
            assert there.terminated.tolist() == here.terminated.tolist()


class TestGymnasium:
    def test_lists_of_rewards_and_observations_of_any_shape(self) -> None:
        env = quiet(Line, 2, reward="sum")
        assert (env.spec.obs_size, env.spec.n_actions, env.spec.horizon, env.spec.agent_ids) == (4, 2, 4, True)
        frame = env.reset(0)
        assert (frame.obs[:, 1, 1:] == 0).all()
        step = env.step(first_actions(env))
        assert step.reward.tolist() == [3, 3]
        assert step.obs[:, 1, 0].tolist() == [1, 1]
        assert env._teams[0].env.taken == [(0, 1)]

    def test_its_own_limit_is_a_truncation_though_it_says_done(self) -> None:
        env = quiet(Line, 2, reward="sum")
        env.reset()
        for _ in range(3):
            step = env.step(first_actions(env))
        assert not (step.terminated | step.truncated).any()
        step = env.step(first_actions(env))
        assert step.truncated.all()
        assert not step.terminated.any()
        env.reset()
        step = env.step(np.array([[1, 1], [0, 0]]))
        assert step.terminated.tolist() == [True, False]

    def test_one_space_for_all_is_refused(self) -> None:
        with pytest.raises(InputError, match=r"the actions of Line are Box\(.*\); expected a Tuple of Discrete spaces"):
            make_vec_env(lambda: Line(action_space=Box(0, 1, (2,))), 1)
        with pytest.raises(InputError, match=r"the actions of agent 1 of Line are Box\("):
            make_vec_env(lambda: Line(action_space=Tuple((Discrete(2), Box(0, 1, (1,))))), 1)
        with pytest.raises(InputError, match=r"the actions of CartPole-v1 are Discrete\(2\)"):
            make_vec_env("gym:CartPole-v1", 1)

    def test_foraging_ends_when_all_food_is_taken_and_is_cut_when_time_runs_out(self) -> None:
        env = quiet("lbf:Foraging-5x5-2p-1f-coop-v3", 3, reward="sum")
        rng, frame = np.random.default_rng(0), env.reset(0)
        for _ in range(50):
            frame = env.step(random_actions(frame.avail, rng))
        assert (frame.terminated ^ frame.truncated).all()
        assert env.spec.horizon == 50
        for index, ended in enumerate(frame.terminated):
            assert ended == (not env._teams[index].env.unwrapped.field.any())
        env.reset()
        env._teams[1].env.unwrapped.field[:] = 0
        frame = env.step(np.zeros((3, 2), dtype=int))
        assert frame.terminated.tolist() == [False, True, False]

    @pytest.mark.parametrize(
        "word", ["rware:rware-tiny-2ag-v2", "mpe:simple_spread_v3,max_cycles=10"], ids=["rware", "mpe"]
    )
    def test_the_other_environments_of_the_field_step(self, word: str) -> None:
        env = quiet(word, 2, reward="mean", horizon=10)
        rng, frame, twin = np.random.default_rng(0), env.reset(5), quiet(word, 2, reward="mean", horizon=10)
        np.testing.assert_array_equal(frame.obs, twin.reset(5).obs)
        for _ in range(10):
            frame = env.step(random_actions(frame.avail, rng))
        assert frame.truncated.all()
        assert frame.obs.dtype == np.float32
        env.close()

    def test_an_episode_is_the_same_after_its_generator_was_put_back(self) -> None:
        env = quiet("lbf:Foraging-5x5-2p-1f-coop-v3", 2, reward="sum")
        env.reset(0)
        state = env.get_rng_state()
        first = env.reset().obs
        other = quiet("lbf:Foraging-5x5-2p-1f-coop-v3", 2, reward="sum", seed=77)
        other.set_rng_state(state)
        np.testing.assert_array_equal(other.reset().obs, first)

    def test_a_picture_is_the_environments_own_or_said_to_be_missing(self) -> None:
        with pytest.raises(AssayError, match="Line draws no pictures"):
            quiet(Line, 1, reward="sum").render()
        env = quiet("mpe:simple_spread_v3", 1, reward="mean", render=True)
        env.reset(0)
        picture = env.render()
        assert picture.ndim == 3
        assert picture.dtype == np.uint8
        env.close()


class TestPyMARL:
    @pytest.mark.parametrize("five", [False, True], ids=["pymarl", "epymarl"])
    def test_both_forms_of_a_step_are_read(self, five: bool) -> None:
        env = make_vec_env(lambda: Squad(five=five), 2)
        spec = env.spec
        assert (spec.n_agents, spec.n_actions, spec.obs_size, spec.state_size, spec.horizon) == (3, 2, 2, 4, 3)
        frame = env.reset(0)
        assert frame.avail[0].tolist() == [[True, True], [True, False], [True, True]]
        env.step(first_actions(env))
        env.step(first_actions(env))
        step = env.step(first_actions(env))
        assert step.truncated.all()
        assert not step.terminated.any()
        assert step.reward.tolist() == [0.5, 0.5]

    def test_a_seed_is_given_where_it_is_taken(self) -> None:
        env = make_vec_env(Squad, 2)
        np.testing.assert_array_equal(env.reset(3).obs, make_vec_env(Squad, 2).reset(3).obs)
        assert make_vec_env(lambda: Squad(seeds=False), 1).reset(3).obs.shape == (1, 3, 2)

    def test_an_agent_without_an_action_is_refused(self) -> None:
        env = make_vec_env(lambda: Squad(stuck_at=1), 2)
        env.reset()
        with pytest.raises(InputError, match="environment 0, step 1: agent 1 has no available action"):
            env.step(first_actions(env))

    def test_an_agent_without_an_action_at_the_end_is_no_fault(self) -> None:
        env = make_vec_env(lambda: Squad(stuck_at=3), 1)
        env.reset()
        for _ in range(3):
            step = env.step(first_actions(env))
        assert step.avail.any(-1).all()

    def test_what_has_other_methods_is_refused(self) -> None:
        with pytest.raises(InputError, match="object is no environment that is known"):
            make_vec_env(object, 1)
        half = SimpleNamespace(get_env_info=dict)
        with pytest.raises(InputError, match="has no method reset"):
            make_vec_env(lambda: half, 1)

    def test_instances_are_closed(self) -> None:
        env = make_vec_env(Squad, 2)
        env.close()
        assert isinstance(env, InstanceEnv)
        assert all(team.env.closed for team in env._teams)


class TestGamesThatMustBeInstalled:
    """StarCraft and football are not here: modules with the same functions stand in for them."""

    def test_a_missing_package_is_named(self) -> None:
        for word, package in (("smac:3m", "smac"), ("smacv2:terran_5_vs_5", "smacv2"), ("football:drill", "gfootball")):
            with pytest.raises(AssayError, match=f"needs the package {package}"):
                make_vec_env(word, 1)
        if importlib.util.find_spec("jaxmarl") is None:
            with pytest.raises(MissingPackageError, match=r"SMAX needs the package jaxmarl.*assay.marl-jax"):
                make_vec_env("smax:3m", 1)

    def test_smac_and_smacv2_are_made_with_their_maps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[dict] = []

        def make(**given: Any) -> Squad:
            asked.append(given)
            return Squad()

        monkeypatch.setitem(sys.modules, "smac", ModuleType("smac"))
        monkeypatch.setitem(sys.modules, "smac.env", SimpleNamespace(StarCraft2Env=make))
        for name in ("smacv2", "smacv2.env", "smacv2.env.starcraft2"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        wrapper = SimpleNamespace(StarCraftCapabilityEnvWrapper=make)
        monkeypatch.setitem(sys.modules, "smacv2.env.starcraft2.wrapper", wrapper)
        assert isinstance(make_smac("3m", difficulty="7"), Squad)
        assert asked.pop() == {"map_name": "3m", "difficulty": "7"}
        assert make_vec_env("smacv2:zerg_5_vs_6", 1).spec.n_agents == 3
        config = asked.pop()
        assert config["map_name"] == "10gen_zerg"
        assert (config["capability_config"]["n_units"], config["capability_config"]["n_enemies"]) == (5, 6)
        with pytest.raises(InputError, match="the scenario is 'elves_5_vs_5'"):
            make_smacv2("elves_5_vs_5")

    def test_football_is_a_team_of_controlled_players(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Drill:
            observation_space = Box(-1, 1, (3, 115))
            action_space = gymnasium.spaces.MultiDiscrete([19, 19, 19])

            def reset(self) -> np.ndarray:
                self.time = 0
                return np.zeros((3, 115))

            def step(self, actions: list[int]) -> tuple:
                self.time += 1
                scored = actions == [12, 0, 0]
                return np.ones((3, 115)), np.full(3, float(scored)), scored or self.time == 4, {}

        asked: dict = {}

        def create(**given: Any) -> Drill:
            asked.update(given)
            return Drill()

        monkeypatch.setitem(sys.modules, "gfootball", ModuleType("gfootball"))
        monkeypatch.setitem(sys.modules, "gfootball.env", SimpleNamespace(create_environment=create))
        assert make_football("drill").n_actions == [19] * 3
        env = quiet("football:drill,n_agents=3,limit=4", 2)
        assert asked["number_of_left_players_agent_controls"] == 3
        assert (asked["env_name"], asked["rewards"]) == ("drill", "scoring")
        assert env.spec.state_size == 3 * 115
        env.reset()
        step = env.step(np.array([[12, 0, 0], [1, 1, 1]]))
        assert step.reward.tolist() == [1, 0]
        assert step.terminated.tolist() == [True, False]
        for _ in range(3):
            step = env.step(np.array([[0, 0, 0], [1, 1, 1]]))
        assert step.truncated.tolist() == [False, True]


class TestSMAX:
    """With arrays of NumPy for those of JAX, and the few functions of JAX that are used written out."""

    @pytest.fixture(autouse=True)
    def _jax(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def vmap(function: Any) -> Any:
            def mapped(*batches: Any) -> Any:
                sizes = [len(leaf) for leaf in leaves(batches)]
                return stacked([function(*(row(batch, i) for batch in batches)) for i in range(sizes[0])])

            return mapped

        def leaves(tree: Any) -> list:
            if isinstance(tree, dict):
                return [leaf for branch in tree.values() for leaf in leaves(branch)]
            if isinstance(tree, SimpleNamespace):
                return leaves(vars(tree))
            return [leaf for branch in tree for leaf in leaves(branch)] if isinstance(tree, tuple) else [tree]

        def row(tree: Any, i: int) -> Any:
            if isinstance(tree, dict):
                return {name: row(branch, i) for name, branch in tree.items()}
            if isinstance(tree, SimpleNamespace):
                return SimpleNamespace(**row(vars(tree), i))
            return tuple(row(branch, i) for branch in tree) if isinstance(tree, tuple) else tree[i]

        def stacked(trees: list) -> Any:
            first = trees[0]
            if isinstance(first, dict):
                return {name: stacked([tree[name] for tree in trees]) for name in first}
            if isinstance(first, SimpleNamespace):
                return SimpleNamespace(**stacked([vars(tree) for tree in trees]))
            if isinstance(first, tuple):
                return tuple(stacked([tree[i] for tree in trees]) for i in range(len(first)))
            return np.stack([np.asarray(tree) for tree in trees])

        random = SimpleNamespace(PRNGKey=lambda seed: seed, split=lambda key, n: np.arange(n) + key)
        jax = SimpleNamespace(jit=lambda function: function, vmap=vmap, random=random)
        monkeypatch.setitem(sys.modules, "jax", jax)

    class Battle:
        agents = ("ally_0", "ally_1")
        max_steps = 3

        def __init__(self, *, shared: bool = True) -> None:
            self.shared = shared

        def reset(self, key: int) -> tuple[dict, Any]:
            inner = SimpleNamespace(time=np.array(0), unit_alive=np.ones(3, dtype=bool))
            return self._seen(inner, key), SimpleNamespace(state=inner, start=np.array(key % 7))

        def step_env(self, key: int, state: Any, actions: dict) -> tuple:
            shot = actions["ally_0"] == 2 and actions["ally_1"] == 2
            alive = state.state.unit_alive.copy()
            alive[2] &= not shot
            inner = SimpleNamespace(time=state.state.time + 1, unit_alive=alive)
            rewards = {"ally_0": float(shot), "ally_1": float(shot) if self.shared else 5.0}
            done = not alive[2]
            dones = {"ally_0": False, "ally_1": False, "__all__": done}
            return self._seen(inner, key), SimpleNamespace(state=inner, start=state.start), rewards, dones, {}

        def get_avail_actions(self, state: Any) -> dict:
            return {agent: np.array([1, 0, 1]) for agent in self.agents}

        def _seen(self, inner: Any, key: int) -> dict:
            own = {agent: np.array([float(inner.time), float(key)]) for agent in self.agents}
            return {**own, "world_state": np.array([float(inner.time), 0.0, 1.0])}

    def test_all_instances_step_in_one_call_and_what_ended_keeps_its_last_moment(self) -> None:
        env = SMAXEnv(self.Battle(), 3, seed=1)
        assert (env.spec.n_agents, env.spec.n_actions, env.spec.obs_size, env.spec.state_size) == (2, 3, 2, 3)
        frame = env.reset(0)
        assert frame.avail[0].tolist() == [[True, False, True]] * 2
        step = env.step(np.array([[2, 2], [0, 2], [0, 0]]))
        assert step.reward.tolist() == [1, 0, 0]
        assert step.terminated.tolist() == [True, False, False]
        before = step
        step = env.step(np.array([[2, 2], [0, 2], [2, 2]]))
        assert step.reward.tolist() == [0, 0, 1]
        np.testing.assert_array_equal(step.obs[0], before.obs[0])
        step = env.step(np.array([[0, 0], [0, 0], [0, 0]]))
        assert step.terminated.tolist() == [True, False, True]
        assert step.truncated.tolist() == [False, True, False]

    def test_it_goes_on_as_it_would_have(self) -> None:
        env = SMAXEnv(self.Battle(), 2)
        env.reset(0)
        state = env.get_rng_state()
        first = env.reset().obs
        env.set_rng_state(state)
        np.testing.assert_array_equal(env.reset().obs, first)

    def test_a_factory_is_recognised_and_rewards_that_differ_are_refused(self) -> None:
        env = make_vec_env(lambda: self.Battle(shared=False), 2)
        assert isinstance(env, SMAXEnv)
        env.reset()
        with pytest.raises(InputError, match="reward='sum' or reward='mean'"):
            env.step(np.zeros((2, 2), dtype=int))
        env = make_vec_env(lambda: self.Battle(shared=False), 2, reward="mean")
        env.reset()
        assert env.step(np.zeros((2, 2), dtype=int)).reward.tolist() == [2.5, 2.5]


class TestRewards:
    def test_standardised_rewards_have_mean_0_and_deviation_1(self) -> None:
        rng = np.random.default_rng(0)
        env = StandardisedRewards(MatrixGame(np.array([[-20.0, -26.0], [-14.0, -20.0]]), 500), "full")
        seen, raw = [], []
        for _ in range(40):
            frame = env.reset()
            step = env.step(random_actions(frame.avail, rng))
            seen.append(step.reward)
            raw.append(step.info["raw_reward"])
        late = np.concatenate(seen[10:])
        assert abs(late.mean()) < 0.05
        assert abs(late.std() - 1) < 0.05
        everything = np.concatenate(raw).astype(np.float64)
        assert env.mean == pytest.approx(everything.mean())
        assert env.variance == pytest.approx(everything.var())

    def test_scale_alone_keeps_the_sign_and_a_saved_state_goes_on(self) -> None:
        env = make_vec_env("chain:3", 4, standardise="scale")
        assert isinstance(env, StandardisedRewards)
        env.reset()
        assert (env.step(np.zeros((4, 2), dtype=int)).reward == 8).all()
        other = make_vec_env("chain:3", 4, standardise="scale")
        other.set_rng_state(env.get_rng_state())
        assert (other.mean, other.variance, other.count) == (env.mean, env.variance, env.count)

    def test_ended_episodes_do_not_count(self) -> None:
        env = StandardisedRewards(ChainGame(2, 2))
        env.reset()
        env.step(np.array([[0, 0], [2, 2]]))
        env.step(np.array([[0, 0], [0, 0]]))
        assert env.count == 3

    def test_a_single_value_is_refused_where_rewards_differ(self) -> None:
        with pytest.raises(InputError, match=r"different rewards \(1, 2\)"):
            team_reward([1.0, 2.0], None)
        assert np.isnan(team_reward([float("nan"), float("nan")], None))


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("stag:3", r"the environment is 'stag:3'; expected one of chain, .* and a colon"),
        ("lbf", "a name after lbf:"),
        ("lbf:Foraging-9x9-v0", "Gymnasium has no environment 'Foraging-9x9-v0'"),
        ("lbf:Foraging-5x5-2p-1f-coop-v3,colour=red", "can't be made with colour=red"),
        ("staghunt:colour=red", "unexpected keyword argument 'colour'"),
        ("staghunt:6x6", "'staghunt:6x6' has a name; expected options alone"),
        ("staghunt:penalty", "has a name"),
        ("staghunt:penalty=-1,six", "'six' in 'staghunt:penalty=-1,six' is no option"),
        ("mpe:simple_walk_v9", "mpe2 has no environment 'simple_walk_v9'"),
        ("pettingzoo:json", "json has no function parallel_env"),
        ("pettingzoo:no.such", "no.such can't be imported"),
        ("factory:json:nothing", "can't be imported"),
        ("factory:json:__name__", "is no function"),
        ("matrix:absent.csv", "absent.csv: no such file"),
        ("chain:0", "the number of stages is 0"),
    ],
    ids=lambda value: value if ":" in value or value == "lbf" else "",
)
def test_words_for_environments_that_are_none_are_refused(word: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        make_vec_env(word, 1)


def test_words_have_options() -> None:
    env = make_vec_env("staghunt:grid=4x5,n_agents=3,penalty=-0.5,horizon=9", 2)
    assert isinstance(env, StagHunt)
    assert (env.grid, env.penalty, env.horizon, env.spec.n_agents) == ((4, 5), -0.5, 9, 3)
    assert make_vec_env("staghunt:", 1, horizon=7).spec.horizon == 7
    assert make_vec_env("factory:assay.marl.environments:StagHunt", 1).spec.n_actions == 6
    with pytest.raises(InputError, match="n is 0"):
        make_vec_env("staghunt:", 0)
    with pytest.raises(InputError, match="horizon is 0"):
        make_vec_env("staghunt:", 1, horizon=0)


def test_observation_spaces_that_are_no_arrays_are_refused() -> None:
    class Worded(Pair):
        def observation_space(self, agent: str) -> Any:
            return Dict({"text": Discrete(3)})

    with pytest.raises(InputError, match="the observations of agent left of pair are Dict"):
        make_vec_env(Worded, 1)
