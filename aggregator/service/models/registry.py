"""The registry of models: compiled bundles, and the global models of finished runs, each by the hash of its content.

A global model knows the bundle that it belongs to, the run that has made it, what that run's settings were and what it
reached. The files are copies of the service's own: what a run's directory holds may change, a model in the registry
does not.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from aggregator.run_files import MODEL_FILE
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.signing import load_signer, next_number
from aggregator.service.database import audit
from aggregator.service.database.audit import SERVICE
from aggregator.service.database.database import Database, Row, models
from aggregator.service.runs.run_metrics import RunLines
from aggregator.service.runs.runs import Wanted, wanted_of
from aggregator.service.runs.supervisor import run_directory
from edge_sdk.atomic import make_private_directory, replace_file
from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.model.bundle import read_bundle
from edge_sdk.model.split_model import input_shapes
from edge_sdk.model.tasks.task import OneClass
from edge_sdk.nodes.configuration.presets import RECOMMENDED
from edge_sdk.nodes.configuration.tasks import check_task
from edge_sdk.nodes.configuration.window_runs import changes_of, is_window_network, settle_of, steps_of, training_of
from edge_sdk.wire.signatures import sign_model

BUNDLE, GLOBAL = "bundle", "global"
"""Kinds of models: one that runs train, and one that a run has trained."""
LEAST_CLASSES = 2
"""Names of classes; a single value, or a single label, may be predicted by itself."""


class Registry:
    """The models of one service.

    Attributes:
        first: hash of the first bundle of the settings, as its file was when the service started; "": there is none.
    """

    def __init__(self, file: FleetFile, database: Database):
        self.file, self.database = file, database
        self.directory = file.directory / "models"
        self.first = ""
        self.lock = threading.Lock()  # of `add`: nobody may find a file that is removed again if it cannot be noted

    def register_bundles(self) -> None:
        """Copy the bundles that the settings name, and note them. Raises UsageError if one has too few outputs."""
        make_private_directory(self.directory)
        hashes = [self.add_bundle(path) for path in self.file.bundles]
        self.first = next(iter(hashes), "")

    def add_bundle(self, path: Path, who: str = SERVICE) -> str:
        """Copy a compiled model into the registry, and return its hash.

        Raises:
            UsageError: it is none that is right in every byte, has too few outputs, or predicts labels or values that
                are not those of the settings.
        """
        bundle, names = read_bundle(path), self.file.classes
        manifest, task = bundle.manifest, bundle.task
        if isinstance(task, OneClass):
            outputs = task.classes
            if len(names) < LEAST_CLASSES:
                raise UsageError(f"classes = {list(names)}: {path} tells classes apart, expected at least 2 names")
            if outputs < len(names):
                raise UsageError(f"bundles: {path} tells {outputs} classes apart, classes names {len(names)}")
        else:
            outputs = task.outputs
            if not task.fits(names):
                raise UsageError(f"bundles: {path} predicts {task.in_words()}, classes names {', '.join(names)}")
        facts = {"classes": outputs, "parameters": bundle.layout.size}
        self.add(BUNDLE, bundle.sha256, str(manifest["name"]), path, facts, who)
        return bundle.sha256

    def add_trained(self, run: Row, lines: RunLines) -> None:
        """Note the global model of a run that has finished, unless it has none or that is noted already."""
        path = run_directory(self.file, run["id"]) / MODEL_FILE
        if not path.exists():
            return
        wanted = wanted_of(run)
        facts: dict[str, Any] = {"method": wanted.method, "rounds": lines.round, "hospitals": run["hospitals"]}
        facts |= {"accuracy": lines.latest_accuracies(), "score": lines.score, "loss": lines.latest_loss()}
        facts |= lines.latest_errors()
        before = self.promoted()
        facts["parents"] = [self.find(wanted.bundle)["sha256"], *([] if before is None else [before["sha256"]])]
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        self.add(GLOBAL, sha256, run["id"], path, facts, bundle=self.find(wanted.bundle)["sha256"], run=run["id"])

    def add(
        self, kind: str, sha256: str, name: str, path: Path, facts: dict[str, Any], who: str = SERVICE, **lineage: str
    ) -> None:
        """Copy a file into the registry, under its hash. One that is there already stays as it is."""
        target = self.directory / f"{sha256}{path.suffix}"
        with self.lock:
            is_new = not target.exists()
            if is_new:
                with replace_file(target) as copy, path.open("rb") as source:
                    shutil.copyfileobj(source, copy)
            try:
                self.note(kind, sha256, name, target, facts, who, lineage)
            except BaseException:
                if is_new:
                    target.unlink(missing_ok=True)
                raise

    def note(
        self, kind: str, sha256: str, name: str, target: Path, facts: dict[str, Any], who: str, lineage: dict[str, str]
    ) -> None:
        """Note a file of the registry, unless that was done already."""
        with self.database.transaction() as t:
            if t.execute(sql.select(models.c.sha256).where(models.c.sha256 == sha256)).first() is not None:
                return
            facts = {**facts, "signed": self.sign(sha256, kind, name, lineage.get("bundle", ""))}
            row = {"sha256": sha256, "kind": kind, "name": name, "file": f"models/{target.name}", "facts": facts}
            t.execute(
                models.insert().values(**row, created=time.time(), bundle="", run="")
                if not lineage
                else models.insert().values(**row, created=time.time(), **lineage)
            )
            audit.note(t, who, f"model.{kind}", name, sha256=sha256, **lineage)

    def sign(self, sha256: str, kind: str, name: str, bundle: str) -> dict[str, Any]:
        """The operator's signature under what a model is, see wire/signatures.py: state_model."""
        table = {"sha256": sha256, "kind": kind, "name": name, "bundle": bundle}
        return sign_model(table, load_signer(self.file.directory), next_number(self.file.directory))

    def find(self, sha256: str = "") -> Row:
        """The row of a model, by the beginning of its hash; "": the first bundle of the settings.

        Raises:
            UsageError: there is none, or several begin so.
        """
        rows = self.list_all()
        if not sha256:
            rows = [row for row in rows if row["sha256"] == self.first]
        else:
            rows = [row for row in rows if row["sha256"].startswith(sha256)]
        if len(rows) != 1:
            raise UsageError(f"model {sha256!r}: {'there is none' if not rows else 'several hashes begin so'}")
        return rows[0]

    def pin(self, wanted: Wanted) -> Wanted:
        """Settles which bundle a run trains, by its whole hash: that holds also after the settings name another one
        first, or another file begins with the same digits. Raises UsageError as `find`."""
        return replace(wanted, bundle=self.find(wanted.bundle)["sha256"])

    def complete(self, wanted: Wanted) -> Wanted:
        """A run with what is recommended for its model, where its `preset` says so and the model is a network on
        features of windows: phases, changes of windows and settings of training, under what is stated. Of a model that
        predicts values: the step size.

        Raises:
            UsageError: as `find`, for a method that there is not, and for phases that the model's task does not have.
        """
        bundle = read_bundle(self.path_of(wanted.bundle))
        if not isinstance(bundle.task, OneClass) and wanted.method in METHODS:
            check_task(wanted.as_run("check", self.file.classes), bundle, METHODS[wanted.method].kernels)
        if wanted.preset != RECOMMENDED:
            return wanted
        METHODS.check(wanted.method)
        shape = input_shapes(bundle).get("x", ())
        if not is_window_network(bundle.layout, shape, bundle.task):
            return replace(wanted, settings={**steps_of(wanted.method, bundle.task), **wanted.settings})
        return replace(
            wanted,
            settings={**training_of(wanted.method, wanted.rounds), **wanted.settings},
            settle={**settle_of(bool(wanted.privacy)), "statistics": True, **wanted.settle},
            augment={**changes_of(shape), **wanted.augment},
        )

    def path_of(self, sha256: str = "") -> Path:
        """The file of a model, by the beginning of its hash. Raises UsageError as `find`."""
        return self.file.directory / str(self.find(sha256)["file"])

    def list_all(self, kind: str = "") -> list[Row]:
        """All models, the newest first; `kind`: only those."""
        query = sql.select(models).order_by(models.c.created.desc())
        return self.database.read(query if not kind else query.where(models.c.kind == kind))

    def promoted(self) -> Row | None:
        """The global model that is in use, where somebody has promoted one."""
        rows = [row for row in self.list_all(GLOBAL) if row["promoted"]]
        return max(rows, key=lambda row: row["promoted"], default=None)
