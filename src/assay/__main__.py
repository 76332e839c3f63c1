"""The entry of the command ``assay``: light, so that Ctrl-C is answered in one line from the first moment on."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]

INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with 0 (done), 1 (it failed), 2 (the input is wrong) or 130 (stopped)."""
    # A closed stream is None, which no library expects.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (stays open as a stream does)
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        from assay.cli import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        print("assay: stopped", file=sys.stderr)
        status = INTERRUPTED
    sys.exit(status)


if __name__ == "__main__":
    main()
