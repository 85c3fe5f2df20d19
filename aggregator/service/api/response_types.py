"""Shapes of what the API answers and takes, as its endpoints declare them."""

from __future__ import annotations

from typing import Any

from aggregator.service.application.schemas import Also, Keys, ListOf
from aggregator.service.fleet.monitor import SeenDevice, SeenHospital
from aggregator.service.runs.round_table import MODELS, TABLE
from aggregator.service.runs.runs import Wanted

MAYBE = float | None
ROUND = Keys(
    {
        **{name: MAYBE for name in TABLE},
        **dict.fromkeys(("round", "devices", "untold", "bytes_down", "bytes_up"), int),
        **{name: str for name in ("score", "units", *(f"{model}_error" for model in MODELS))},
    }
)
RUN_FIELDS: dict[str, Any] = {
    **{name: str for name in ("id", "state", "wish", "why", "waits", "method", "by", "cloned", "score")},
    **{name: MAYBE for name in ("loss", "seconds_per_round", "seconds_left", "started", "ended")},
    "created": float,
    "actions": list[str],
    "round": int,
    "rounds": int,
    "devices": int | None,
    "accuracy": dict[str, float],
    "errors": dict[str, dict[str, float | None]],
    "units": list[str],
    "macro_f1": dict[str, float],
    "hospitals": dict[str, int],
    "wanted": dict,
}
RUN = Keys(RUN_FIELDS)
WHOLE_RUN = Keys(
    {
        **RUN_FIELDS,
        "curve": ListOf(ROUND),
        "hops": dict[str, int | None],
        "not_counted": list[dict[str, str]],
        "complaints": list[dict[str, Any]],
        "log": list[str],
    }
)
ASKED = Also(Wanted, {"id?": str})
"""What a run is asked for with; what is left out has its default."""
DEVICE = Also(SeenDevice, {"why": str})
HOSPITAL = Also(SeenHospital, {"silent": bool, "here": int, "why": str, "devices": ListOf(DEVICE)})
NEED = Keys({"what": str, "why": str, "link": str})
STATUS = Keys(
    {
        "needs": ListOf(NEED),
        "audit": Keys({"entries": int, "broken": int | None}),
        "broker": bool,
        "waits": str,
    }
)
SCHEDULE = Keys(
    {
        **{name: str for name in ("name", "begin", "end", "latest", "held", "by")},
        "days": list[str],
        "samples": int,
        "counted": dict[str, int],
        "wanted": dict,
        "created": float,
    }
)
