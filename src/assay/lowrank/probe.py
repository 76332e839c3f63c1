"""How much of a model's gradients a few directions keep, before any training: the share of energy by layer, basis and
rank.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.core.errors import InputError
from assay.lowrank.basis import BASES, make_basis
from assay.lowrank.groups import EXCLUDE, low_rank_param_groups
from assay.lowrank.selection import largest_columns, projects_right, resolve_rank
from assay.lowrank.transforms import working_dtype

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = ["ProjectionReport", "energy_kept", "probe_projection", "svd_energy_kept"]

ORDERED_BELOW = 0.9
"""An axis counts as ordered when the DCT's error is below this share of the random basis's."""
ROUNDING = 1e-2
"""An error that float32 may leave where nothing is lost: the root of a few units in the last place of the energy."""
FIELDS = ("layer", "rows", "columns", "basis", "rank", "share", "energy", "error")


@dataclass(frozen=True)
class ProjectionReport:
    """What each basis keeps of each layer's gradient.

    Attributes
    ----------
    rows : tuple of dict
        ``layer``, ``rows``, ``columns``, ``basis`` (``svd`` is the optimum), ``rank``, ``share`` of the projected
        dimension, ``energy`` kept (mean over steps), ``error`` = sqrt(1 - energy).
    ordered : dict of str to bool
        Whether the projected axis of a layer behaves as ordered: the DCT errs clearly less than a random basis.
    steps : int
        Batches that were used.
    """

    rows: tuple[dict[str, Any], ...]
    ordered: Mapping[str, bool]
    steps: int

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps({"steps": self.steps, "ordered": dict(self.ordered), "rows": list(self.rows)}, indent=1)

    def to_csv(self) -> str:
        """The rows as CSV."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return stream.getvalue()

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a data frame; needs pandas."""
        import pandas

        return pandas.DataFrame(list(self.rows), columns=list(FIELDS))

    def means(self) -> list[dict[str, Any]]:
        """The energy of each basis and rank, averaged over layers with their sizes as weights."""
        sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
        for row in self.rows:
            weight = row["rows"] * row["columns"]
            sums[row["basis"], f"{row['share']:.4g}"][0] += weight * row["energy"]
            sums[row["basis"], f"{row['share']:.4g}"][1] += weight
        return [
            {"basis": basis, "share": float(share), "energy": total / weight}
            for (basis, share), (total, weight) in sums.items()
        ]

    def plot(self) -> Figure:
        """The energy kept by each basis against the share of directions, layers as thin lines."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for number, basis in enumerate(dict.fromkeys(row["basis"] for row in self.rows)):
            colour = f"C{number % 10}"
            for layer in dict.fromkeys(row["layer"] for row in self.rows):
                points = sorted(
                    (row["share"], row["energy"]) for row in self.rows if (row["basis"], row["layer"]) == (basis, layer)
                )
                axes.plot(*zip(*points, strict=True), color=colour, alpha=0.15, linewidth=0.7)
            points = sorted((row["share"], row["energy"]) for row in self.means() if row["basis"] == basis)
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", label=basis)
        axes.set(xlabel="rank / projected dimension", ylabel="share of gradient energy kept", ylim=(0, 1.02))
        axes.legend()
        return figure


def energy_kept(A: Tensor, r: float, *, basis: str = "dct2", norm: int = 2) -> float:
    """The share of a matrix's squared norm that its r most similar columns of a basis keep; 1 for a zero matrix."""
    stack = A.to(working_dtype(A.dtype)).unsqueeze(0)
    made = make_basis(basis, A.shape[-1], dtype=stack.dtype, device=A.device)
    similarities = made.coordinates(stack)
    index = largest_columns(made.power(similarities, norm), resolve_rank(r, A.shape[-1]))
    return _share(made.power(similarities, 2).gather(1, index.long()).sum().item(), stack.square().sum().item())


def svd_energy_kept(A: Tensor, r: float) -> float:
    """The share that the best r directions keep."""
    squares = torch.linalg.svdvals(A.to(working_dtype(A.dtype))).square()
    return _share(squares[: resolve_rank(r, A.shape[-1])].sum().item(), squares.sum().item())


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 1.0


