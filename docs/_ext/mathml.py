"""Equations as MathML, which browsers draw by themselves: the pages need no script and no network."""

from __future__ import annotations

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.writers.html5 import HTML5Translator


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write an equation within a line."""
    self.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write an equation of its own."""
    self.body.append(f'<div class="math-block">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def mathml(tex: str, *, block: bool) -> str:
    """Translate, or say which equation can't be translated."""
    try:
        text: str = tex2mathml(tex, as_block=block)
    except MathError as error:
        raise SphinxError(f"the equation {tex!r} can't be written as MathML: {error}") from error
    for brace in "{}":  # without this, browsers whose font lacks stretched braces draw them in pieces
        text = text.replace(f"<mo>{brace}</mo>", f'<mo stretchy="false">{brace}</mo>')
    return text


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
