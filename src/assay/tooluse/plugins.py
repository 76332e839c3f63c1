"""Where other people's harnesses meet the scores: pytest, inspect-ai and agentevals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assay.core.errors import InputError, MissingPackageError
from assay.tooluse.formats import FORMATS
from assay.tooluse.formats._benchmarks import write_native
from assay.tooluse.matchers import Matcher
from assay.tooluse.scoring import explain, score
from assay.tooluse.trajectories import Call, Gold, Structure, Tool, Trajectory

__all__ = ["assert_trajectory", "inspect_scorer", "make_evaluator"]


def assert_trajectory(
    pred: Trajectory | Sequence[Call],
    gold: Gold,
    *,
    min_call_f1: float = 1.0,
    matcher: Matcher | None = None,
    tools: Iterable[Tool] = (),
) -> None:
    """Fail a test, with the difference as its message, where a trajectory is too far from its reference.

    Parameters
    ----------
    pred : Trajectory or sequence of Call
        What was called.
    gold : Gold
        The reference.
    min_call_f1 : float
        The least call F1 that passes.
    matcher : Matcher, optional
        How arguments are compared.
    tools : sequence of Tool, optional
        The tools on offer.

    Raises
    ------
    AssertionError
        The score is below.

    Examples
    --------
    >>> from assay.tooluse.trajectories import make_calls
    >>> gold = Gold(make_calls([("news", {})]))
    >>> assert_trajectory(gold.as_trajectory(), gold)
    """
    __tracebackhide__ = True
    tools = list(tools)
    found = score(pred, gold, matcher=matcher, tools=tools)
    if found.error is not None or found["call_f1"] < min_call_f1:
        told = explain(pred, gold, matcher=matcher, tools=tools)
        raise AssertionError(f"call_f1 is below {min_call_f1:g}\n{told}")


def make_evaluator(
    *, structure: Structure = "parallel", matcher: Matcher | None = None, metric: str = "call_f1"
) -> Callable[..., dict[str, Any]]:
    """An evaluator with the call signature of agentevals: graded, where theirs says true or false.

    Parameters
    ----------
    structure : {'parallel', 'sequential', 'dag'}
        Whether the reference's order counts.
    matcher : Matcher, optional
        How arguments are compared.
    metric : str
        Which metric is the score.

    Returns
    -------
    callable
        ``evaluator(outputs=messages, reference_outputs=messages)`` gives a dictionary with key, score and comment.

    Examples
    --------
    >>> call = {"function": {"name": "news", "arguments": "{}"}}
    >>> messages = [{"role": "assistant", "tool_calls": [call]}]
    >>> make_evaluator()(outputs=messages, reference_outputs=messages)["score"]
    1.0
    """

    def evaluator(*, outputs: Any, reference_outputs: Any, **_: Any) -> dict[str, Any]:
        read = FORMATS["openai"].read
        (run,), (wanted,) = read(_messages(outputs)), read(_messages(reference_outputs))
        gold = Gold(wanted.calls, structure, query=wanted.query)
        found = score(run, gold, matcher=matcher)
        return {
            "key": f"trajectory_{metric}",
            "score": found[metric],
            "comment": explain(run, gold, matcher=matcher),
        }

    return evaluator


def _messages(given: Any) -> Any:
    """Messages as a list, whether given so or in a state with ``messages``."""
    return given["messages"] if isinstance(given, Mapping) and "messages" in given else given


def inspect_scorer(
    golds: Iterable[Gold], *, metric: str = "call_f1", matcher: Matcher | None = None, tools: Iterable[Tool] = ()
) -> Any:
    """A scorer for inspect-ai that compares a sample's messages with the reference of the sample's id.

    Parameters
    ----------
    golds : iterable of Gold
        The references.
    metric : str
        Which metric is the value.
    matcher : Matcher, optional
        How arguments are compared.
    tools : sequence of Tool, optional
        The tools on offer.

    Returns
    -------
    inspect_ai.scorer.Scorer

    Raises
    ------
    MissingPackageError
        The extra ``tooluse-inspect`` isn't installed.

    Examples
    --------
    >>> from inspect_ai import Task  # doctest: +SKIP
    >>> Task(dataset, scorer=inspect_scorer(golds))  # doctest: +SKIP
    """
    try:
        from inspect_ai.scorer import Score, mean, scorer, stderr
    except ImportError as error:
        raise MissingPackageError("inspect-ai", what="a scorer for Inspect", extra="tooluse-inspect") from error
    by_id = {gold.id: gold for gold in golds}
    offered = list(tools)

    @scorer(metrics=[mean(), stderr()], name=f"trajectory_{metric}")
    def trajectory() -> Any:
        async def judged(state: Any, target: Any) -> Any:
            messages = [message.model_dump(mode="json") for message in state.messages]
            (run,) = FORMATS["inspect"].read({"id": state.sample_id, "epoch": state.epoch, "messages": messages})
            gold = by_id.get(str(state.sample_id))
            if gold is None:
                raise InputError(f"no reference for the sample '{state.sample_id}'", expected="one of the same id")
            found = score(run, gold, matcher=matcher, tools=offered)
            told = explain(run, gold, matcher=matcher, tools=offered)
            return Score(
                value=found[metric],
                explanation=told,
                metadata={"labels": list(found.labels), "trajectory": write_native(run)},
            )

        return judged

    return trajectory()
