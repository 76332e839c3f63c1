"""States as named tensors, in memory and in files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.core.errors import InputError
from assay.lact.fast_weights import FastState, start
from assay.lact.functional import lact
from assay.lact.state import LaCTState, config_hash
from tests.lact.problems import betas, problem

CONFIG = config_hash({"dim": 8})


@pytest.fixture
def state() -> LaCTState:
    """Of two sequences with two heads."""
    p = problem(11, rows=4)
    momentum = betas("muon_momentum", p)
    _, state = lact(*p, chunk_size=8, rule="muon_momentum", momentum=momentum, prenorm=True, return_state=True)
    return LaCTState.of_fast(state, heads=2, config=CONFIG)


def flat(state: FastState) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    state.map(lambda one: found.append(one) or one)
    return found


def test_a_state_of_a_memory_comes_back(state: LaCTState) -> None:
    again = LaCTState.of_fast(state.fast(), heads=2, config=CONFIG)
    assert set(again) == set(state) and len(state) == 17
    assert all(torch.equal(again[name], state[name]) for name in state)
    assert {one.shape[0] for one in state.values()} == {2} and state.batch_size == 2


def test_a_file_holds_what_was_saved(state: LaCTState, tmp_path: Path) -> None:
    file = state.save(tmp_path / "a memory.safetensors", note={"source": "läß.txt"})
    loaded = LaCTState.load(file, config=CONFIG)
    assert set(loaded) == set(state)
    assert all(torch.equal(loaded[name], state[name]) and loaded[name].dtype == state[name].dtype for name in state)
    assert LaCTState.note_of(file) == {"source": "läß.txt"}
    assert [one.name for one in tmp_path.iterdir()] == ["a memory.safetensors"]


def test_a_closed_memory_is_saved_with_zeros(tmp_path: Path) -> None:
    fresh = LaCTState.of_fast(start(problem(1).w_init), heads=1)
    loaded = LaCTState.load(fresh.save(tmp_path / "fresh.safetensors"))
    assert loaded.nbytes == fresh.nbytes
    assert not loaded["pending.w0"].any() and loaded["pending.w0"].shape == fresh["weights.w0"].shape


def test_reading_goes_on_from_a_file(tmp_path: Path) -> None:
    p = problem(30)
    whole = lact(*p, chunk_size=8)
    _, state = lact(*p.tokens(slice(0, 13)), chunk_size=8, return_state=True)
    file = LaCTState.of_fast(state, heads=1).save(tmp_path / "half.safetensors")
    rest = lact(*p.tokens(slice(13, 30)), chunk_size=8, state=LaCTState.load(file).fast())
    torch.testing.assert_close(rest, whole[:, 13:], atol=1e-12, rtol=0)


def test_a_fork_shares_nothing_and_beams_choose_rows(state: LaCTState) -> None:
    fork = state.clone()
    fork["weights.w1"].zero_()
    assert state["weights.w1"].any()
    beams = state.index_select([1, 1, 0])
    assert torch.equal(beams["weights.w0"], state["weights.w0"][[1, 1, 0]])
    assert torch.equal(beams["filled"], state["filled"][[1, 1, 0]])


def test_whole_numbers_stay_where_and_what_they_are(state: LaCTState) -> None:
    moved = state.to("meta", torch.float32)
    assert moved["weights.w0"].device.type == "meta" and moved["weights.w0"].dtype == torch.float32
    assert moved["filled"].device.type == "cpu" and moved["filled"].dtype == torch.int64


def test_detached_means_cut_from_the_graph(state: LaCTState) -> None:
    grown = state.map(lambda one: one.requires_grad_() * 1 if one.is_floating_point() else one)
    assert grown["weights.w0"].requires_grad
    assert not any(one.requires_grad for one in grown.detach().values())


def test_parts_are_found_by_name(state: LaCTState) -> None:
    whole = LaCTState.of_parts({"layers.1": state, "layers.10": state.clone()}, config=CONFIG)
    assert len(whole) == 2 * len(state)
    assert set(whole.part("layers.1")) == set(state)
    assert whole.nbytes == 2 * state.nbytes == 2 * sum(one.nbytes for one in state.values())
    assert "config=" in repr(whole)


def test_another_configuration_is_refused(state: LaCTState, tmp_path: Path) -> None:
    other = config_hash({"dim": 9})
    file = state.save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=r"m\.safetensors: is of another configuration"):
        LaCTState.load(file, config=other)
    with pytest.raises(InputError, match="the state is of another configuration"):
        state.require(other)


def test_bad_files_are_refused(state: LaCTState, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(InputError, match=r"ends in \.safetensors"):
        state.save(tmp_path / "m.pt")
    file = state.save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match="exists"):
        state.save(file)
    state.save(file, force=True)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged"):
        LaCTState.load(file)
    save_file({"x": torch.ones(1)}, str(tmp_path / "other.safetensors"))
    with pytest.raises(InputError, match="holds no state of a memory"):
        LaCTState.load(tmp_path / "other.safetensors")
    save_file(
        {"x": torch.ones(1)}, str(tmp_path / "new.safetensors"), metadata={"format": "assay.lact.state", "version": "9"}
    )
    with pytest.raises(InputError, match="is of version 9; expected version 1"):
        LaCTState.load(tmp_path / "new.safetensors")
    with pytest.raises(InputError, match="holds no fast weights"):
        LaCTState({"x": torch.ones(1)}).fast()
