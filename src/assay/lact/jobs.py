"""The commands on a user's files: ``assay lact train-lm`` and so on for text, ``train-nvs`` and so on for images."""

from __future__ import annotations

from cyclopts import App

from assay.lact.text_jobs import ask, generate, loss, memorize, needle, train_lm
from assay.lact.view_jobs import reconstruct, render, train_nvs

__all__ = ["app"]

app = App(
    name="lact",
    help="Sequence layers of linear cost whose memory is a small network that is trained as it reads.",
    help_format="rst",
    version_flags=[],
)
for job in (train_lm, generate, memorize, ask, loss, needle, train_nvs, reconstruct, render):
    app.command(job)
