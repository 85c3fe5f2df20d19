"""`auscult models progress`: what has become of a rollout, for people."""

from __future__ import annotations

import pytest

from aggregator.service.client.client import ServiceClient, make_parser


def test_a_rollout_that_was_taken_back_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It went on saying that the version is kept."""
    told = {
        "id": "first",
        "outcome": "kept",
        "model": {"name": "m"},
        "undo": "",
        "counts": {},
        "having": 2,
        "target": 2,
    }
    told |= {"accuracy": None, "stages": [], "why": "", "undone_by": ["first-back"]}
    monkeypatch.setattr(ServiceClient, "ask", lambda client, path: told)
    options = make_parser().parse_args(["models", "progress", "first"])
    options.do(options, ServiceClient("http://x", "t"))
    assert capsys.readouterr().out.splitlines()[1] == "  is taken back by first-back"
