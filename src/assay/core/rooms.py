"""What a method's folder must be: the checks that every method, here or in a plug-in, runs on itself.

A method's own test suite needs two lines::

    def test_the_folder_has_the_floor_plan():
        check_room(find_card("wobble"))

The checks need the packages of the extra ``rooms``.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.metadata
import inspect
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_args

from cyclopts import App
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assay.core.card import ENTRY_POINTS, Card, load_cards
from assay.core.claim import Claim
from assay.core.errors import MissingPackageError
from assay.core.study import Study, load_study

__all__ = ["CHECKS", "Import", "check_room", "distribution_of", "imports_of", "requirements_of"]

FLOOR_PLAN = ("__init__.py", "card.toml", "jobs.py", "study.py")
VAGUE_NAMES = ("helpers.py", "misc.py", "utils.py")
SCALES = ("smoke", "laptop", "paper")
GATHERING_EXTRAS = frozenset({"all", "dev", "docs", "rooms"})
"""Extras that gather others or serve the developers: none of them is what a method may import from."""
JOB_SECONDS = 120
DOCUMENTED = frozenset({"GL08", "SS01", "PR01", "PR02", "PR03", "RT01", "YD01", "EX01"})
"""numpydoc's rules for public names: a docstring, its summary, all parameters under their names and in order, what is
returned or yielded, and an example."""
DOCUMENTED_METHOD = frozenset({"GL08", "SS01", "PR02", "PR03"})
"""The rules for methods of public classes, whose one-line docstrings may lean on the class's."""


def check_room(card: Card) -> None:
    """Run all checks on a method and say everything that is wrong at once.

    Parameters
    ----------
    card : Card
        The method's card, such as ``find_card("mst")``.

    Raises
    ------
    AssertionError
        Something is wrong; the message has one line a fault.
    MissingPackageError
        What the checks themselves need isn't installed.
    """
    faults = [f"{name}: {fault}" for name, check in CHECKS.items() for fault in check(card)]
    if faults:
        raise AssertionError("\n".join([f"{card.name} has {len(faults)} faults", *faults]))


def floor_plan(card: Card) -> Iterator[str]:
    """The folder holds the four files of the floor plan, and no module named after nothing."""
    for name in FLOOR_PLAN:
        if not (card.folder / name).is_file():
            yield f"{card.folder / name} is missing"
    for name in VAGUE_NAMES:
        if list(card.folder.rglob(name)):
            yield f"{name} names nothing: call the module after what it holds"


def card_fields(card: Card) -> Iterator[str]:
    """The card says what the method is, for whom and from which paper, and its extra exists."""
    if [point.name for point in _entry_points(card)] != [card.name]:
        yield f"name is {card.name!r}, which isn't the name of the entry point of {card.package}"
    for field in ("title", "job", "summary"):
        if not getattr(card, field).strip():
            yield f"{field} is empty"
    if "\n" in card.job.strip():
        yield "job is more than one line"
    if not card.paper.authors:
        yield "paper.authors is empty"
    if not 1900 < card.paper.year < 2200:
        yield f"paper.year is {card.paper.year}"
    if not (card.paper.openreview or card.paper.arxiv or card.paper.doi or card.paper.code):
        yield "the paper has no identifier: openreview, arxiv, doi or code"
    extras = _extras(distribution_of(card))
    if card.extra and card.extra not in extras:
        yield f"extra is {card.extra!r}, which {distribution_of(card)} doesn't have"
    if not card.jobs:
        yield "has no jobs"
    verbs = [job.verb for job in card.jobs]
    if len(set(verbs)) != len(verbs):
        yield f"jobs share a verb: {', '.join(verbs)}"
    for job in card.jobs:
        if not job.example.startswith(f"assay {card.name} {job.verb}"):
            yield f"the example of {job.verb} doesn't start with 'assay {card.name} {job.verb}': {job.example!r}"


def public_names(card: Card) -> Iterator[str]:
    """``__init__.py`` re-exports the public names and nothing else, and each can be imported."""
    tree = ast.parse((card.folder / "__init__.py").read_text(encoding="utf-8"))
    listed = _listed(tree)
    if listed is None:
        yield "__init__.py has no literal __all__"
        return
    if listed != sorted(set(listed)):
        yield "__all__ isn't sorted, or names something twice"
    exported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(card.package))
        for alias in node.names
    }
    for name in sorted(exported - set(listed)):
        yield f"{name} is re-exported and not in __all__"
    for name in sorted(set(listed) - exported):
        yield f"{name} is in __all__ and not re-exported as 'from ... import {name} as {name}'"
    package = importlib.import_module(card.package)
    for name in listed:
        try:
            getattr(package, name)
        except (AttributeError, ImportError) as error:
            yield f"{name} can't be imported: {error}"
    whole = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == card.package
        for alias in node.names
    }
    for name in sorted(set(listed) - whole):
        if (card.folder / f"{name}.py").exists():
            yield f"{name} is also the name of a module, which takes its place once it is imported"


