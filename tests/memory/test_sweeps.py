"""Sweeps against brute force, and what physics says of them."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, pairwise
from math import factorial, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.memory import DenseAssociativeMemory, DuplicateWarning
from assay.memory._packed import PackedPatterns, pack_signs, pack_words, unpack_signs
from assay.memory.dynamics import Dynamics, compute_field
from assay.memory.interactions import distinct_tuples, field_unit
from assay.memory.patterns import corrupt, random_patterns

pytestmark = pytest.mark.filterwarnings("ignore::assay.memory.CapacityWarning")

KINDS = ("krotov", "abbott", "exact", "rectified")


def votes_by_definition(patterns, state, kind, order):
    """The integer votes of every unit, from sums over patterns and other units, in Python integers."""
    power, units = order - 1, range(len(state))
    votes = []
    for i in units:
        total = 0
        for pattern in patterns.tolist():
            others = [pattern[j] * int(state[j]) for j in units if j != i and state[j] != 0]
            y = sum(others)
            if kind == "krotov":
                vote = y**power
            elif kind == "abbott":
                vote = factorial(power) * sum(prod(chosen) for chosen in combinations(others, power))
            else:
                F = (lambda x: x**order) if kind == "exact" else (lambda x: max(x, 0) ** order)
                vote = pattern[i] * (F(pattern[i] + y) - F(-pattern[i] + y))
            total += pattern[i] * vote
        votes.append(total)
    unit = field_unit(kind, order, len(state)) * (2 if kind == "exact" else 1)
    return np.array(votes, dtype=np.float64) / unit


def fields(patterns, states, **options):
    field = compute_field(PackedPatterns(pack_words(patterns > 0), bits=patterns.shape[1]), states, Dynamics(**options))
    return field.votes / field.unit


@pytest.mark.parametrize("order", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [7, 12])
def test_fields_equal_their_definition_summed_by_brute_force(kind, order, bits):
    rng = np.random.default_rng(order)
    patterns = random_patterns(9, bits, seed=order)
    states = rng.choice(np.array([-1, 1], dtype=np.int8), size=(3, bits))
    states[2, :3] = 0  # erased units too
    expected = [votes_by_definition(patterns, state, kind, order) for state in states]
    np.testing.assert_allclose(fields(patterns, states, kind=kind, order=order), expected, rtol=1e-14, atol=1e-15)


@given(
    st.integers(1, 300),
    st.integers(1, 140),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
    st.sampled_from([3, 2**20, 2**40]),
)
@settings(max_examples=60, deadline=None)
def test_packed_products_equal_integer_matrix_products(count, bits, batch, seed, largest):
    rng = np.random.default_rng(seed)
    patterns = rng.choice(np.array([-1, 1], dtype=np.int8), size=(count, bits))
    states = rng.integers(-1, 2, size=(batch, bits), dtype=np.int8)
    weights = rng.integers(-largest, largest + 1, size=(batch, count))
    weights[:, 0] = largest * 1000  # an outlier
    packed = PackedPatterns(pack_words(patterns > 0), bits=bits)
    wide = patterns.astype(np.int64)
    assert np.array_equal(packed.signs(), patterns)
    assert np.array_equal(packed.overlaps(*pack_signs(states)), states.astype(np.int64) @ wide.T)
    assert np.array_equal(packed.votes(weights), weights @ wide)
    assert np.array_equal(packed.votes(weights, threads=3), weights @ wide)
    assert np.array_equal(packed.column_sums, wide.sum(axis=0))


@pytest.mark.parametrize(("count", "bits"), [(4097, 70), (4600, 513), (700, 1024), (17_000, 66)])
@pytest.mark.parametrize("largest", [1, 2**13, 2**45])
def test_packed_products_in_whole_vectors_equal_integer_matrix_products(count, bits, largest):
    """Wide enough for vectors of words in rows and columns, several chunks of a column, and outliers of many bits."""
    rng = np.random.default_rng(count)
    patterns = rng.choice(np.array([-1, 1], dtype=np.int8), size=(count, bits))
    states = rng.integers(-1, 2, size=(9, bits), dtype=np.int8)
    weights = rng.integers(-largest, largest + 1, size=(9, count))
    weights[:, :: count // 5] *= -1000
    weights[8] = largest  # nothing above the least weight: no plane at all
    packed = PackedPatterns(pack_words(patterns > 0), bits=bits)
    wide = patterns.astype(np.int64)
    assert np.array_equal(packed.overlaps(*pack_signs(states)), states.astype(np.int64) @ wide.T)
    assert np.array_equal(packed.votes(weights), weights @ wide)
    assert np.array_equal(packed.votes(weights, threads=3), weights @ wide)


def test_a_processor_without_wide_vectors_gives_the_same_bits(tmp_path):
    program = """
