"""Correlated preferences from rankings and best-of-three answers: who likes what together.

The names below are loaded when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.probit.bivariate import bvn_cdf as bvn_cdf
    from assay.probit.choice_files import read_choices as read_choices
    from assay.probit.choices import ChoiceData as ChoiceData
    from assay.probit.geometry import normalise as normalise
    from assay.probit.head import BestOfThreeTrainer as BestOfThreeTrainer
    from assay.probit.head import CompletionCollator as CompletionCollator
    from assay.probit.head import CorrelatedProbitHead as CorrelatedProbitHead
    from assay.probit.head import CorrelatedRewardModel as CorrelatedRewardModel
    from assay.probit.head import best_of_three_loss as best_of_three_loss
    from assay.probit.head import choice_loss as choice_loss
    from assay.probit.head import pairwise_loss as pairwise_loss
    from assay.probit.head import personal_reward as personal_reward
    from assay.probit.identification import Identifiability as Identifiability
    from assay.probit.identification import PairWitness as PairWitness
    from assay.probit.identification import identifiability as identifiability
    from assay.probit.identification import pair_witness as pair_witness
    from assay.probit.information import Design as Design
    from assay.probit.information import design as design
    from assay.probit.information import sample_size as sample_size
    from assay.probit.model import CorrelatedProbit as CorrelatedProbit
    from assay.probit.model import ProbitWarning as ProbitWarning
    from assay.probit.model import Slate as Slate
    from assay.probit.model import StandardErrors as StandardErrors
    from assay.probit.person import Posterior as Posterior

__all__ = [
    "BestOfThreeTrainer",
    "ChoiceData",
    "CompletionCollator",
    "CorrelatedProbit",
    "CorrelatedProbitHead",
    "CorrelatedRewardModel",
    "Design",
    "Identifiability",
    "PairWitness",
    "Posterior",
    "ProbitWarning",
    "Slate",
    "StandardErrors",
    "best_of_three_loss",
    "bvn_cdf",
    "choice_loss",
    "design",
    "identifiability",
    "normalise",
    "pair_witness",
    "pairwise_loss",
    "personal_reward",
    "read_choices",
    "sample_size",
]

_MODULE_OF = {
    "BestOfThreeTrainer": "head",
    "ChoiceData": "choices",
    "CompletionCollator": "head",
    "CorrelatedProbit": "model",
    "CorrelatedProbitHead": "head",
    "CorrelatedRewardModel": "head",
    "Design": "information",
    "Identifiability": "identification",
    "PairWitness": "identification",
    "Posterior": "person",
    "ProbitWarning": "model",
    "Slate": "model",
    "StandardErrors": "model",
    "best_of_three_loss": "head",
    "bvn_cdf": "bivariate",
    "choice_loss": "head",
    "design": "information",
    "identifiability": "identification",
    "normalise": "geometry",
    "pair_witness": "identification",
    "pairwise_loss": "head",
    "personal_reward": "head",
    "read_choices": "choice_files",
    "sample_size": "information",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay.probit' has no attribute '{name}'")
    value = getattr(import_module(f"assay.probit.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