def docstrings(card: Card) -> Iterator[str]:
    """Every public name has a numpydoc docstring with parameters, returns and an example; every method has one."""
    validate = _numpydoc_validate()
    for name, value in _public(card):
        path = f"{card.package}.{name}"
        rules = DOCUMENTED - {"EX01"} if _needs_no_example(value) else DOCUMENTED
        if is_dataclass(value):
            rules = rules - {"PR01"}
            yield from (f"{name}: the field {field} isn't documented" for field in _undocumented_fields(value))
        yield from _complaints(validate, path, name, rules)
        if inspect.isclass(value):
            for method in _own_methods(value):
                yield from _complaints(validate, f"{path}.{method}", f"{name}.{method}", DOCUMENTED_METHOD)


def docstring_examples(card: Card) -> Iterator[str]:
    """The examples in the docstrings of public names give what they show."""
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    finder, runner = doctest.DocTestFinder(recurse=True), doctest.DocTestRunner(verbose=False, optionflags=flags)
    for name, value in _public(card):
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        for test in finder.find(value, name, module=sys.modules[value.__module__]):
            said: list[str] = []
            if runner.run(test, out=said.append).failed:
                yield f"the example of {test.name} fails: {' '.join(''.join(said).split())}"


def full_annotations(card: Card) -> Iterator[str]:
    """Every public function and every method of a public class has full annotations."""
    for name, value in _public(card):
        functions: dict[str, Any] = {}
        if inspect.isclass(value):
            functions = {f"{name}.{method}": value.__dict__[method] for method in _own_methods(value)}
            if isinstance(value.__dict__.get("__init__"), FunctionType) and not is_dataclass(value):
                functions[f"{name}.__init__"] = value.__dict__["__init__"]
        elif callable(value):
            functions = {name: value}
        for label, function in functions.items():
            yield from (f"{label}: {gap} isn't annotated" for gap in _unannotated(function))


def job_help(card: Card) -> Iterator[str]:
    """Each verb of the card is a command, its ``--help`` shows an example, and the commands have no other verb."""
    app = importlib.import_module(f"{card.package}.jobs").app
    commands = {name for name in app if not name.startswith("-")}
    verbs = {job.verb for job in card.jobs}
    if commands != verbs:
        yield f"the commands are {', '.join(sorted(commands))}, the card's verbs {', '.join(sorted(verbs))}"
    for job in card.jobs:
        done = _shell(f"assay {shlex.quote(card.name)} {shlex.quote(job.verb)} --help", Path.cwd())
        body = " ".join(line for line in done.stdout.splitlines() if not line.startswith("Usage:"))
        if done.returncode != 0:
            yield f"{job.verb} --help ends with status {done.returncode}: {_last_line(done)}"
        elif f"assay {card.name} {job.verb} " not in " ".join(body.split()):
            yield f"{job.verb} --help shows no example that starts with 'assay {card.name} {job.verb}'"


def whole_numbers(card: Card) -> Iterator[str]:
    """Every whole number among a job's options is a `WholeNumber`: "3.7" is refused and not rounded."""
    for verbs, command in _commands(importlib.import_module(f"{card.package}.jobs").app):
        for argument in command.assemble_argument_collection():
            if int in (argument.hint, *get_args(argument.hint)) and argument.parameter.converter is None:
                yield f"{' '.join(verbs)}: {argument.name} is a plain int; expected assay.core.jobs.WholeNumber"


def job_examples(card: Card) -> Iterator[str]:
    """Each job's example runs in an empty folder, after its set-up."""
    for job in card.jobs:
        with tempfile.TemporaryDirectory() as folder:
            for text in filter(None, (job.setup, job.example)):
                done = _shell(text, Path(folder))
                if done.returncode != 0:
                    yield f"{job.verb}: {text!r} ends with status {done.returncode}: {_last_line(done)}"
                    break


