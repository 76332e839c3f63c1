"""Cooperative multi-agent Q-learning that keeps a ranked set of joint actions and follows the optimum when it moves.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.marl.environments import ChainGame as ChainGame
    from assay.marl.environments import Frame as Frame
    from assay.marl.environments import MatrixGame as MatrixGame
    from assay.marl.environments import PettingZooView as PettingZooView
    from assay.marl.environments import StagHunt as StagHunt
    from assay.marl.environments import StandardisedRewards as StandardisedRewards
    from assay.marl.environments import Step as Step
    from assay.marl.environments import VecEnv as VecEnv
    from assay.marl.environments import make_vec_env as make_vec_env
    from assay.marl.learner import IQL as IQL
    from assay.marl.learner import QMIX as QMIX
    from assay.marl.learner import S2Q as S2Q
    from assay.marl.learner import VDN as VDN
    from assay.marl.learner import WQMIX as WQMIX
    from assay.marl.learner import Candidates as Candidates
    from assay.marl.learner import Evaluation as Evaluation
    from assay.marl.learner import Learner as Learner
    from assay.marl.learner import load_learner as load_learner
    from assay.marl.losses import S2QLoss as S2QLoss
    from assay.marl.mixers import QMixer as QMixer
    from assay.marl.mixers import QPlexMixer as QPlexMixer
    from assay.marl.mixers import VDNMixer as VDNMixer
    from assay.marl.monotone import MonotoneFit as MonotoneFit
    from assay.marl.monotone import additive_projection as additive_projection
    from assay.marl.monotone import monotone_projection as monotone_projection
    from assay.marl.one_step import OneStepRun as OneStepRun
    from assay.marl.one_step import OneStepSettings as OneStepSettings
    from assay.marl.one_step import train_one_step as train_one_step
    from assay.marl.ranking import Ranking as Ranking
    from assay.marl.ranking import successive_ranking as successive_ranking
    from assay.marl.replay import Episode as Episode
    from assay.marl.replay import EpisodeBatch as EpisodeBatch
    from assay.marl.replay import EpisodeReplay as EpisodeReplay
    from assay.marl.returns import lambda_return as lambda_return
    from assay.marl.settings import Settings as Settings
    from assay.marl.spec import EnvSpec as EnvSpec

__all__ = [  # noqa: RUF022 (the order of letters, which the floor plan asks for)
    "Candidates",
    "ChainGame",
    "EnvSpec",
    "Episode",
    "EpisodeBatch",
    "EpisodeReplay",
    "Evaluation",
    "Frame",
    "IQL",
    "Learner",
    "MatrixGame",
    "MonotoneFit",
    "OneStepRun",
    "OneStepSettings",
    "PettingZooView",
    "QMIX",
    "QMixer",
    "QPlexMixer",
    "Ranking",
    "S2Q",
    "S2QLoss",
    "Settings",
    "StagHunt",
    "StandardisedRewards",
    "Step",
    "VDN",
    "VDNMixer",
    "VecEnv",
    "WQMIX",
    "additive_projection",
    "lambda_return",
    "load_learner",
    "make_vec_env",
    "monotone_projection",
    "successive_ranking",
    "train_one_step",
]

_MODULE_OF = {
    "Candidates": "learner",
    "ChainGame": "environments",
    "EnvSpec": "spec",
    "Episode": "replay",
    "EpisodeBatch": "replay",
    "EpisodeReplay": "replay",
    "Evaluation": "learner",
    "Frame": "environments",
    "IQL": "learner",
    "Learner": "learner",
    "MatrixGame": "environments",
    "MonotoneFit": "monotone",
    "OneStepRun": "one_step",
    "OneStepSettings": "one_step",
    "PettingZooView": "environments",
    "QMIX": "learner",
    "QMixer": "mixers",
    "QPlexMixer": "mixers",
    "Ranking": "ranking",
    "S2Q": "learner",
    "S2QLoss": "losses",
    "Settings": "settings",
    "StagHunt": "environments",
    "StandardisedRewards": "environments",
    "Step": "environments",
    "VDN": "learner",
    "VDNMixer": "mixers",
    "VecEnv": "environments",
    "WQMIX": "learner",
    "additive_projection": "monotone",
    "lambda_return": "returns",
    "load_learner": "learner",
    "make_vec_env": "environments",
    "monotone_projection": "monotone",
    "successive_ranking": "ranking",
    "train_one_step": "one_step",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.marl' has no attribute '{name}'")
    value = getattr(import_module(f"assay.marl.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
