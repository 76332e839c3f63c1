"""The objects: tools, calls, recorded trajectories, and the reference that a trajectory is scored against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from assay.core.errors import InputError

__all__ = ["Call", "Edge", "Gold", "Structure", "Tool", "Trajectory", "make_calls", "resolve_path"]

Structure: TypeAlias = Literal["parallel", "sequential", "dag"]
STRUCTURES = ("parallel", "sequential", "dag")


@dataclass(slots=True)
class Call:
    """One call of a tool.

    Parameters
    ----------
    name : str
        The tool's name.
    args : dict
        The arguments; empty where they couldn't be parsed.
    id : str or None
        The call's id in the recording.
    index : int
        Its place among the trajectory's calls, from 0.
    turn : int
        Which of the model's turns with calls issued it, from 0.
    parallel_group : int or None
        Calls that were issued together share this number; None for a call that was issued alone.
    raw_args : str or None
        The arguments as recorded, where they couldn't be parsed.
    parse_error : str or None
        Why the arguments couldn't be parsed.
    result : object
        What the tool answered; None where no answer is recorded.
    is_error : bool
        Whether the answer is an error.
    t_start, t_end : float or None
        Seconds since the epoch.
    required : tuple of str or None
        Which arguments the recording lists as required parameters, where it tells them from optional ones.
    """

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    id: str | None = None
    index: int = 0
    turn: int = 0
    parallel_group: int | None = None
    raw_args: str | None = None
    parse_error: str | None = None
    result: Any = None
    is_error: bool = False
    t_start: float | None = None
    t_end: float | None = None
    required: tuple[str, ...] | None = None


@dataclass(slots=True)
class Trajectory:
    """A recorded run: what the agent called, and what it answered at last.

    Parameters
    ----------
    calls : list of Call
        In the order in which they were issued.
    id : str
        Which task it is a run of.
    query : str
        What the user asked.
    final_answer : str or None
        The last text of the model that called nothing.
    stop_reason : str or None
        Why the run ended.
    usage : dict
        Tokens by kind.
    trial : int
        Which repetition of the task.
    error : str or None
        Why the run failed for a reason of the service; such a run is no evidence about the model.
    notes : list of str
        What is odd about the recording: calls without result, results without call, ids used twice.
    end_state : object
        What the world looked like after the run, where it was recorded.
    """

    calls: list[Call] = field(default_factory=list)
    id: str = ""
    query: str = ""
    final_answer: str | None = None
    stop_reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    trial: int = 0
    error: str | None = None
    notes: list[str] = field(default_factory=list)
    end_state: Any = None


@dataclass(slots=True, frozen=True)
class Edge:
    """A dependency: the consumer's parameter takes the value at a path in the producer's result.

    Parameters
    ----------
    producer, consumer : int
        Reference calls by index.
    parameter : str
        The consumer's parameter.
    path : str
        Where the value is in the result, such as ``$.city.lat`` or ``$.rates[0]``.
    """

    producer: int
    consumer: int
    parameter: str
    path: str = "$"


@dataclass(slots=True)
class Gold:
    """The reference of a task: one valid plan, and what else is known of the task.

    Parameters
    ----------
    calls : list of Call
        The reference calls.
    structure : {'parallel', 'sequential', 'dag'}
        Whether order matters: not at all, wholly, or as far as `order` says.
    id : str
        The task's id.
    query : str
        What the user asks.
    edges : tuple of Edge
        Dependencies between calls.
    order : tuple of (int, int)
        For a DAG: pairs of calls of which the first comes before the second, beside those of `edges`.
    optional : frozenset of int
        Calls that may be left out.
    alternatives : tuple of Gold
        Other valid plans; the best score counts.
    matchers : dict
        Rules for arguments by ``tool.parameter``, in the form that `Matcher` takes.
    difficulty, twin_id, domain : str
        How the query is worded, which trajectory it shares with its twin, and the field.
    final_answer : str or None
        The reference answer.
    facts : tuple of str
        Texts that the tools' results must contain for the user to be served.
    end_state : object
        What the world must look like at the end; None where that doesn't count.

    Raises
    ------
    InputError
        The structure is unknown, or an edge names a call that isn't there.
    """

    calls: list[Call]
    structure: Structure = "parallel"
    id: str = ""
    query: str = ""
    edges: tuple[Edge, ...] = ()
    order: tuple[tuple[int, int], ...] = ()
    optional: frozenset[int] = frozenset()
    alternatives: tuple[Gold, ...] = ()
    matchers: dict[str, Any] = field(default_factory=dict)
    difficulty: str = ""
    twin_id: str = ""
    domain: str = ""
    final_answer: str | None = None
    facts: tuple[str, ...] = ()
    end_state: Any = None
    _prepared: Any = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.structure not in STRUCTURES:
            raise InputError(f"structure is '{self.structure}'", expected=f"one of: {', '.join(STRUCTURES)}")
        count = len(self.calls)
        for producer, consumer in [*((edge.producer, edge.consumer) for edge in self.edges), *self.order]:
            if not (0 <= producer < count and 0 <= consumer < count):
                raise InputError(
                    f"an edge of gold '{self.id}' joins calls {producer} and {consumer}",
                    expected=f"calls from 0 to {count - 1}",
                )
            if producer == consumer:
                raise InputError(f"an edge of gold '{self.id}' joins call {producer} with itself", expected="two calls")
        if wrong := [one for one in self.optional if not isinstance(one, int) or not 0 <= one < count]:
            raise InputError(
                f"gold '{self.id}' has the optional call {wrong[0]}", expected=f"calls from 0 to {count - 1}"
            )

    @property
    def cluster(self) -> str:
        """What simple and hard twins and repeated trials share: the reference trajectory."""
        return self.twin_id or self.id

    def as_trajectory(self) -> Trajectory:
        """The perfect run: the reference calls with their results."""
        from dataclasses import replace

        calls = [replace(call) for call in self.calls]
        return Trajectory(calls=calls, id=self.id, query=self.query, final_answer=self.final_answer)


@dataclass(slots=True)
class Tool:
    """What a tool is, as a model is told.

    Parameters
    ----------
    name : str
        Its name.
    description : str
        What it does.
    parameters : dict
        JSON Schema of the arguments: an object with properties and the list of required ones.
    returns : dict
        JSON Schema of the result; empty where it isn't known.
    domain, parent : str
        The field, and the service that it belongs to.
    groups : tuple of str
        Tools that share a group are easily confused.
    connected : dict
        Which parameter of which other tool can take this one's result.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    returns: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    parent: str = ""
    groups: tuple[str, ...] = ()
    connected: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The parameters' schemas by name."""
        found: Mapping[str, Any] = self.parameters.get("properties", {})
        return found

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters that must be given."""
        return tuple(self.parameters.get("required", ()))


def make_calls(items: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Call]:
    """Calls of names and arguments, one a turn."""
    return [Call(name, dict(args), index=i, turn=i) for i, (name, args) in enumerate(items)]


def resolve_path(value: Any, path: str) -> Any:
    """The value at a path such as ``$.a.b[0]``.

    Raises
    ------
    KeyError
        There is nothing at that path.
    """
    for step in path_steps(path):
        try:
            value = value[step]
        except (LookupError, TypeError) as error:
            raise KeyError(path) from error
    return value


def path_steps(path: str) -> Sequence[str | int]:
    """``$.a.b[0]`` as ``["a", "b", 0]``."""
    steps: list[str | int] = []
    for part in path.removeprefix("$").replace("[", ".[").split("."):
        if part.startswith("["):
            steps.append(int(part[1:-1]))
        elif part:
            steps.append(part)
    return steps
