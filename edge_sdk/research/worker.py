"""A run's own process: `auscult simulate`, with a method that its user has written."""

from __future__ import annotations

import os
import sys
from pathlib import Path

METHOD = "AUSCULT_OWN_METHOD"
"""Environment variable that names the file of such a method; only its own user's process has written it."""


def main() -> int:
    """Runs the command line behind this program's name."""
    if place := os.environ.get(METHOD):
        import cloudpickle

        from edge_sdk.methods import METHODS

        METHODS.add(cloudpickle.loads(Path(place).read_bytes()))
    from edge_sdk import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
