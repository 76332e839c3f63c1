"""Keep a study's trials as the figures that the documentation shows: docs/results/<method>/<scale>.parquet."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from assay.core.card import find_card
from assay.core.ledger import Ledger
from assay.core.report import export_results
from assay.core.study import load_study

app = App(help=__doc__)


@app.default
def keep(method: str, /, *, scale: str = "laptop", ledger: str = "assay-ledger") -> None:
    """Write the trials of the present code at one scale, and the machines on which they ran.

    Parameters
    ----------
    method
        The method's name, as in `assay list`.
    scale
        Which scale.
    ledger
        Where the trials are.
    """
    folder = Path(__file__).parent / "results" / method
    study = load_study(find_card(method))
    for file in export_results(Ledger(ledger), method, study=study, scale=scale, folder=folder, force=True):
        print(file)


if __name__ == "__main__":
    app()
