"""A small server that speaks OpenAI's chat protocol, for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving(answer: Callable[[dict[str, Any]], dict[str, Any] | int]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve on a free port; `answer` makes a message of a request, or a status. Gives the base URL and the requests."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body)
            found = answer(body)
            status = found if isinstance(found, int) else 200
            usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
            choice = (
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **(found or {})}}
                if status == 200
                else {}
            )  # type: ignore[dict-item]
            reply = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "m",
                "choices": [choice],
                "usage": usage,
            }
            data = json.dumps(reply if status == 200 else {"error": {"message": "refused"}}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

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
