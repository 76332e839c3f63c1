"""Newton–Schulz against its scalar polynomials and closed forms."""

from __future__ import annotations

import pytest
import torch

from assay.core.errors import InputError
from assay.lact.orthogonal import COEFFICIENTS, newton_schulz, singular_value_after
from assay.lact.reference import reference_newton_schulz

SETS = pytest.mark.parametrize("coefficients", list(COEFFICIENTS))


def matrices(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("coefficients", "value"), [("keller", 0.6964), ("tuned", 0.9783)])
def test_a_singular_value_of_one_goes_to_the_published_value(coefficients: str, value: float) -> None:
    assert singular_value_after(1.0, coefficients=coefficients) == pytest.approx(value, abs=5e-5)


@SETS
@pytest.mark.parametrize("form", ["plain", "gram"])
@pytest.mark.parametrize("shape", [(3, 8, 5), (2, 5, 11), (1, 6, 6)])
def test_singular_values_follow_the_scalar_polynomial(coefficients: str, form: str, shape: tuple[int, ...]) -> None:
    G = matrices(*shape)
    before = torch.linalg.svdvals(G) / torch.linalg.matrix_norm(G)[:, None]
    expected = before.clone().apply_(lambda value: abs(singular_value_after(value, coefficients=coefficients)))
    found = torch.linalg.svdvals(newton_schulz(G, coefficients=coefficients, form=form))
    torch.testing.assert_close(found, expected.sort(descending=True).values, atol=1e-6, rtol=0)


@SETS
def test_a_rank_one_matrix_keeps_its_vectors(coefficients: str) -> None:
    u, v = matrices(7), matrices(4, seed=1)
    expected = torch.outer(u / u.norm(), v / v.norm()) * singular_value_after(1.0, coefficients=coefficients)
    torch.testing.assert_close(newton_schulz(torch.outer(u, v), coefficients=coefficients), expected, atol=1e-6, rtol=0)


def test_zero_stays_zero_and_so_does_its_gradient() -> None:
    G = torch.zeros(2, 3, 4, requires_grad=True)
    step = newton_schulz(G)
    assert torch.equal(step, torch.zeros(2, 3, 4))
    step.sum().backward()
    assert G.grad is not None and torch.isfinite(G.grad).all()


def test_more_rows_than_columns_is_the_transposed_case() -> None:
    G = matrices(9, 4)
    torch.testing.assert_close(newton_schulz(G), newton_schulz(G.mT).mT, atol=1e-12, rtol=0)


@SETS
@pytest.mark.parametrize("shape", [(2, 16, 48), (2, 48, 16), (3, 8, 8)])
def test_the_gram_form_and_the_batched_form_are_the_plain_one(coefficients: str, shape: tuple[int, ...]) -> None:
    G = matrices(*shape)
    expected = reference_newton_schulz(G, coefficients=coefficients)
    for form in ("auto", "gram", "plain"):
        torch.testing.assert_close(newton_schulz(G, coefficients=coefficients, form=form), expected, atol=1e-9, rtol=0)


def test_the_gram_form_in_float32_is_near_the_plain_one() -> None:
    G = matrices(2, 24, 96).float()
    gram, plain = newton_schulz(G, form="gram"), newton_schulz(G, form="plain")
    torch.testing.assert_close(gram, plain, atol=1e-4, rtol=0)


def test_w0_and_w2_together_are_another_step() -> None:
    """Why products are joined and this isn't."""
    G = matrices(2, 16, 16)
    apart = newton_schulz(G)
    joint = newton_schulz(torch.cat((G[0], G[1])))
    difference = torch.linalg.matrix_norm(torch.cat((apart[0], apart[1])) - joint) / torch.linalg.matrix_norm(joint)
    assert float(difference) > 0.3


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(InputError, match="ns is 'cubic'; expected one of: keller, tuned"):
        newton_schulz(torch.eye(2), coefficients="cubic")
    with pytest.raises(InputError, match="form is 'fast'"):
        newton_schulz(torch.eye(2), form="fast")