import hashlib, numpy as np
from assay.memory._packed import PackedPatterns, pack_signs, pack_words
from assay.memory.patterns import random_patterns
packed = PackedPatterns(pack_words(random_patterns(4500, 600, seed=1) > 0), bits=600)
overlaps = packed.overlaps(*pack_signs(random_patterns(2, 600, seed=2)))
votes = packed.votes(overlaps.astype(np.int64) ** 3)
print(hashlib.sha256(overlaps.tobytes() + votes.tobytes()).hexdigest())
"""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | more, capture_output=True, text=True, check=True
        ).stdout
        for more in ({}, plain)
    ]
    assert len(found[0]) == 65
    assert found[0] == found[1]


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 100))
@settings(max_examples=30, deadline=None)
def test_appended_patterns_are_as_if_stored_at_once(first, second, bits):
    patterns = random_patterns(first + second, bits, seed=first)
    packed = PackedPatterns(pack_words(patterns[:first] > 0), bits=bits)
    packed.append(pack_words(patterns[first:] > 0))
    whole = PackedPatterns(pack_words(patterns > 0), bits=bits)
    for name in ("rows", "columns", "column_sums"):
        assert np.array_equal(getattr(packed, name), getattr(whole, name))


def test_padding_bits_are_zero_and_never_counted():
    patterns = np.ones((3, 70), dtype=np.int8)
    packed = PackedPatterns(pack_words(patterns > 0), bits=70)
    assert np.bitwise_count(packed.rows).sum() == 3 * 70
    assert packed.overlaps(*pack_signs(-patterns[:1])).tolist() == [[-70, -70, -70]]
    assert np.array_equal(unpack_signs(packed.rows, bits=70), patterns)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("erased", [0, 9])
def test_both_paths_and_any_number_of_threads_give_the_same_bits(kind, erased):
    patterns = random_patterns(3000, 200, seed=3)
    states = corrupt(patterns[:20], flips=30, erasures=erased, rng=np.random.default_rng(0))
    packed = PackedPatterns(pack_words(patterns > 0), bits=200)
    found = [
        compute_field(packed, states, Dynamics(kind=kind, order=4, path=path, threads=threads)).votes
        for path, threads in (("packed", 1), ("packed", 3), ("gemm", 1), ("auto", 1))
    ]
    assert all(np.array_equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("units", range(1, 11))
def test_elementary_symmetric_polynomials_equal_sums_over_subsets(units):
    for minus in range(units + 1):
        signs = [-1] * minus + [1] * (units - minus)
        for order in range(units + 1):
            explicit = factorial(order) * sum(prod(chosen) for chosen in combinations(signs, order))
            assert distinct_tuples(sum(signs), order=order, units=units) == explicit


def test_order_four_without_self_exclusion_would_freeze_cues():
    """The self term of even orders is 3 alpha N h_i for n = 4: a cue would stay as it is at any load."""
    patterns = random_patterns(27_306, 160, seed=5)
    cue = corrupt(patterns[:1], flips=20, rng=np.random.default_rng(0))
    field = fields(patterns, cue, kind="krotov", order=4)
    overlaps = (patterns.astype(np.int64) @ cue[0].astype(np.int64)) / 160
    with_self = (overlaps**3) @ patterns.astype(np.float64)
    assert np.array_equal(np.sign(with_self), cue[0])
    assert (np.sign(field[0]) != cue[0]).sum() > 15


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("order", [2, 3, 4])
def test_exact_asynchronous_updates_never_raise_the_energy_and_come_to_rest(order, seed):
    X = random_patterns(60, 24, seed=seed)
    memory = DenseAssociativeMemory(order, "exact", update="asynchronous", max_sweeps=1, random_state=seed).fit(X)
    state = corrupt(X[:1], flips=11, rng=np.random.default_rng(seed))
    energies = [memory.energy(state)[0]]
    for sweep in range(200):
        memory.set_params(random_state=sweep)
        new = memory.recall(state).states
        energies.append(memory.energy(new)[0])
        if np.array_equal(new, state):
            break
        state = new
    assert np.array_equal(new, state)
    assert all(later <= earlier for earlier, later in pairwise(energies))


def test_parallel_updates_can_alternate_between_two_states_and_that_is_said():
    X = np.array([[1, 1], [1, 1]])
    with pytest.warns(DuplicateWarning, match="copies"):
        memory = DenseAssociativeMemory(2, max_sweeps=50).fit(X)
    result = memory.recall([[1, -1]])
    assert result.cycle.tolist() == [2]
    assert not result.converged[0]
    assert result.sweeps[0] == 2


@pytest.mark.parametrize("kind", ["krotov", "abbott", "exact", "exp"])
@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_a_single_pattern_is_recalled_in_one_sweep(kind, order):
    X = random_patterns(1, 33, seed=order)
    memory = DenseAssociativeMemory(order, kind).fit(X)
    # The votes of distinct units change sign where the overlap is of the order of sqrt(N).
    for flips in (1, 5, 8) if kind == "abbott" else (1, 10, 15):
        cue = corrupt(X, flips=flips, rng=np.random.default_rng(flips))
        result = memory.recall(cue)
        assert np.array_equal(result.states, X)
        assert result.sweeps.tolist() == [1]
    if order % 2 and kind == "krotov":  # the signal of an odd order is even
        assert np.array_equal(memory.recall(corrupt(X, flips=28, rng=np.random.default_rng(0))).states, X)


@pytest.mark.parametrize("kind", ["krotov", "abbott", "exact", "rectified", "exp"])
def test_flipping_a_bit_everywhere_flips_only_that_bit_of_the_answer(kind):
    X = random_patterns(150, 40, seed=1)
    cues = corrupt(X[:10], flips=6, rng=np.random.default_rng(0))
    flip = np.ones(40, dtype=np.int8)
    flip[[3, 17]] = -1
    plain = DenseAssociativeMemory(3, kind).fit(X).recall(cues).states
    gauged = DenseAssociativeMemory(3, kind).fit(X * flip).recall(cues * flip).states
    assert np.array_equal(gauged, plain * flip)


@pytest.mark.parametrize("kind", ["krotov", "abbott", "exact", "rectified"])
def test_the_order_of_the_patterns_changes_nothing(kind):
    X = random_patterns(500, 40, seed=2)
    cues = corrupt(X[:10], flips=8, rng=np.random.default_rng(0))
    shuffled = X[np.random.default_rng(1).permutation(500)]
    first = DenseAssociativeMemory(3, kind).fit(X).recall(cues).states
    assert np.array_equal(first, DenseAssociativeMemory(3, kind).fit(shuffled).recall(cues).states)


def test_odd_orders_recall_from_the_negative_and_even_orders_its_negative():
    X = random_patterns(8738, 512, seed=1)  # alpha' = 0.1 at n = 3
    cue = corrupt(X[:4], flips=round(512 * 0.9), rng=np.random.default_rng(0))  # m(0) = -0.8
    assert (DenseAssociativeMemory(3).fit(X).recall(cue).states == X[:4]).mean() > 0.99
    few = X[:200]
    assert (DenseAssociativeMemory(4).fit(few).recall(cue).states == -X[:4]).all()


def test_overlaps_are_the_hamming_distances_of_faiss():
    faiss = pytest.importorskip("faiss")
    X = random_patterns(1000, 128, seed=4)
    cues = corrupt(X[:5], flips=20, rng=np.random.default_rng(0))
    index = faiss.IndexBinaryFlat(128)
    index.add(np.packbits(X > 0, axis=1))
    distance, nearest = index.search(np.packbits(cues > 0, axis=1), 1000)
    overlaps = DenseAssociativeMemory(3).fit(X).overlaps(cues)
    for cue in range(5):
        assert np.array_equal(distance[cue], (128 - overlaps[cue, nearest[cue]]) // 2)


def test_temperature_follows_the_law_of_the_units():
    X = random_patterns(1, 2001, seed=0)
    memory = DenseAssociativeMemory(3, temperature=2.0, max_sweeps=1, random_state=0).fit(X)
    cues = np.repeat(X, 20, axis=0)
    agreement = (memory.recall(cues).states * X).mean()
    field = (2000 / 2001) ** 2
    assert abs(agreement - np.tanh(field / 2.0)) < 4 / np.sqrt(20 * 2001)


@pytest.mark.parametrize("tie", ["keep", "+1", "random"])
def test_ties_do_what_was_asked(tie):
    X = np.array([[1, 1, 1, 1], [-1, 1, 1, 1]])  # the two cancel at the first unit
    cue = np.array([[-1, 1, 1, 1]])
    memory = DenseAssociativeMemory(2, tie=tie, max_sweeps=1, random_state=1).fit(X)
    field = fields(X.astype(np.int8), cue.astype(np.int8), kind="krotov", order=2)[0]
    tied = np.flatnonzero(field == 0)
    assert len(tied)
    answer = memory.recall(cue).states[0]
    if tie == "keep":
        assert np.array_equal(answer[tied], cue[0, tied])
    elif tie == "+1":
        assert (answer[tied] == 1).all()
    else:
        many = memory.recall(np.repeat(cue, 400, axis=0)).states[:, tied]
        assert 0.4 < (many == 1).mean() < 0.6


def test_a_cue_takes_the_same_random_path_alone_or_among_others_and_on_any_threads():
    X = random_patterns(300, 64, seed=8)
    cues = corrupt(X[:70], flips=14, rng=np.random.default_rng(0))
    options = {"update": "asynchronous", "tie": "random", "random_state": 5}
    together = DenseAssociativeMemory(3, **options, n_jobs=1).fit(X).recall(cues).states
    threaded = DenseAssociativeMemory(3, **options, n_jobs=3).fit(X).recall(cues).states
    alone = DenseAssociativeMemory(3, **options).fit(X).recall(cues[:1]).states
    assert np.array_equal(together, threaded)
    assert np.array_equal(together[:1], alone)


def test_asynchronous_and_parallel_updates_agree_where_nothing_interferes():
    X = random_patterns(20, 64, seed=8)
    cues = corrupt(X[:10], flips=10, erasures=5, rng=np.random.default_rng(0))
    for kind in ("krotov", "abbott", "exact", "rectified", "exp"):
        states = [
            DenseAssociativeMemory(4, kind, update=update, random_state=0).fit(X).recall(cues).states
            for update in ("parallel", "asynchronous")
        ]
        assert np.array_equal(*states)
