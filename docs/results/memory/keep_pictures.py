"""Keep the pictures that the page shows: what the trials of seed 0 drew, from the ledger into this folder."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from assay.core.ledger import Ledger, current_records
from assay.memory.study import STUDY

SHOWN = {
    ("digits", "memory", "before-after.png"): "digits-order-3.png",
    ("digits", "exponential", "before-after.png"): "digits-exponential.png",
}

app = App(help=__doc__)


@app.default
def keep(ledger: str = "assay-ledger", /) -> None:
    """Copy the pictures of the present code's trials.

    Parameters
    ----------
    ledger
        Where the trials are.
    """
    source = Ledger(ledger)
    for record in current_records(STUDY, source.read("memory")):
        for (case, arm, picture), name in SHOWN.items():
            if (record.scale, record.case, record.arm, record.seed) == ("laptop", case, arm, 0):
                file = Path(__file__).parent / name
                file.write_bytes(source.artifact(record, picture))
                print(file)


if __name__ == "__main__":
    app()
