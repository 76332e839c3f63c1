"""A small server that speaks OpenAI's chat protocol, for tests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve on a free port. Gives the base URL and the requests.

    `answer` makes of a request a message, a status, the bytes of a body, ``"drop"`` for a connection that is closed at
    once, or ``"half"`` for one that is closed within the body.
    """
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body)
            found = answer(body)
            if found == "drop":
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            status = found if isinstance(found, int) else 200
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            message = {"role": "assistant", **(found if isinstance(found, dict) else {})}
            reply = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                "usage": usage,
            }
            data = json.dumps(reply if status == 200 else {"error": {"message": "refused"}}).encode()
            if isinstance(found, bytes):
                data = found
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(OSError):  # who waited has given up
                self.wfile.write(data[:9] if found == "half" else data)
            self.close_connection = found == "half"

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
