"""`auscult models ls`, `show`, `add`, `promote`, `approve` and `deny`: the registry from the command line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from aggregator.service.application.formats import figure
from aggregator.service.client.rollout_client import Add
from edge_sdk.errors import AuscultError
from edge_sdk.methods.shared.evaluation.reports import ACCURACY

DECISIONS = {"approve": "let a model be in use that somebody else has proposed", "deny": "refuse a proposed model"}


def add_commands(models: Any, add: Add) -> None:
    """Add the commands to those of `auscult models`. `add`: as client.add."""
    add(models, "ls", list_models, "bundles and trained models")
    add(models, "show", show_model, "one model, with what it was made of").add_argument("sha256")
    add(models, "add", add_bundle, "add a compiled model, for runs and rollouts").add_argument("bundle", type=Path)
    add(models, "promote", promote, "declare a trained model the one in use").add_argument("sha256")
    for action, words in DECISIONS.items():
        add(models, action, decide, words).add_argument("sha256")
        models.choices[action].set_defaults(action=action)


def list_models(options: argparse.Namespace, client: Any) -> None:
    found = client.ask_for_all("models", "sha256")
    if options.json:
        return print(json.dumps(found, indent=1))
    for model in found:
        of = f", {score}" if (score := model["facts"].get("score", ACCURACY)) != ACCURACY else ""
        reached = f"global {figure(model['facts'], 'global')}{of}" if model["kind"] == "global" else ""
        promoted = "promoted" if model["promoted"] else ""
        print(f"{model['sha256'][:12]} {model['kind']:<7} {model['name']:<24} {reached} {promoted}".rstrip())


def show_model(options: argparse.Namespace, client: Any) -> None:
    found = [m for m in client.ask_for_all("models", "sha256") if m["sha256"].startswith(options.sha256)]
    if len(found) != 1:
        raise AuscultError(f"model {options.sha256!r}: {'several hashes begin so' if found else 'there is none'}")
    print(json.dumps(found[0], indent=1))


def add_bundle(options: argparse.Namespace, client: Any) -> None:
    model = client.send("/models", options.bundle.read_bytes(), "application/octet-stream")
    if options.json:
        return print(json.dumps(model, indent=1))
    print(f"{model['name']} ({model['sha256'][:12]}) is in the registry")


def promote(options: argparse.Namespace, client: Any) -> None:
    model = client.ask(f"/models/{options.sha256}/promote", {})
    if options.json:
        return print(json.dumps(model, indent=1))
    words = "is proposed; another person has to approve it" if model["proposed_by"] else "is in use"
    print(f"{model['name']} ({model['sha256'][:12]}) {words}")


def decide(options: argparse.Namespace, client: Any) -> None:
    model = client.ask(f"/models/{options.sha256}/{options.action}", {})
    if options.json:
        return print(json.dumps(model, indent=1))
    words = "is in use" if options.action == "approve" else "stays as it was"
    print(f"{model['name']} ({model['sha256'][:12]}) {words}")
