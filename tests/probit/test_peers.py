"""Other people's models: which choices they are given, what their draws mean, and what they predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import AssayError, MissingPackageError
from assay.probit import ChoiceData, peers
from assay.probit.baselines import Query
from assay.probit.geometry import normalise

R_STUB = """#!/bin/sh
[ "$1" = -e ] && exit 0
cp "$3" "{kept}"
printf '{draws}' > "$4"
exit {status}
"""


@pytest.fixture(autouse=True)
def _look_for_r_again() -> None:
    peers.lacking_r.cache_clear()


def fake_r(folder: Path, monkeypatch: pytest.MonkeyPatch, *, draws: str = "", status: int = 0) -> Path:
    """A program called Rscript that keeps the table it is given and answers with these draws."""
    program, kept = folder / "Rscript", folder / "given.csv"
    program.write_text(R_STUB.format(kept=kept, draws=draws, status=status))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return kept


def test_rankings_are_taken_apart_into_choices_of_one_person() -> None:
    data = ChoiceData.from_rankings([["a", "b", "c"], ["b", ["a", "c"]], [["a", "b"], "c"], ["c", "a"]])
    shown, people = peers.exploded(data)
    choices = sorted((person, *row) for person, row in zip(people.tolist(), shown.tolist(), strict=True))
    assert choices == [(0, 0, 1, 2), (0, 1, 2, -1), (1, 1, 0, 2), (3, 2, 0, -1)]


def test_constants_without_spread_predict_as_plackett_luce_whatever_the_context() -> None:
    strength = np.array([0.7, 0.0, -0.4])
    queries = [Query(((2,),), 0, 1), Query((), 1, 2)]
    found = peers.predict_by_constants(strength, np.zeros((3, 3)), queries, seed=0)
    assert found == pytest.approx([1 / (1 + np.exp(-0.7)), 1 / (1 + np.exp(-0.4))])


def test_a_context_weighs_drawn_people_by_how_likely_they_gave_it() -> None:
    covariance = np.array([[2.0, 1.5, 0.0, 0.0], [1.5, 2.0, 0.0, 0.0], [0, 0, 1.0, 0.5], [0, 0, 0.5, 1.0]])
    mean = np.array([0.2, 0.0, -0.1, 0.3])
    rng = np.random.default_rng(5)
    utilities = rng.multivariate_normal(mean, covariance, 400_000) + rng.gumbel(size=(400_000, 4))
    agree = utilities[:, 0] > utilities[:, 2]
    brute = (utilities[agree, 1] > utilities[agree, 3]).mean()
    (found,) = peers.predict_by_constants(mean, covariance, [Query(((0,), (2,)), 1, 3)], seed=1)
    assert found == pytest.approx(brute, abs=0.02)
    assert brute > (utilities[:, 1] > utilities[:, 3]).mean() + 0.02


def test_a_mixed_logit_finds_the_constants_of_its_own_people() -> None:
    pytest.importorskip("xlogit")
    rng = np.random.default_rng(0)
    mean = np.array([0.8, -0.5, 0.0])
    people = mean + rng.standard_normal((4000, 3)) * [1.5, 1.0, 0.0] + rng.gumbel(size=(4000, 3))
    found, covariance = peers.mixed_logit(ChoiceData.from_rankings(np.argsort(-people, axis=1)), seed=0)
    assert found == pytest.approx(mean, abs=0.15)
    assert np.sqrt(np.diag(covariance)) == pytest.approx([1.5, 1.0, 0.0], abs=0.35)


def test_draws_of_mnp_are_read_as_means_and_covariances_of_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = fake_r(tmp_path, monkeypatch, draws="m1,m2,s11,s12,s22\\n1,2,0.5,0.1,1.5\\n3,4,0.7,0.2,1.3\\n")
    means, covariances = peers.mnp(np.array([[1.0, 2.0, 0.0], [3.0, 3.0, 1.0]]), seed=0)
    assert kept.read_text().splitlines()[0] == "item0,item1,item2"
    assert np.loadtxt(kept, delimiter=",", skiprows=1).tolist() == [[1, 2, 0], [3, 3, 1]]
    assert means.tolist() == [[1, 2], [3, 4]]
    assert covariances[1].tolist() == [[0.7, 0.2], [0.2, 1.3]]


def test_bayesm_is_given_the_best_items_of_those_who_have_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = fake_r(tmp_path, monkeypatch, draws="b1,b2,s1,s2,s3,s4\\n1,2,1,0.1,0.1,2\\n")
    ratings = np.array([[1.0, 2.0, 0.0], [3.0, 3.0, 1.0], [0.0, 1.0, 5.0]])
    means, covariances = peers.bayesm(ratings, seed=0)
    assert np.loadtxt(kept, delimiter=",", skiprows=1).tolist() == [[2, 3], [3, 3]]
    assert (means.tolist(), covariances.tolist()) == ([[1, 2]], [[[1, 0.1], [0.1, 2]]])


def test_pooled_draws_of_one_model_are_that_model_in_any_scale() -> None:
    mu, covariance = normalise([0.4, 0.1, -0.5], [[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]])
    contrast = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    scales = [0.5, 1.0, 3.0]
    means = np.array([scale * contrast @ mu for scale in scales])
    covariances = np.array([scale**2 * contrast @ covariance @ contrast.T for scale in scales])
    found = peers.pooled(means, covariances)
    assert found[0] == pytest.approx(mu, abs=1e-12)
    assert found[1] == pytest.approx(covariance, abs=1e-12)


def test_what_r_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peers.lacking_r("MNP") == "R package MNP"
    with pytest.raises(MissingPackageError, match="MNP"):
        peers.mnp(np.zeros((2, 3)), seed=0)


def test_what_r_says_of_a_failure_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_r(tmp_path, monkeypatch, status=3)
    with pytest.raises(AssayError, match="R's MNP failed"):
        peers.mnp(np.zeros((2, 3)), seed=0)