def study(card: Card) -> Iterator[str]:
    """The study has the three scales and a method's arm; its claims have sources and look at arms that exist."""
    found = load_study(card)
    for scale in SCALES:
        if scale not in found.scales:
            yield f"has no scale {scale}"
    if not any(arm.role == "method" for arm in found.arms.values()):
        yield "has no arm with the role 'method'"
    if not found.claims:
        yield "has no claims"
    if "." in found.trial.__qualname__ or found.trial.__name__ == "<lambda>":
        yield f"trial is {found.trial.__qualname__}; expected a function of a module, which other processes can import"
    for claim in found.claims:
        yield from _claim_faults(claim, found)
    declared = requirements_of(distribution_of(card), extras=None)
    needed = {
        *((f"arm {name}", module) for name, arm in found.arms.items() for module in arm.needs),
        *(
            (f"case {case.name}", module)
            for scale in found.scales.values()
            for case in scale.cases
            for module in case.needs
        ),
    }
    for who, module in sorted(needed):
        if not _distributions(module) & declared:
            yield f"{who} needs {module}, which no extra brings"


def sufficient_extra(card: Card) -> Iterator[str]:
    """What the package imports is brought by its distribution and the method's extra.

    Inside functions, packages of the extras that aren't another method's may be imported too: peers, backends.
    """
    distribution = distribution_of(card)
    sure = requirements_of(distribution, extras=[card.extra] if card.extra else [])
    foreign = {other.extra for other in load_cards().values() if other.name != card.name}
    optional = requirements_of(distribution, extras=_extras(distribution) - foreign - GATHERING_EXTRAS)
    own = {card.package.partition(".")[0], "assay"}
    for used in imports_of(card.folder):
        top = used.module.partition(".")[0]
        if top in own or top in sys.stdlib_module_names:
            continue
        allowed = sure if used.at_import else sure | optional
        if not _distributions(top) & allowed:
            bringer = f"the extra {card.extra}" if card.extra else distribution
            yield f"{used.file.name}, line {used.line} imports {top}, which {bringer} doesn't bring"


def no_other_method(card: Card) -> Iterator[str]:
    """The package imports no other method: what two need is in ``assay.core``."""
    others = {other.package for other in load_cards().values() if other.name != card.name}
    for used in imports_of(card.folder):
        for other in others:
            if used.module == other or used.module.startswith(f"{other}."):
                yield f"{used.file.name}, line {used.line} imports {other}"


CHECKS: Mapping[str, Callable[[Card], Iterable[str]]] = {
    "floor_plan": floor_plan,
    "card_fields": card_fields,
    "public_names": public_names,
    "docstrings": docstrings,
    "docstring_examples": docstring_examples,
    "full_annotations": full_annotations,
    "job_help": job_help,
    "whole_numbers": whole_numbers,
    "job_examples": job_examples,
    "study": study,
    "sufficient_extra": sufficient_extra,
    "no_other_method": no_other_method,
}
"""The checks by name; each gives one line a fault."""


@dataclass(frozen=True)
class Import:
    """An import statement: which module, where, and whether it runs when its own module is imported."""

    module: str
    file: Path
    line: int
    at_import: bool


def imports_of(folder: Path) -> Iterator[Import]:
    """All absolute imports of a package's modules; those for type checkers alone count as not run."""
    for file in sorted(folder.rglob("*.py")):
        waiting: list[tuple[ast.AST, bool]] = [(ast.parse(file.read_text(encoding="utf-8")), True)]
        while waiting:
            node, at_import = waiting.pop()
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, file, node.lineno, at_import) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                yield Import(node.module, file, node.lineno, at_import)
                if node.module == "assay":
                    yield from (Import(f"assay.{alias.name}", file, node.lineno, at_import) for alias in node.names)
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_type_checkers(node)
            waiting.extend((child, at_import and not later) for child in ast.iter_child_nodes(node))


def distribution_of(card: Card) -> str:
    """The name of the distribution that brings a method."""
    points = _entry_points(card)
    if not points or points[0].dist is None:
        raise AssertionError(f"no installed distribution has the entry point {card.name} = {card.package}")
    return points[0].dist.name


def requirements_of(distribution: str, *, extras: Iterable[str] | None) -> frozenset[str]:
    """The normalised names of what a distribution requires with some of its extras; with all of them when None."""
    chosen = _extras(distribution) if extras is None else set(extras)
    waiting = [{"extra": extra} for extra in ["", *sorted(chosen)]]
    names: set[str] = set()
    seen = {environment["extra"] for environment in waiting}
    requirements = [Requirement(text) for text in importlib.metadata.requires(distribution) or []]
    while waiting:
        environment = waiting.pop()
        for requirement in requirements:
            if requirement.marker is not None and not requirement.marker.evaluate(environment):
                continue
            names.add(canonicalize_name(requirement.name))
            if canonicalize_name(requirement.name) == canonicalize_name(distribution):
                new = set(requirement.extras) - seen
                seen |= new
                waiting.extend({"extra": extra} for extra in new)
    return frozenset(names)


