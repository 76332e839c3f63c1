"""The estimator: what it accepts, refuses, keeps in files, and hands to torch."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from assay.core.errors import InputError
from assay.memory import (
    AssociativeMemoryModule,
    CapacityWarning,
    DenseAssociativeMemory,
    DuplicateWarning,
    PrecisionWarning,
    audit,
    plan,
)
from assay.memory.patterns import Decorrelation, correlated_patterns, corrupt, encode, random_patterns

X = random_patterns(200, 64, seed=11)
CUES = corrupt(X[:12], flips=6, rng=np.random.default_rng(0))


@pytest.mark.parametrize("coding", ["pm1", "01", "bool"])
def test_states_come_back_in_the_coding_of_the_patterns(coding):
    memory = DenseAssociativeMemory(4).fit(encode(X, coding))
    assert memory.coding_ == coding
    result = memory.recall(encode(CUES, coding))
    assert np.array_equal(result.states, encode(X[:12], coding))
    assert result.states.dtype == {"pm1": np.int8, "01": np.uint8, "bool": np.bool_}[coding]
    assert np.array_equal(memory.transform(encode(CUES, coding)), result.states)
    assert np.array_equal(memory.patterns(3, 5), encode(X[3:5], coding))


def test_packed_octets_are_read_as_numpy_packs_them():
    wide = random_patterns(50, 61, seed=1)
    octets = np.packbits(wide > 0, axis=1)
    memory = DenseAssociativeMemory(3, packed=True, n_bits=61).fit(octets)
    assert memory.n_features_in_ == 61
    assert np.array_equal(memory.recall(octets[:5]).states, (wide[:5] > 0))
    with pytest.raises(InputError, match="64 packed bits"):
        DenseAssociativeMemory(3, packed=True, n_bits=50).fit(octets)


def test_erased_bits_are_restored_and_a_cue_of_erasures_only_stays_undecided():
    cue = X[:3].copy()
    cue[:, ::3] = 0
    memory = DenseAssociativeMemory(4).fit(X)
    assert np.array_equal(memory.recall(cue).states, X[:3])
    assert np.array_equal(DenseAssociativeMemory(4).fit(X > 0).recall(cue).states, X[:3] > 0)
    nothing = np.zeros((1, 64), dtype=np.int8)
    assert np.array_equal(DenseAssociativeMemory(3).fit(X).recall(nothing).states, nothing)


def test_partial_fit_is_fit_of_everything():
    parts = DenseAssociativeMemory(4).partial_fit(X[:30]).partial_fit(X[30:101]).partial_fit(X[101:])
    whole = DenseAssociativeMemory(4).fit(X)
    assert parts.n_patterns_ == 200
    assert parts.load_ == whole.load_
    assert np.array_equal(parts.recall(CUES).states, whole.recall(CUES).states)


def test_history_is_the_overlap_with_the_target_after_each_sweep():
    memory = DenseAssociativeMemory(3).fit(random_patterns(8738, 512, seed=1))
    stored = memory.patterns(0, 70)
    result = memory.recall(corrupt(stored, flips=77, rng=np.random.default_rng(0)), history=True, targets=np.arange(70))
    assert result.history.shape[0] == 70
    np.testing.assert_allclose(result.history[:, 0], 1 - 2 * 77 / 512)
    np.testing.assert_allclose(result.history[:, -1], (result.states.astype(int) * stored).mean(axis=1))
    with pytest.raises(InputError, match="targets reach"):
        memory.recall(stored[:1], targets=[8738])
    with pytest.raises(InputError, match="targets has shape"):
        memory.recall(stored[:1], targets=[1, 2])


def test_nearest_and_distance_are_those_of_the_final_state():
    result = DenseAssociativeMemory(4).fit(X).recall(CUES)
    assert result.nearest.tolist() == list(range(12))
    distances = (result.states[:, None] != X[None]).sum(axis=2)
    assert np.array_equal(result.distance, distances.min(axis=1))


def test_progress_ends_with_all_cues():
    calls = []
    DenseAssociativeMemory(3).fit(X).recall(np.repeat(CUES, 12, axis=0), progress=lambda *done: calls.append(done))
    assert calls == [(64, 144), (128, 144), (144, 144)]


def bad(value, row=3, column=7):
    values = X.astype(np.float64).copy()
    values[row, column] = value
    return values


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DenseAssociativeMemory().fit(bad(np.nan)), r"X\[3, 7\] is NaN"),
        (lambda: DenseAssociativeMemory().fit(bad(np.inf)), r"X\[3, 7\] is infinite"),
        (lambda: DenseAssociativeMemory().fit(bad(2)), r"X\[3, 7\] is 2; expected 0 or 1, or -1 or \+1"),
        (lambda: DenseAssociativeMemory().fit(bad(0)), r"X\[3, 7\] is 0 among -1 and \+1"),
        (lambda: DenseAssociativeMemory().fit(np.empty((0, 5))), "0 samples"),
        (lambda: DenseAssociativeMemory().fit(np.empty((5, 0))), "0 features"),
        (lambda: DenseAssociativeMemory().fit([1, 0, 1]), r"shape \(3,\).*reshape"),
        (lambda: DenseAssociativeMemory().fit(np.ones((2, 2, 2))), "a matrix"),
        (lambda: DenseAssociativeMemory().fit([["a", "b"]]), "dtype"),
        (lambda: DenseAssociativeMemory(1).fit(X), "order is 1"),
        (lambda: DenseAssociativeMemory(2.5).fit(X), "order is 2.5"),
        (lambda: DenseAssociativeMemory(True).fit(X), "order is True"),
        (lambda: DenseAssociativeMemory(kind="magic").fit(X), "kind is 'magic'; expected one of krotov"),
        (lambda: DenseAssociativeMemory(update="both").fit(X), "update is 'both'"),
        (lambda: DenseAssociativeMemory(tie="-1").fit(X), "tie is '-1'"),
        (lambda: DenseAssociativeMemory(max_sweeps=0).fit(X), "max_sweeps is 0"),
        (lambda: DenseAssociativeMemory(temperature=-1).fit(X), "temperature is -1"),
        (lambda: DenseAssociativeMemory(beta=0).fit(X), "beta is 0"),
        (lambda: DenseAssociativeMemory(n_jobs=0).fit(X), "n_jobs is 0"),
        (lambda: DenseAssociativeMemory(kind="exp", temperature=1.0).fit(X), "temperature is 1.0 for kind='exp'"),
        (lambda: DenseAssociativeMemory(kind="softmax", update="asynchronous").fit(X), "continuous"),
        (lambda: DenseAssociativeMemory(decorrelate="magic").fit(X), "decorrelate is 'magic'"),
        (lambda: DenseAssociativeMemory(decorrelate="project", n_projected=0).fit(X), "n_projected is 0"),
        (lambda: DenseAssociativeMemory(4, "abbott").fit(X[:, :3]), "order is 4 for patterns of 3 bits"),
        (lambda: DenseAssociativeMemory(tie="random", random_state=-1).fit(X).recall(CUES), "random_state is -1"),
        (lambda: DenseAssociativeMemory().fit(X).recall(CUES[:, :-1]), "cues has 63 features.*expecting 64"),
        (lambda: DenseAssociativeMemory().fit(X).recall(CUES * 3), r"cues\[0, 0\]"),
        (lambda: DenseAssociativeMemory().fit(X).recall((CUES > 0).astype(int)), "0 and 1 only"),
        (lambda: DenseAssociativeMemory().fit(X).partial_fit(X[:, :5]), "X has 5 features.*expecting 64"),
        (lambda: DenseAssociativeMemory().fit(X > 0).partial_fit(bad(2)), "is 2"),
        (lambda: plan(64, 100, corruption=0.7), "corruption is 0.7"),
        (lambda: plan(0, 100, corruption=0.1), "bits is 0"),
        (lambda: audit(DenseAssociativeMemory(kind="exp").fit(X)), "kind is 'exp'"),
        (lambda: audit(DenseAssociativeMemory(4).fit(X), sample=0), "sample is 0"),
        (lambda: audit(DenseAssociativeMemory(4).fit(X), seed=-1), "seed is -1"),
        (lambda: AssociativeMemoryModule(X, kind="krotov", trainable=True), "trainable is True"),
        (lambda: AssociativeMemoryModule(X)(torch.ones(2, 3)), "3 features"),
    ],
)
def test_wrong_input_is_named_in_one_line(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_nothing_is_recalled_before_anything_is_stored():
    with pytest.raises(NotFittedError):
        DenseAssociativeMemory().recall(CUES)


def test_warnings_say_what_is_wrong_and_the_patterns_are_stored_all_the_same():
    with pytest.warns(CapacityWarning, match="alpha' = 3.12, beyond its capacity of 0.138"):
        assert DenseAssociativeMemory(2).fit(X).n_patterns_ == 200
    copies = np.concatenate([X[:20], X[3:5], X[3:4]])
    with pytest.warns(
        DuplicateWarning, match="3 of 23 patterns are copies of earlier ones: pattern 20 equals pattern 3"
    ):
        memory = DenseAssociativeMemory(4).fit(copies)
    assert (memory.n_duplicates_, memory.first_copy_) == (3, (20, 3))
    wide = random_patterns(8, 2048, seed=0)
    with pytest.warns(PrecisionWarning, match=r"beyond 2\*\*53"):
        memory = DenseAssociativeMemory(6).fit(wide)
    assert np.array_equal(memory.recall(corrupt(wide, flips=300, rng=np.random.default_rng(0))).states, wide)


def test_a_loaded_memory_is_the_saved_one(tmp_path: Path):
    memory = DenseAssociativeMemory(4, "abbott", max_sweeps=17, tie="+1", random_state=3, decorrelate="drop")
    flags = np.column_stack([X > 0, np.ones(200, dtype=bool)])
    memory.fit(flags).save(tmp_path / "a memory ü.dam")
    loaded = DenseAssociativeMemory.load(tmp_path / "a memory ü.dam")
    assert loaded.get_params() == memory.get_params()
    assert (loaded.load_, loaded.coding_, loaded.n_features_in_) == (memory.load_, "bool", 65)
    cues = np.column_stack([CUES > 0, np.zeros(12, dtype=bool)])
    assert np.array_equal(loaded.recall(cues).states, memory.recall(cues).states)


def test_files_of_another_kind_version_or_state_are_refused(tmp_path: Path):
    from safetensors.numpy import save_file

    memory = DenseAssociativeMemory(3).fit(X)
    good = memory.save(tmp_path / "good.dam")
    with pytest.raises(InputError, match="exists already"):
        memory.save(good)
    memory.save(good, force=True)
    with pytest.raises(InputError, match="unknown ending"):
        memory.save(tmp_path / "good.npz")
    whole = good.read_bytes()
    cases = {
        "text.dam": (b"not a memory", "damaged or no memory"),
        "short.dam": (whole[: len(whole) // 2], "damaged or no memory"),
        "empty.dam": (b"", "the file is empty"),
        "newer.dam": (whole.replace(b'"version":"1"', b'"version":"9"'), "is of version 9; expected version 1"),
    }
    for name, (data, message) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=message):
            DenseAssociativeMemory.load(tmp_path / name)
    save_file({"rows": np.zeros(3)}, tmp_path / "other.dam")
    with pytest.raises(InputError, match="isn't a memory"):
        DenseAssociativeMemory.load(tmp_path / "other.dam")
    with pytest.raises(InputError, match="no such file"):
        DenseAssociativeMemory.load(tmp_path / "none.dam")


def test_an_interrupted_save_leaves_the_old_file_whole(tmp_path: Path, monkeypatch):
    good = DenseAssociativeMemory(3).fit(X).save(tmp_path / "codes.dam")
    before = good.read_bytes()

    write = Path.write_bytes

    def interrupted(path, data):
        write(path, data[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        DenseAssociativeMemory(3).fit(X[:5]).save(good, force=True)
    assert good.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["codes.dam"]


def test_it_is_a_scikit_learn_estimator():
    memory = DenseAssociativeMemory(4, max_sweeps=9)
    copy = clone(memory.fit(X))
    assert copy.get_params() == memory.get_params()
    assert not hasattr(copy, "n_patterns_")
    assert np.array_equal(make_pipeline(copy).fit(X).transform(CUES), X[:12])
    assert memory.set_params(order=3).order == 3
    assert repr(memory) == "DenseAssociativeMemory(max_sweeps=9)"


def test_patterns_take_two_bits_a_bit():
    memory = DenseAssociativeMemory(3).fit(random_patterns(6400, 512, seed=0))
    assert 8 * memory.nbytes_ / (6400 * 512) <= 2.2


@pytest.mark.parametrize("kind", ["krotov", "abbott", "exact", "rectified", "exp"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8])
def test_the_torch_module_gives_the_bits_of_the_estimator(kind, dtype):
    patterns = random_patterns(400, 48, seed=2)
    cues = corrupt(patterns[:9], flips=9, erasures=4, rng=np.random.default_rng(1))
    module = AssociativeMemoryModule(torch.from_numpy(patterns), 3, kind=kind, max_sweeps=1)
    answer = module(torch.from_numpy(cues).to(dtype))
    expected = DenseAssociativeMemory(3, kind, max_sweeps=1, beta=1.0).fit(patterns).recall(cues).states
    assert answer.dtype == dtype
    assert np.array_equal(answer.numpy(), expected)
    batched = module(torch.from_numpy(cues).to(dtype).reshape(3, 3, 48))
    assert torch.equal(batched.reshape(9, 48), answer)


def test_tensors_come_back_as_tensors():
    memory = DenseAssociativeMemory(4).fit(torch.from_numpy(X))
    answer = memory.recall(torch.from_numpy(CUES).float()).states
    assert isinstance(answer, torch.Tensor)
    assert answer.dtype == torch.float32
    assert np.array_equal(answer.numpy(), X[:12])


def test_softmax_is_one_attention_read_out_and_differentiable():
    patterns = torch.from_numpy(X[:40]).double()
    cues = torch.from_numpy(CUES).double().requires_grad_()
    memory = DenseAssociativeMemory(3, "softmax", beta=0.5, max_sweeps=1).fit(X[:40])
    states = memory.recall(cues).states
    expected = torch.softmax(0.5 * cues @ patterns.T, dim=-1) @ patterns
    torch.testing.assert_close(states, expected)
    states.sum().backward()
    assert cues.grad is not None
    np.testing.assert_allclose(memory.recall(CUES).states, expected.detach().numpy(), atol=1e-12)
    module = AssociativeMemoryModule(patterns, kind="softmax", beta=0.5, max_sweeps=1, trainable=True)
    module(cues.detach()).sum().backward()
    assert module.patterns.grad is not None
    assert torch.autograd.gradcheck(module, (cues.detach()[:2].requires_grad_(),))


def test_softmax_settles_on_the_pattern():
    result = DenseAssociativeMemory(3, "softmax", beta=1.0).fit(X).recall(CUES)
    assert result.converged.all()
    assert (result.distance == 0).all()
    np.testing.assert_allclose(result.states, X[:12], atol=1e-6)


@pytest.mark.parametrize("kind", ["krotov", "abbott", "rectified"])
def test_energies_are_sums_of_powers_of_overlaps(kind):
    memory = DenseAssociativeMemory(3, kind).fit(X)
    overlaps = X.astype(int) @ CUES[0].astype(int)
    if kind == "abbott":
        expected = sum(y**3 - (3 * 64 - 2) * y for y in overlaps.tolist())
    else:
        expected = sum(max(y, 0) ** 3 if kind == "rectified" else y**3 for y in overlaps.tolist())
    assert memory.energy(CUES[:1])[0] == pytest.approx(-expected / (2 * 64**2))


def test_dropped_bits_are_put_back_and_projected_codes_name_their_pattern():
    wide = np.column_stack([X, np.ones((200, 6), dtype=np.int8), -np.ones((200, 2), dtype=np.int8)])
    cues = np.column_stack([CUES, -np.ones((12, 8), dtype=np.int8)])
    memory = DenseAssociativeMemory(4, decorrelate="drop").fit(wide)
    assert np.array_equal(memory.recall(cues).states, wide[:12])
    projected = DenseAssociativeMemory(4, decorrelate="project", n_projected=128, random_state=1).fit(X)
    result = projected.recall(CUES)
    assert result.states.shape == (12, 128)
    assert result.nearest.tolist() == list(range(12))
    with pytest.raises(InputError, match="all bits are constant"):
        Decorrelation.learn(np.ones((3, 4), dtype=np.int8), method="drop")


def test_random_patterns_are_made_again_block_by_block_and_are_fair():
    whole = random_patterns(20_000, 70, seed=9)
    assert np.array_equal(random_patterns(9000, 70, seed=9, first=5000), whole[5000:14_000])
    assert abs(whole.mean()) < 4 / np.sqrt(whole.size)
    assert not np.array_equal(whole[:8192], random_patterns(8192, 70, seed=10))


def test_corruption_flips_and_erases_exact_numbers():
    cues = corrupt(X, flips=7, erasures=5, rng=np.random.default_rng(0))
    assert ((cues == -X).sum(axis=1) == 7).all()
    assert ((cues == 0).sum(axis=1) == 5).all()
    with pytest.raises(InputError, match="together at most 64"):
        corrupt(X, flips=60, erasures=5, rng=np.random.default_rng(0))


def test_the_plan_recommends_the_lowest_order_that_does():
    found = plan(1024, 70_000, corruption=0.15, paths=1500, orders=(2, 3, 4))
    assert found.recommended == 4  # order 3 leaves two per cent of the bits wrong
    assert plan(1024, 70_000, corruption=0.15, target_error=0.03, paths=1500, orders=(3,)).recommended == 3
    assert plan(64, 10**6, corruption=0.1, paths=1000, orders=(2, 3)).recommended is None
    three = found.forecasts[1]
    assert three.load == pytest.approx(0.2003, abs=1e-4)
    assert three.margins["rs"] == pytest.approx(0.25219 / 0.2003, abs=2e-3)
    assert three.nbytes <= 2.2 * 70_000 * 1024 / 8
    assert "recommended: order 4" in str(found)


def test_the_audit_passes_independent_patterns_and_not_correlated_ones():
    fair = audit(DenseAssociativeMemory(3).fit(random_patterns(8738, 512, seed=4)))
    assert fair.applies
    assert fair.crosstalk_ratio == pytest.approx(1, abs=0.1)
    assert fair.bias_ratio == pytest.approx(1, abs=0.1)
    assert fair.overlap_ratio == pytest.approx(1, abs=0.05)
    assert fair.curve_error < 0.02
    assert "theory applies" in str(fair)
    near = correlated_patterns(2000, 256, groups=20, flip=0.2, rng=np.random.default_rng(0))
    off = audit(DenseAssociativeMemory(3).fit(near))
    assert not off.applies
    assert off.crosstalk_ratio > 100
    assert "does not apply" in str(off)
    assert off.overlap_ratio > 2


def test_the_audit_of_order_two_and_with_given_cues():
    memory = DenseAssociativeMemory(2).fit(random_patterns(60, 1000, seed=4))
    cues = corrupt(memory.patterns(0, 10), flips=100, rng=np.random.default_rng(0))
    report = audit(memory, cues, targets=np.arange(10))
    assert report.cues == 10
    assert report.exact_recalls > 0.8
    assert report.measured[0] == pytest.approx(0.8)
    assert report.applies


def test_projection_makes_patterns_fairer():
    rng = np.random.default_rng(0)
    biased = np.where(rng.random((800, 128)) < 0.8, 1, -1).astype(np.int8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = DenseAssociativeMemory(3).fit(biased)
    plain, projected = audit(memory), audit(memory, decorrelate="project", n_projected=256)
    assert projected.bias_ratio < plain.bias_ratio / 5
    assert projected.crosstalk_ratio < plain.crosstalk_ratio / 5


def test_one_pattern_alone_has_no_crosstalk_that_could_break_the_theory():
    report = audit(DenseAssociativeMemory().fit(X[:1]))
    assert (report.crosstalk_ratio, report.applies) == (1.0, True)
