"""What `auscult doctor` finds out about a service beside what it does about any node: nothing is changed by it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import sqlalchemy as sql

from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.administration.single_sign_on import ProviderDesk
from aggregator.service.database.claim import find_holder
from aggregator.service.database.database import DATABASE, about, hide_password, make_engine, telling_why
from aggregator.service.database.migrations import FIRST, SCHEMA
from edge_sdk.tools.credentials.provision import Provisioner
from edge_sdk.tools.diagnostics.findings import Finding
from edge_sdk.tools.diagnostics.node_files import is_running

START = "start the database, or correct `database`; a password belongs in ~/.pgpass of the service's user"


def list_checks(file: FleetFile) -> list[tuple[str, Callable[[], Finding]]]:
    """Name and check of each thing that only a service has."""
    found: list[tuple[str, Callable[[], Finding]]] = [("database", lambda: check_database(file))]
    if file.enrolment.site is not None:
        found.append(("enrolment", lambda: check_enrolment(file)))
    if file.sign_on is not None:
        found.append(("sign-in", lambda: check_sign_in(file)))
    return found


def check_database(file: FleetFile) -> Finding:
    """Does it answer, is it of a form that this version reads, and does no other service work with it?"""
    path = file.directory / DATABASE
    if not file.database and not path.exists():
        return Finding("database", None, f"{path} is made at the first start")
    url = file.database or f"sqlite:///{path}"
    try:
        with telling_why(url):
            return read_database(file, url)
    except Exception as error:
        return Finding("database", False, str(error), START)


def read_database(file: FleetFile, url: str) -> Finding:
    engine, name = make_engine(url), hide_password(url) if file.database else str(file.directory / DATABASE)
    try:
        holder = None if is_running(file.directory) else find_holder(engine)
        with engine.connect() as t:
            there = sql.inspect(t).has_table(about.name)
            form = t.execute(sql.select(about.c.value).where(about.c.key == "schema")).scalar() if there else None
    finally:
        engine.dispose()
    if holder is not None:
        said = f"{name}: another service works with it, {holder}"
        return Finding("database", False, said, f"stop that one, or give {file.directory} a database of its own")
    if form is None:
        return Finding("database", True, f"{name}: answers; its tables are made at the first start")
    if not FIRST <= int(form) <= SCHEMA:
        said = f"{name}: is of form {form}, and this version knows forms {FIRST} to {SCHEMA}"
        return Finding("database", False, said, "use the version that has made it, or a later one")
    later = f"; the next start brings it from form {form} to {SCHEMA}: back up first" if int(form) < SCHEMA else ""
    return Finding("database", True, f"{name}: answers{later}")


def check_enrolment(file: FleetFile) -> Finding:
    """Can certificates be signed, and the broker be told?"""
    site, reload = file.enrolment.site, file.enrolment.reload
    assert site is not None
    if Provisioner(site, lambda new: "").saved is None:
        return Finding("enrolment", False, f"site = {site}: auscult provision has made no site there")
    folder = site / "broker"
    if not os.access(folder, os.W_OK | os.X_OK):
        said = f"{folder} cannot be written: the broker cannot be told who may come"
        return Finding("enrolment", False, said, "give the folder to the service's user")
    if reload and shutil.which(reload[0]) is None:
        return Finding("enrolment", False, f"reload = {reload[0]!r} ...: there is no such command here")
    return Finding("enrolment", True, f"certificates are signed in {site}")


def check_sign_in(file: FleetFile) -> Finding:
    """Does the provider answer, and as whom the settings name?"""
    assert file.sign_on is not None
    ProviderDesk(file.sign_on).discover()
    return Finding("sign-in", True, f"{file.sign_on.issuer} answers")
