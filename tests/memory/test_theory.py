"""The theory against closed forms, replica values and independent evaluations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from scipy.special import ndtr

from assay.core.errors import InputError
from assay.memory import theory
from assay.memory._gfa import covariance_coefficients
from assay.memory._plain_solver import plain_retrieval
from assay.memory.trials import follow

PATHS = 40_000
SPREAD = 4 / math.sqrt(PATHS)


def test_covariances_are_those_of_powers_of_correlated_gaussians():
    table = {0: [1], 1: [0, 1], 2: [1, 0, 2], 3: [0, 9, 0, 6], 4: [9, 0, 72, 0, 24], 5: [0, 225, 0, 600, 0, 120]}
    assert {power: list(covariance_coefficients(power)) for power in table} == table


@pytest.mark.parametrize("power", range(1, 6))
def test_covariances_agree_with_gauss_hermite_quadrature(power):
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    weights = weights / weights.sum()
    for C in (-0.7, 0.0, 0.3, 1.0):
        x = nodes[:, None]
        y = C * x + math.sqrt(1 - C * C) * nodes[None, :]
        expected = (weights[:, None] * weights[None, :] * x**power * y**power).sum()
        assert theory.covariance_polynomial(power, C) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["krotov", "abbott"])
@pytest.mark.parametrize("power", range(1, 6))
def test_the_derivative_of_a_covariance_is_that_of_one_power_less(kind, power):
    derivative = Polynomial(covariance_coefficients(power, kind)).deriv()
    lower = Polynomial(covariance_coefficients(power - 1, kind))
    assert derivative == power**2 * lower


@pytest.mark.parametrize("order", range(2, 8))
def test_the_load_factor_is_the_variance_of_a_pattern(order):
    for kind in ("krotov", "abbott"):
        assert theory.covariance_polynomial(order - 1, 1.0, kind=kind) == theory.load_factor(order, kind)


@pytest.mark.parametrize(
    ("order", "load", "overlap"),
    [(3, 0.25219043, 0.838482), (4, 0.19786012, 0.917922), (5, 0.17277255, None), (6, 0.15767954, None)],
)
def test_replica_symmetric_capacities_to_the_last_digit(order, load, overlap):
    found = theory.capacity(order, "rs")
    assert found.load == pytest.approx(load, abs=6e-9)
    if overlap:
        assert found.overlap == pytest.approx(overlap, abs=6e-7)


def test_the_classical_capacity_is_that_of_amit_gutfreund_and_sompolinsky():
    found = theory.capacity(2)
    assert found.load == pytest.approx(0.1379, abs=5e-5)
    assert found.overlap == pytest.approx(0.967, abs=5e-4)


def test_one_step_solutions_of_order_three_exist_up_to_0266():
    solution = theory.one_step_solution(3, 0.266)
    assert solution.y == pytest.approx(7.0, abs=0.15)
    assert solution.overlap == pytest.approx(0.8265, abs=0.004)
    assert solution.inner == pytest.approx(0.930, abs=0.002)
    lower = theory.one_step_solution(3, 0.264)
    assert (lower.y, lower.overlap, lower.inner) == (
        pytest.approx(7.75, abs=0.15),
        pytest.approx(0.8415, abs=0.004),
        pytest.approx(0.942, abs=0.002),
    )
    assert theory.one_step_solution(3, 0.267) is None
    assert theory.capacity(3, "1rsb").load == pytest.approx(0.2666, abs=1e-4)


def test_one_step_solutions_of_order_four_exist_up_to_0205():
    """The branch folds at 0.20483, with the y, m and q0 that coarser quadratures give for 0.205."""
    capacity = theory.capacity(4, "1rsb")
    assert capacity.load == pytest.approx(0.205, abs=3e-4)
    assert capacity.overlap == pytest.approx(0.903, abs=0.003)
    solution = theory.one_step_solution(4, 0.2048)
    assert (solution.y, solution.inner) == (pytest.approx(9.5, abs=0.1), pytest.approx(0.963, abs=0.002))
    assert theory.one_step_solution(4, 0.206) is None


@pytest.mark.parametrize("order", [3, 4, 5, 6])
def test_breaking_replica_symmetry_raises_the_capacity_and_solves_the_equations(order):
    rs, broken = theory.capacity(order, "rs"), theory.capacity(order, "1rsb")
    assert rs.load < broken.load < 1.1 * rs.load
    from assay.memory._capacity import _OneStep

    solution = theory.one_step_solution(order, (rs.load + broken.load) / 2)
    equations = _OneStep(order, solution.load, "krotov")
    up, down, _ = equations.branches(solution.overlap, solution.inner, solution.y)
    mean = np.tanh((up - down) / 2)
    assert equations.weight @ mean == pytest.approx(solution.overlap, abs=1e-6)
    assert equations.weight @ mean**2 == pytest.approx(solution.inner, abs=1e-6)
    # The one-step potential is stationary in m, q0 and y.
    for name, step in (("m", 1e-4), ("q0", 1e-4), ("y", 1e-3)):
        point = {"m": solution.overlap, "q0": solution.inner, "y": solution.y}
        above, below = ({**point, name: point[name] + sign * step} for sign in (1, -1))
        slope = (equations.potential(**above) - equations.potential(**below)) / (2 * step)
        assert abs(slope) < 2e-5


TWO_STEPS = [
    (3, 0.2, 0.7, {"m1": 0.726778, "G10": 0.978903, "Gamma10": 0.132803, "m2": 0.825025}),
    (3, 0.2, 0.55, {"m1": 0.50122, "m2": 0.50232}),
    (4, 0.1, 0.65, {"m1": 0.61485, "m2": 0.66628}),
    (4, 0.15, 0.75, {"m1": 0.72397, "m2": 0.78674}),
]


@pytest.mark.parametrize(("order", "load", "m0", "expected"), TWO_STEPS)
def test_the_two_step_form_and_the_sampler_agree(order, load, m0, expected):
    found = theory.two_step(order, load, m0)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=6e-6)
    curve = theory.retrieval(order, load, m0, steps=2, paths=PATHS)
    assert curve.m[1] == pytest.approx(found["m1"], abs=1e-6)
    assert curve.m[2] == pytest.approx(found["m2"], abs=SPREAD)
    assert curve.C[1, 0] == pytest.approx(m0 * found["m1"], abs=SPREAD)
    assert curve.G[1, 0] == pytest.approx(found["G10"], abs=SPREAD)


@pytest.mark.parametrize("kind", ["krotov", "abbott"])
def test_the_two_step_form_of_either_kind(kind):
    found = theory.two_step(4, 0.12, 0.7, kind=kind)
    curve = theory.retrieval(4, 0.12, 0.7, steps=2, paths=PATHS, kind=kind)
    assert curve.m[2] == pytest.approx(found["m2"], abs=SPREAD)


def test_the_sampler_reference_of_order_three():
    curve = theory.retrieval(3, 0.2, 0.7, steps=8, paths=100_000)
    np.testing.assert_allclose(
        curve.m, [0.7, 0.7268, 0.8251, 0.8715, 0.9152, 0.9326, 0.9465, 0.9515, 0.9554], atol=5e-3
    )
    assert curve.C[2, 0] == pytest.approx(0.639, abs=6e-3)
    assert curve.C[2, 1] == pytest.approx(0.697, abs=8e-3)
    assert curve.C[3, 2] == pytest.approx(0.814, abs=8e-3)
    assert (curve.G[2, 1], curve.G[3, 2]) == (pytest.approx(0.688, abs=0.012), pytest.approx(0.447, abs=0.012))
    assert abs(curve.G[2, 0]) < 0.015


@pytest.mark.parametrize(("order", "load", "m0"), [(3, 0.2, 0.6), (2, 0.1, 0.4), (4, 0.15, 0.75)])
def test_the_fast_solver_agrees_with_the_plain_one(order, load, m0):
    fast = theory.retrieval(order, load, m0, steps=6, paths=PATHS).m
    plain = plain_retrieval(order, load, m0, steps=6, paths=PATHS)
    np.testing.assert_allclose(fast, plain, atol=2.5 * SPREAD)


def test_the_first_step_of_the_classical_model_is_exact_and_the_next_fit_simulation():
    for load, m0, expected in ((0.08, 0.35, [0.784, 0.875, 0.933, 0.973]), (0.12, 0.35, [0.688, 0.730, 0.729, 0.714])):
        m = theory.retrieval(2, load, m0, steps=4, paths=PATHS).m
        assert m[1] == pytest.approx(math.erf(m0 / math.sqrt(2 * load)), abs=2e-3)
        np.testing.assert_allclose(m[1:], expected, atol=8e-3)


@pytest.mark.parametrize(("m0", "expected"), [(0.9, 1.081), (0.3, 4.223)])
def test_the_noise_that_classical_recall_adds_in_one_step(m0, expected):
    load = 0.1
    m1 = math.erf(m0 / math.sqrt(2 * load))
    U = math.sqrt(2 / (math.pi * load)) * math.exp(-(m0**2) / (2 * load))
    ratio = 1 + U**2 + 2 * m1 * m0 * U
    assert ratio == pytest.approx(expected, abs=1e-3)
    curve = theory.retrieval(2, load, m0, steps=2, paths=PATHS)
    assert curve.noise_std[1] ** 2 / load == pytest.approx(ratio, rel=0.02)


def test_dense_recall_adds_no_noise_to_itself():
    for m0 in (0.9, 0.3):
        curve = theory.retrieval(3, 0.15, m0, steps=6, paths=2000)
        np.testing.assert_allclose(curve.noise_std**2, 0.15, rtol=1e-12)


def test_statistical_neurodynamics_has_the_same_first_two_steps():
    exact = theory.retrieval(2, 0.08, 0.35, steps=2, paths=PATHS)
    approximate = theory.neurodynamics(0.08, 0.35, steps=2)
    np.testing.assert_allclose(approximate, exact.m, atol=0.02)


def test_odd_orders_go_from_the_negative_to_the_pattern_and_even_ones_to_its_negative():
    np.testing.assert_allclose(theory.retrieval(3, 0.1, -0.8, steps=2, paths=PATHS).m[1:], [0.957, 0.997], atol=2e-3)
    np.testing.assert_allclose(theory.retrieval(4, 0.1, -0.8, steps=2, paths=PATHS).m[1:], [-0.895, -0.985], atol=2e-3)


@pytest.mark.parametrize("kind", ["krotov", "abbott"])
def test_without_self_interaction_the_sampler_is_corollary_one(kind):
    sampled = theory.retrieval(3, 0.2, 0.75, steps=12, paths=PATHS, kind=kind, self_interaction=False).m
    np.testing.assert_allclose(sampled, theory.mean_field(3, 0.2, 0.75, steps=12), atol=3 * SPREAD)


def test_self_interaction_saves_what_corollary_one_gives_up():
    assert theory.retrieval(3, 0.2, 0.6, steps=25, paths=PATHS).m[-1] > 0.9
    assert theory.mean_field(3, 0.2, 0.6, steps=25)[-1] < 0.05


@pytest.mark.parametrize(("load", "low", "high"), [(0.26, 0.88, 0.94), (0.42, -0.05, 0.1)])
def test_slow_decay_from_the_pattern_itself(load, low, high):
    assert low < theory.retrieval(3, load, 1.0, steps=100, paths=10_000).m[-1] < high


def test_the_dynamic_capacity_says_after_how_many_sweeps():
    found = theory.capacity(3, "dynamic", horizon=30, paths=4000)
    assert found.horizon == 30
    assert 0.28 < found.load < 0.4


@pytest.mark.parametrize(("load", "edge"), [(0.05, 0.27), (0.1, 0.385), (0.2, 0.56)])
def test_basins_shrink_with_the_load(load, edge):
    assert theory.basin(3, load, paths=6_000) == pytest.approx(edge, abs=0.03)
    assert theory.basin(3, load, self_interaction=False) > edge


def test_beyond_the_capacity_there_is_no_basin():
    assert math.isnan(theory.basin(3, 0.6, paths=1000, horizon=60))


def test_the_curve_does_not_depend_on_how_paths_are_blocked_in_threads_and_repeats_itself():
    first, second = (theory.retrieval(3, 0.2, 0.7, steps=5, paths=20_001, seed=3) for _ in range(2))
    assert np.array_equal(first.m, second.m)
    assert np.array_equal(first.G, second.G)


def test_temperature_zero_is_the_limit_of_low_temperatures():
    cold = theory.retrieval(3, 0.1, 0.6, steps=4, paths=PATHS, temperature=1e-3).m
    np.testing.assert_allclose(cold, theory.retrieval(3, 0.1, 0.6, steps=4, paths=PATHS).m, atol=3 * SPREAD)


def test_means_over_a_sign_equal_the_normal_distribution_function():
    from assay.memory._gfa import _sign_moments

    fields = np.linspace(-40, 40, 160_001)
    expected, slope = _sign_moments(fields.astype(np.float32))
    np.testing.assert_allclose(expected, 2 * ndtr(fields) - 1, atol=2e-6)
    np.testing.assert_allclose(slope, math.sqrt(2 / math.pi) * np.exp(-(fields**2) / 2), atol=2e-6)


def test_paths_that_no_machine_holds_are_refused_at_once():
    with pytest.raises(MemoryError):
        theory.retrieval(3, 0.2, 0.7, paths=10**14)


@pytest.mark.parametrize("temperature", [0.02, 0.3, 0.45, 1.0, 5.0])
def test_thermal_averages_equal_integrals(temperature):
    from scipy.integrate import quad

    from assay.memory._gfa import _thermal_moments

    width = 0.44
    for mean in (-0.9, 0.0, 0.05, 0.6):
        expected, slope = _thermal_moments(np.array([mean]), width, temperature)
        for value, factor in ((expected, lambda z: 1.0), (slope, lambda z: z)):
            exact, _ = quad(
                lambda z, factor=factor, mean=mean: (
                    factor(z)
                    * math.tanh((mean + width * z) / temperature)
                    * math.exp(-z * z / 2)
                    / math.sqrt(2 * math.pi)
                ),
                -9,
                9,
                points=[-mean / width],
                limit=200,
            )
            assert value[0] == pytest.approx(exact, abs=2e-4)


def test_thermal_theory_follows_a_thermal_simulation():
    from assay.memory._packed import PackedPatterns, pack_words
    from assay.memory.dynamics import Dynamics, run_dynamics
    from assay.memory.patterns import corrupt, random_patterns

    bits, load, T = 512, 0.05, 0.4
    X = random_patterns(round(load * bits**2 / 3), bits, seed=0)
    dynamics = Dynamics(kind="krotov", order=3, temperature=T, max_sweeps=5)
    cues = corrupt(X[:20], flips=round(0.1 * bits), rng=np.random.default_rng(0))
    found = run_dynamics(
        PackedPatterns(pack_words(X > 0), bits=bits),
        cues,
        dynamics,
        generators=[np.random.default_rng(k) for k in range(20)],
        keep_visited=True,
    )
    simulated = [(state.astype(int) * X[:20]).mean() for state in found.visited]
    np.testing.assert_allclose(
        simulated, theory.retrieval(3, load, simulated[0], steps=5, paths=PATHS, temperature=T).m, atol=0.02
    )


def test_the_theory_follows_a_simulation():
    from assay.memory._packed import PackedPatterns, pack_words
    from assay.memory.dynamics import Dynamics
    from assay.memory.patterns import random_patterns

    bits, load = 512, 0.1
    X = random_patterns(round(load * bits**2 / 3), bits, seed=2)
    packed = PackedPatterns(pack_words(X > 0), bits=bits)
    curves, rested = follow(packed, Dynamics(kind="krotov", order=3), m0=0.7, cues=20, rng=np.random.default_rng(0))
    predicted = theory.retrieval(3, load, 0.7, steps=15, paths=PATHS).m
    assert np.sqrt(np.mean((curves[:, :16].mean(axis=0) - predicted) ** 2)) < 0.02
    assert (rested <= 40).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.retrieval(1, 0.1, 0.5), "order is 1"),
        (lambda: theory.retrieval(3.0, 0.1, 0.5), "order is 3.0"),
        (lambda: theory.retrieval(3, -0.1, 0.5), "load is -0.1"),
        (lambda: theory.retrieval(3, 0.1, 1.5), "m0 is 1.5"),
        (lambda: theory.retrieval(3, 0.1, 0.5, steps=0), "steps is 0"),
        (lambda: theory.retrieval(3, 0.1, 0.5, paths=0), "paths is 0"),
        (lambda: theory.retrieval(3, 0.1, 0.5, temperature=float("nan")), "temperature is nan"),
        (lambda: theory.retrieval(3, 0.1, 0.5, kind="exp"), "kind is 'exp'"),
        (lambda: theory.capacity(3, "magic"), "method is 'magic'"),
        (lambda: theory.capacity(2, "1rsb"), "order is 2"),
        (lambda: theory.two_step(2, 0.1, 0.5), "order is 2"),
        (lambda: theory.capacity(3, "dynamic", overlap=2), "overlap is 2"),
    ],
)
def test_arguments_without_meaning_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
