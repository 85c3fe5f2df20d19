"""A run's own process: `auscult simulate`, with the method that its user has written, which comes on standard input."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line behind this program's name."""
    if data := sys.stdin.buffer.read():
        import cloudpickle

        from edge_sdk.methods import METHODS

        METHODS.add(cloudpickle.loads(data))
    from edge_sdk import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
