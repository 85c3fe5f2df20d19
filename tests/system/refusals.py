"""What the command line refuses, asked in this process: nothing is started, so none of its own is needed."""

from __future__ import annotations

import pytest

from edge_sdk import cli


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What `auscult` writes to its errors, for arguments that it must refuse with code 2."""
    capsys.readouterr()
    try:
        code = cli.main([str(one) for one in arguments])
    except SystemExit as left:
        code = left.code
    told = capsys.readouterr()
    assert code == 2, f"code {code}\n{told.out}\n{told.err}"
    return told.err
