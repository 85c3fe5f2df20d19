"""Columns of the console's tables, by which the service sorts and searches them; see tables.py."""

from __future__ import annotations

from aggregator.service.application.formats import measure_of, order_of
from aggregator.service.console.tables import Column, key_column
from aggregator.service.runs.round_table import TABLE

RUN_COLUMNS = (
    key_column("id", "Run"),
    key_column("state", "State"),
    key_column("method", "Method"),
    key_column("round", "Rounds", is_number=True),
    Column("global", "Global", lambda run: order_of(run, "global"), is_number=True),
    Column("personal", "Personalised", lambda run: order_of(run, "personal"), is_number=True),
    Column("score", "Score", measure_of),
    key_column("loss", "Loss", is_number=True),
)
PAST_RUNS = (*RUN_COLUMNS, key_column("ended", "Ended", is_number=True))
ROUND_NAMES = (
    *("Round", "Devices", "Untold", "Loss", "Global", "±", "Personalised", "±", "Alone", "±"),
    *("Harmed", "Density", "Rank", "Sent", "Seconds", "Training", "Evaluation", "Aggregator", "Down", "Up"),
)
ROUNDS = tuple(key_column(key, name, is_number=True) for key, name in zip(TABLE, ROUND_NAMES, strict=False))
"""Columns of a run's page: what its CSV has behind these, its charts and tiles say."""
BUNDLES = (
    key_column("name", "Name"),
    Column("parameters", "Parameters", lambda row: row["facts"]["parameters"], is_number=True),
    Column("classes", "Outputs", lambda row: row["facts"]["classes"], is_number=True),
    key_column("created", "Since", is_number=True),
    key_column("sha256", "Hash"),
)
TRAINED = (
    key_column("run", "From run"),
    Column("method", "Method", lambda row: row["facts"]["method"]),
    Column("rounds", "Rounds", lambda row: row["facts"]["rounds"], is_number=True),
    Column("global", "Global", lambda row: order_of(row["facts"], "global"), is_number=True),
    Column("personal", "Personalised", lambda row: order_of(row["facts"], "personal"), is_number=True),
    Column("score", "Score", lambda row: measure_of(row["facts"])),
    Column("data", "Data of", lambda row: ", ".join(row["facts"]["hospitals"])),
    key_column("bundle", "Bundle"),
    key_column("sha256", "Hash"),
)
AUDIT = (
    key_column("seq", "No.", is_number=True),
    key_column("who", "Who"),
    key_column("action", "What"),
    key_column("subject", "Of"),
)
ROLLOUTS = (
    key_column("id", "Rollout"),
    key_column("outcome", "Outcome"),
    Column("model", "Version", lambda row: row["undo"] or (row["model"] or {"name": ""})["name"]),
    key_column("having", "Devices", is_number=True),
    Column("before", "Before", lambda row: (row["accuracy"] or {}).get("before"), is_number=True),
    Column("after", "After", lambda row: (row["accuracy"] or {}).get("after"), is_number=True),
    Column("by", "Asked by", lambda row: f"{row['by']} {row['created']:020.6f}"),
)
MEMBERS = (
    key_column("name", "Name"),
    key_column("hospital", "Hospital"),
    key_column("state", "State"),
    key_column("asked", "Asked", is_number=True),
    key_column("ends", "Certificate ends", is_number=True),
    key_column("by", "Decided by"),
)
