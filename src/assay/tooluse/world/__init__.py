"""A world of tools that really run: pure functions over data that ships in packages, and an office with a memory."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeAlias

from assay.core.errors import InputError
from assay.tooluse.trajectories import Tool
from assay.tooluse.world._registry import Declared, State, ToolError, bindings, declared

__all__ = ["ToolFormat", "ToolWorld", "tool_as"]

ToolFormat: TypeAlias = Literal["openai", "anthropic", "mcp"]


@cache
def _validator(schema: str) -> Any:
    from jsonschema.validators import validator_for

    read = json.loads(schema)
    return validator_for(read)(read)


def tool_as(tool: Tool, format: ToolFormat) -> dict[str, Any]:
    """A tool's definition as an API wants it.

    Raises
    ------
    InputError
        The format is unknown.
    """
    schema = tool.parameters or {"type": "object", "properties": {}}
    if format == "openai":
        function = {"name": tool.name, "description": tool.description, "parameters": schema}
        return {"type": "function", "function": function}
    if format == "anthropic":
        return {"name": tool.name, "description": tool.description, "input_schema": schema}
    if format == "mcp":
        known = {"outputSchema": tool.returns} if tool.returns else {}
        return {"name": tool.name, "description": tool.description, "inputSchema": schema, **known}
    raise InputError(f"format is '{format}'", expected="openai, anthropic or mcp")


class ToolWorld:
    """Tools that can be called, with a state that can be kept and put back.

    Nothing a tool does leaves the process: no network, no files. The same calls from the same state give the same
    results.

    Parameters
    ----------
    declarations : mapping of str to Declared
        The tools; use `load`.

    Examples
    --------
    >>> world = ToolWorld.load("offline")
    >>> world.call("weekday_of", {"date": "2024-02-29"})
    {'value': 'Thursday'}
    >>> world.call("weekday_of", {"date": "2023-02-29"})
    {'error': '2023-02-29 is not a day of the calendar'}
    """

    def __init__(self, declarations: Mapping[str, Declared]) -> None:
        from assay.tooluse.world.office import new_state

        self.declarations = declarations
        self.state: State = new_state()

    @classmethod
    def load(cls, name: str = "offline") -> ToolWorld:
        """Load a world.

        Parameters
        ----------
        name : str
            ``offline``, the only one.

        Returns
        -------
        ToolWorld

        Raises
        ------
        InputError
            There is no world of that name.
        """
        if name != "offline":
            raise InputError(f"world '{name}'", expected="offline")
        return cls(declared())

    def tools(self, format: ToolFormat | None = None) -> list[Any]:
        """The tools' definitions.

        Parameters
        ----------
        format : {'openai', 'anthropic', 'mcp'}, optional
            As `Tool` objects when left out.

        Returns
        -------
        list of Tool, or of dict
        """
        found = [one.tool for one in self.declarations.values()]
        return found if format is None else [tool_as(one, format) for one in found]

    def call(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool.

        Parameters
        ----------
        name : str
            The tool.
        args : mapping
            Its arguments; they are checked against the schema, and defaults are filled in.

        Returns
        -------
        dict
            The result, or ``{"error": reason}``.
        """
        found = self.declarations.get(name)
        if found is None:
            return {"error": f"no tool is called {name}"}
        filled = {
            **{p: s["default"] for p, s in found.tool.properties.items() if "default" in s},
            **args,
        }
        wrong = next(_validator(json.dumps(found.tool.parameters, sort_keys=True)).iter_errors(filled), None)
        if wrong is not None:
            where = f"{'.'.join(map(str, wrong.path))}: " if wrong.path else ""
            return {"error": f"{where}{wrong.message}"}
        try:
            return found.run(self.state, **filled)
        except ToolError as error:
            return {"error": str(error)}

    def violations(self, name: str, result: Mapping[str, Any]) -> list[str]:
        """What in a result breaks the tool's output schema; an error breaks nothing.

        Parameters
        ----------
        name : str
            The tool.
        result : mapping
            What `call` returned.

        Returns
        -------
        list of str
        """
        if set(result) == {"error"}:
            return []
        schema = json.dumps(self.declarations[name].tool.returns, sort_keys=True)
        return [str(one.message) for one in _validator(schema).iter_errors(result)]

    def snapshot(self) -> State:
        """The state as it is now.

        Returns
        -------
        dict
            JSON values of its own.
        """
        return copy.deepcopy(self.state)

    def restore(self, state: State) -> None:
        """Put a kept state back.

        Parameters
        ----------
        state : dict
            From `snapshot`.
        """
        self.state = copy.deepcopy(state)

    def reset(self) -> None:
        """Begin with an empty office."""
        from assay.tooluse.world.office import new_state

        self.state = new_state()

    def edges(self) -> list[tuple[str, str, str, str]]:
        """All ways in which one tool's result can be another's argument.

        Returns
        -------
        list of (producer, field, consumer, parameter)
        """
        return [
            (producer, field, consumer, parameter)
            for producer, one in self.declarations.items()
            for consumer, other in self.declarations.items()
            if producer != consumer
            for field, parameter in bindings(one, other)
        ]

    def groups(self) -> dict[str, list[str]]:
        """The tools that are easily confused, by what they share.

        Returns
        -------
        dict of str to list of str
        """
        found: dict[str, list[str]] = {}
        for name, one in self.declarations.items():
            for group in one.tool.groups:
                found.setdefault(group, []).append(name)
        return found
