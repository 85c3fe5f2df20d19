"""`auscult models rollout`, `rollback` and `rollouts`: versions for devices, from the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

from aggregator.service.application.formats import number, percent
from edge_sdk.errors import UsageError

Add = Callable[..., argparse.ArgumentParser]


def add_commands(models: Any, add: Add) -> None:
    """Add the commands to those of `auscult models`. `add`: as client.add."""
    command = add(models, "rollout", roll_out, "bring a model to devices, in stages, while they stay healthy")
    command.add_argument("model", help="beginning of the hash of a trained model or of a bundle")
    command.add_argument("--to", default="100%", metavar="SHARE", help="of all devices, such as 50%% (default: all)")
    command.add_argument("--hospitals", nargs="+", default=[], metavar="NAME", help="only devices of these")
    command.add_argument("--devices", nargs="+", default=[], metavar="NAME", help="only these")
    command.add_argument("--canary", type=int, default=1, metavar="N", help="devices of the first stage (default: 1)")
    command.add_argument("--growth", type=float, default=2.0, help="from stage to stage (default: 2, doubling)")
    command.add_argument("--margin", default="2%", help="fall of accuracy that is borne, in points (default: 2%%)")
    command.add_argument("--failures", default="10%", help="share of devices that may fail (default: 10%%)")
    command.add_argument("--id", default="", help="name of the rollout")
    words = "let devices judge a model on their held-out samples; they keep what they have"
    command = add(models, "evaluate", evaluate, words)
    command.add_argument("model", help="beginning of the hash of a trained model or of a bundle")
    command.add_argument("--to", default="100%", metavar="SHARE", help="of all devices, such as 50%% (default: all)")
    command.add_argument("--hospitals", nargs="+", default=[], metavar="NAME", help="only devices of these")
    command.add_argument("--devices", nargs="+", default=[], metavar="NAME", help="only these")
    command.add_argument("--id", default="", help="name of the evaluation")
    add(models, "rollouts", list_rollouts, "all rollouts, the newest first")
    add(models, "progress", show_rollout, "how far a rollout is").add_argument("id")
    add(models, "rollback", roll_back, "take a rollout back").add_argument("id")


def read_share(text: str, what: str) -> float:
    """A share of 1 from `50%` or `0.5`. Raises UsageError if it is neither."""
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"{what} {text}: expected a share such as 50% or 0.5") from None


def roll_out(options: argparse.Namespace, client: Any) -> None:
    body: dict[str, Any] = {name: getattr(options, name) for name in ("hospitals", "devices", "canary", "growth")}
    body |= {name: read_share(getattr(options, name), f"--{name}") for name in ("to", "margin", "failures")}
    found = client.ask(f"/models/{options.model}/rollout", body | ({"id": options.id} if options.id else {}))
    print(json.dumps(found, indent=1) if options.json else f"{found['id']} is queued")


def evaluate(options: argparse.Namespace, client: Any) -> None:
    body: dict[str, Any] = {"hospitals": options.hospitals, "devices": options.devices}
    body |= {"to": read_share(options.to, "--to")} | ({"id": options.id} if options.id else {})
    found = client.ask(f"/models/{options.model}/evaluate", body)
    print(json.dumps(found, indent=1) if options.json else f"{found['id']} is queued")


def list_rollouts(options: argparse.Namespace, client: Any) -> None:
    found = client.ask_for_all("rollouts", "id")
    if options.json:
        return print(json.dumps(found, indent=1))
    print(f"{'rollout':<22} {'outcome':<12} {'model':<22} {'devices':>9} {'before':>8} {'after':>8}")
    for rollout in found:
        print_rollout(rollout)


def print_rollout(rollout: Mapping[str, Any]) -> None:
    accuracy = rollout["accuracy"] or {}
    name = f"back from {rollout['undo']}" if rollout["undo"] else (rollout["model"] or {"name": "?"})["name"]
    back = f"{rollout['counts'].get('reverted', 0):.0f} back"
    devices = back if rollout["undo"] else f"{rollout['having']:.0f}/{number(rollout['target'])}"
    shares = f"{percent(accuracy.get('before')):>8} {percent(accuracy.get('after')):>8}"
    print(f"{rollout['id']:<22} {rollout['outcome']:<12} {name:<22} {devices:>9} {shares}")


def show_rollout(options: argparse.Namespace, client: Any) -> None:
    rollout = client.ask(f"/rollouts/{options.id}")
    if options.json:
        return print(json.dumps(rollout, indent=1))
    print_rollout(rollout)
    for id in rollout["undone_by"]:
        print(f"  is taken back by {id}")
    for stage in rollout["stages"]:
        shares = f"{percent(stage['before'])} -> {percent(stage['after'])} of {stage['samples']:.0f} samples"
        print(f"  stage {stage['stage']}: {stage['having']:.0f} of {stage['asked']:.0f} devices, {shares}")
    if rollout.get("missed"):  # a service of the version before does not say it
        many = f"{rollout['missed']} of {rollout['target']} devices"
        print(f"  {many} were not there: away, or without `evaluations` beside a training")
    if rollout["why"]:
        print(f"  why: {rollout['why']}")


def roll_back(options: argparse.Namespace, client: Any) -> None:
    found = client.ask(f"/rollouts/{options.id}/rollback", {})
    print(json.dumps(found, indent=1) if options.json else f"{found['id']} is queued: {options.id} is taken back")
