"""What the documentation and the examples show is what happens: their code is run as a reader would run it."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.cli import app, mount_methods
from assay.core.card import load_cards

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "methods_text").glob("*.md")])
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONG = ("check", "report", "show", "new")
"""Commands of `assay` that take long or change the environment: only their options are checked."""
NOT_RUN = ("pip ", "make ", "pytest")
"""Commands that set up the machine, which the packaging tests and the test command itself cover."""


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    page: Path
    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that a reader can run."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield Block(page, match[1], match[2], text[: match.start()].count("\n") + 2)


def command_lines(block: Block) -> Iterator[str]:
    """The commands of a shell block, without comments."""
    for line in block.text.splitlines():
        command = re.sub(r"(^|\s+)#.*$", "", line)
        if command.strip():
            yield command


@pytest.mark.parametrize("example", EXAMPLES, ids=[file.stem for file in EXAMPLES])
def test_example_runs_in_an_empty_folder(example: Path, run) -> None:
    done = run(sys.executable, str(example))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=[file.stem for file in PAGES])
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, run, tmp_path) -> None:
    """Python blocks share their names, and all blocks share a folder, as they do for someone who follows the page."""
    if page.stem == "README":
        (tmp_path / "words.txt").write_text("kitten\nmitten\nsitting\n", encoding="utf-8")
    names: dict[str, object] = {"__name__": "page"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for block in blocks(page):
            if block.language == "python":
                code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
                exec(code, names)
                continue
            for command in command_lines(block):
                words = shlex.split(command)
                if command.startswith(NOT_RUN) or words[:2] in [["assay", word] for word in LONG]:
                    continue
                done = run("bash", "-c", command)
                assert done.returncode == 0, f"{page.name}: {command}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=[file.stem for file in PAGES])
def test_every_command_of_a_page_has_the_options_that_it_is_shown_with(page: Path) -> None:
    mount_methods(app, ["assay"])
    for block in blocks(page):
        for command in command_lines(block) if block.language == "sh" else ():
            words = shlex.split(command)
            if words[0] == "assay":
                app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_the_readme_lists_every_method() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    names = [card.name for card in load_cards().values() if card.package.startswith("assay.")]
    assert [name for name in names if f"| [`{name}`](docs/methods_text/{name}.md) |" not in readme] == []


def test_the_readmes_links_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", readme) if "://" not in target]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_scoreboard_is_what_the_committed_results_say() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        drawn = importlib.import_module("draw_scoreboard").scoreboard()
    assert drawn == (ROOT / "docs" / "scoreboard.svg").read_text(encoding="utf-8")
