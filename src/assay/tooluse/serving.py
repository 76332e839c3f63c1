"""The world of tools as a server of the Model Context Protocol."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from assay import __version__
from assay.core.errors import AssayError, InputError, MissingPackageError
from assay.tooluse.formats._builder import dump
from assay.tooluse.world import ToolWorld

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

__all__ = ["make_server", "serve_http", "serve_stdio"]


def make_server(world: ToolWorld | None = None) -> Server[Any]:
    """A server with all tools of the world.

    Parameters
    ----------
    world : ToolWorld, optional
        The world; its office is shared by all who connect.

    Returns
    -------
    mcp.server.lowlevel.Server

    Raises
    ------
    MissingPackageError
        The extra ``tooluse-serve`` isn't installed.
    """
    try:
        from mcp import types
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise MissingPackageError("mcp", what="serving tools", extra="tooluse-serve") from error
    shown = world or ToolWorld.load()

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        tools = [types.Tool.model_validate(one) for one in shown.tools("mcp")]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        result = shown.call(params.name, params.arguments or {})
        failed = "error" in result
        given: dict[str, Any] = {
            "content": [{"type": "text", "text": result["error"] if failed else dump(result)}],
            "isError": failed,
        }
        return types.CallToolResult.model_validate(given if failed else {**given, "structuredContent": result})

    return Server("assay tooluse", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def serve_stdio() -> None:
    """Serve on standard input and output until the client leaves."""
    import asyncio

    server = make_server()

    async def run() -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    asyncio.run(run())


def serve_http(*, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve over HTTP at ``/mcp``, on this machine unless another host is named.

    Parameters
    ----------
    host : str
        The address to listen at.
    port : int
        The port.

    Raises
    ------
    InputError
        The port is out of range.
    AssayError
        It can't be listened to: another program does, or the host isn't this machine.
    """
    if not 1 <= port <= 65535:
        raise InputError(f"port is {port}", expected="from 1 to 65535")
    server = make_server()
    import socket

    import uvicorn

    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise AssayError(f"can't listen at {host}:{port}: {error.strerror or error}") from error
    with listening:
        print(f"serving at http://{host}:{port}/mcp until stopped", file=sys.stderr, flush=True)
        config = uvicorn.Config(server.streamable_http_app(), host=host, port=port, log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])
