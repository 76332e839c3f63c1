"""The documentation's settings. `_ext/method_pages.py` writes the methods' pages before Sphinx reads its sources."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

from assay import __version__

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "assay"
author = "The assay authors"
copyright = "The assay authors"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "mathml",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "method_pages",
    "recall_charts",
]
exclude_patterns = ["_build", "methods_text", "results"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False
viewcode_line_numbers = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"assay {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_show_sphinx = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


def _is_routing(app: Sphinx, what: str, name: str, *_: object) -> bool | None:
    """Leave out the methods that scikit-learn gives every estimator: their text refers to pages of its own."""
    return True if name.startswith("set_") and name.endswith("_request") else None


def setup(app: Sphinx) -> None:
    """Choose what the pages of the public names show."""
    app.connect("autodoc-skip-member", _is_routing)
