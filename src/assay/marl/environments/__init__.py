"""Environments: three of our own that step many instances at once, and adapters for what people have."""

from assay.marl.environments.chain import ChainGame
from assay.marl.environments.gymnasium import GymnasiumTeam
from assay.marl.environments.instances import InstanceEnv, Moment, Team
from assay.marl.environments.making import make_vec_env
from assay.marl.environments.matrix import MatrixGame
from assay.marl.environments.pettingzoo import PettingZooTeam, PettingZooView
from assay.marl.environments.pymarl import FootballTeam, PyMARLTeam
from assay.marl.environments.smax import SMAXEnv
from assay.marl.environments.stag_hunt import StagHunt
from assay.marl.environments.standardised import StandardisedRewards
from assay.marl.environments.vector import Frame, Step, VecEnv, random_actions

__all__ = [
    "ChainGame",
    "FootballTeam",
    "Frame",
    "GymnasiumTeam",
    "InstanceEnv",
    "MatrixGame",
    "Moment",
    "PettingZooTeam",
    "PettingZooView",
    "PyMARLTeam",
    "SMAXEnv",
    "StagHunt",
    "StandardisedRewards",
    "Step",
    "Team",
    "VecEnv",
    "make_vec_env",
    "random_actions",
]