def _claim_faults(claim: Claim, found: Study) -> Iterator[str]:
    for field in ("id", "statement", "source"):
        if not getattr(claim, field).strip():
            yield f"claim {claim.id or claim.statement!r} has no {field}"
    for pattern in claim.test.arms:
        if not any(fnmatchcase(arm, pattern) for arm in found.arms):
            yield f"claim {claim.id} looks at the arm {pattern!r}, which isn't there"
    for scale in claim.scales:
        if scale not in found.scales:
            yield f"claim {claim.id} is for the scale {scale!r}, which isn't there"
    for name in claim.scales or tuple(found.scales):
        cases = found.scales[name].cases if name in found.scales else ()
        pairs = ((arm, case) for case in cases for arm in found.arms if case.takes(arm))
        if cases and not any(claim.test.wants(arm, case.name, found) for arm, case in pairs):
            yield f"claim {claim.id} has no trial at scale {name}: limit its scales, or give it cases"


def _entry_points(card: Card) -> list[importlib.metadata.EntryPoint]:
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return [point for point in points if point.value == card.package]


def _extras(distribution: str) -> set[str]:
    return set(importlib.metadata.metadata(distribution).get_all("Provides-Extra") or ())


def _distributions(module: str) -> frozenset[str]:
    """The normalised names of the distributions that may bring a module; its own name where none is installed."""
    top = module.partition(".")[0]
    return frozenset(canonicalize_name(name) for name in _installed_modules().get(top, [top]))


@cache
def _installed_modules() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _listed(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [target.id for target in node.targets if isinstance(target, ast.Name)] == [
            "__all__"
        ]:
            try:
                return [str(name) for name in ast.literal_eval(node.value)]
            except ValueError:
                return None
    return None


def _public(card: Card) -> Iterator[tuple[str, Any]]:
    package = importlib.import_module(card.package)
    for name in package.__all__:
        value = getattr(package, name)
        if not isinstance(value, ModuleType):
            yield name, value


def _own_methods(value: type) -> list[str]:
    """The public methods that a class defines itself."""
    kinds = (FunctionType, classmethod, staticmethod, property)
    return [name for name, member in vars(value).items() if not name.startswith("_") and isinstance(member, kinds)]


def _needs_no_example(value: Any) -> bool:
    """Errors, interfaces and plain results are made by others: the example is where they come from."""
    if not inspect.isclass(value):
        return not inspect.isfunction(value)
    return issubclass(value, BaseException) or inspect.isabstract(value) or is_dataclass(value)


def _undocumented_fields(value: Any) -> list[str]:
    """The fields of a dataclass that its docstring names neither as parameters nor as attributes."""
    listed = re.findall(r"^ *(\w+(?:, \w+)*)(?: :.*)?$", inspect.getdoc(value) or "", re.MULTILINE)
    documented = {name for names in listed for name in names.split(", ")}
    return [field.name for field in fields(value) if not field.name.startswith("_") and field.name not in documented]


def _complaints(validate: Callable[..., Any], path: str, label: str, rules: frozenset[str]) -> Iterator[str]:
    for code, message in validate(path)["errors"]:
        if code in rules:
            yield f"{label}: {message} ({code})"


def _commands(app: App, verbs: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    """All commands below an app, with the words that call them."""
    if app.default_command is not None:
        yield verbs, app
    for verb in app:
        if not verb.startswith("-"):
            yield from _commands(app[verb], (*verbs, verb))


def _unannotated(function: Any) -> Iterator[str]:
    if isinstance(function, property):
        function = function.fget
    function = getattr(function, "__func__", function)
    signature = inspect.signature(function)
    for number, parameter in enumerate(signature.parameters.values()):
        first_of_method = number == 0 and parameter.name in ("self", "cls")
        if parameter.annotation is parameter.empty and not first_of_method:
            yield f"the parameter {parameter.name}"
    if signature.return_annotation is signature.empty:
        yield "what it returns"


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line as a user would, with this Python's commands first in the path."""
    folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    environment = {**os.environ, "PATH": os.pathsep.join(folders), "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        text,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _numpydoc_validate() -> Callable[..., Any]:
    try:
        from numpydoc.validate import validate
    except ImportError as error:
        raise MissingPackageError("numpydoc", what="checking docstrings", extra="rooms") from error
    function: Callable[..., Any] = validate
    return function