def probe_projection(
    model: nn.Module,
    data_iter: Iterable[Any],
    ranks: Sequence[float] = (1 / 16, 1 / 4, 1 / 2),
    bases: Sequence[str] = ("dct2", "random", "svd"),
    steps: int = 4,
    *,
    loss: Callable[[nn.Module, Any], Tensor] | None = None,
    include: str = r"",
    exclude: str = EXCLUDE,
    side: str = "auto",
    norm: int = 2,
) -> ProjectionReport:
    """Measure what share of your model's gradient energy a rank-r subspace of each basis keeps.

    The model's weights aren't changed; its gradients are cleared.

    Parameters
    ----------
    model : Module
        The model as it would be trained.
    data_iter : iterable
        Batches: mappings are passed as ``model(**batch).loss``, unless `loss` says otherwise.
    ranks : sequence of int or float
        Numbers of columns, or shares.
    bases : sequence of str
        Names of bases, and ``svd`` for the optimum.
    steps : int
        Batches to use.
    loss : callable, optional
        ``(model, batch) -> Tensor``, a scalar.
    include, exclude : str
        As in `low_rank_param_groups`.
    side : str
        As for the optimisers.
    norm : int
        As for the optimisers.

    Returns
    -------
    ProjectionReport

    Raises
    ------
    InputError
        An unknown basis, a wrong rank, no batch, or no layer to project.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    >>> report = probe_projection(
    ...     model, [torch.randn(16, 32)], [0.25], ["dct2", "svd"], 1, loss=lambda m, x: m(x).square().mean()
    ... )
    >>> [row["basis"] for row in report.rows]
    ['dct2', 'svd', 'dct2', 'svd']
    """
    for basis in bases:
        if basis not in (*BASES, "svd") or basis == "user":
            raise InputError(f"basis '{basis}'", expected=f"one of: {', '.join(BASES[:-1])}, svd")
    for rank in ranks:
        resolve_rank(rank, 1 << 62)
    if steps < 1:
        raise InputError(f"steps is {steps}", expected="at least 1")
    groups, _ = low_rank_param_groups(model, include=include, exclude=exclude)
    layers = dict(groups[0]["params"]) if groups and groups[0]["low_rank"] else {}
    if not layers:
        raise InputError(
            "no layer of the model would be projected", expected="linear layers that match include and not exclude"
        )
    energies: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    ordered: dict[str, list[tuple[float, float]]] = defaultdict(list)
    used = 0
    for batch in data_iter:
        model.zero_grad(set_to_none=True)
        (loss(model, batch) if loss is not None else model(**batch).loss).backward()
        for name, parameter in layers.items():
            if parameter.grad is None:
                continue
            A = _rows(parameter.grad, side)
            if not torch.isfinite(A).all():
                raise InputError(
                    f"the gradient of {name} is NaN or infinite", expected="a model and data with a finite loss"
                )
            for rank in ranks:
                for basis in bases:
                    kept = svd_energy_kept(A, rank) if basis == "svd" else energy_kept(A, rank, basis=basis, norm=norm)
                    energies[name, basis, rank].append(kept)
            cosines, random = (1 - energy_kept(A, _fewest(ranks, A.shape[1]), basis=one) for one in ("dct2", "random"))
            ordered[name].append((cosines, random))
        used += 1
        if used == steps:
            break
    model.zero_grad(set_to_none=True)
    if used == 0:
        raise InputError("the data hold no batch", expected="at least one")
    rows = []
    for name, parameter in layers.items():
        long, n = _rows_shape(parameter, side)
        for rank in ranks:
            for basis in bases:
                found = energies[name, basis, rank]
                if found:
                    energy, r = sum(found) / len(found), resolve_rank(rank, n)
                    values = (name, long, n, basis, r, r / n, energy, max(0.0, 1 - energy) ** 0.5)
                    rows.append(dict(zip(FIELDS, values, strict=True)))
    flags = {}
    for name, pairs in ordered.items():
        cosines, random = (sum(pair[place] for pair in pairs) ** 0.5 for place in (0, 1))
        # Where both keep all, the difference is rounding.
        flags[name] = random > ROUNDING and cosines < ORDERED_BELOW * random
    return ProjectionReport(tuple(rows), flags, used)


def _fewest(ranks: Sequence[float], n: int) -> int:
    """The smallest of some ranks, of which some may be shares."""
    return min(resolve_rank(rank, n) for rank in ranks)


def _rows_shape(parameter: Tensor, side: str) -> tuple[int, int]:
    rows, columns = parameter.shape[0], parameter[0].numel()
    return (rows, columns) if projects_right(side, rows, columns) else (columns, rows)


def _rows(gradient: Tensor, side: str) -> Tensor:
    matrix = gradient.detach().reshape(gradient.shape[0], -1)
    return matrix if projects_right(side, *matrix.shape) else matrix.mT
