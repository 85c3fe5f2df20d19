"""A run's own process: `auscult simulate`, with what its user has written: (method or None, task or None), pickled, on
standard input from the process that has started this one."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs the command line behind this program's name."""
    if data := sys.stdin.buffer.read():
        import cloudpickle

        from edge_sdk.methods import METHODS
        from edge_sdk.model.tasks.plugged import give_task

        method, task = cloudpickle.loads(data)
        if method is not None:
            METHODS.add(method)
        if task is not None:
            give_task(task)
    from edge_sdk import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
