"""A stranger at the API, and each role: schemathesis sends what the document allows and what it does not.

In an environment that has schemathesis (`make outsider`); a service of its own on 127.0.0.1 answers:

    python -m tests.aggregator.service.outsider --schemathesis .outsider/bin/schemathesis [--examples 5] [--as viewer]

A line for each role, and what was found; ends with 1 if anything was. Each role asks a service that begins anew. An
admin is kept from ending tokens and removing people, which would end the trial.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aggregator.service.administration.accounts import ROLES, TOKEN
from aggregator.service.administration.settings_file import FleetFile
from aggregator.service.api.openapi import make_document
from aggregator.service.application.live_updates import ConsoleServer
from aggregator.service.application.service import FleetService
from aggregator.service.server.app import API, make_app
from aggregator.service.server.command import listen
from aggregator.service.server.demo import CLOUD
from edge_sdk.replay.planning.bundles import find_shipped_bundle
from tests.aggregator.service.console.test_pages import fill

NOBODY = "nobody"
SEED, SECONDS = 40, 300  # of one role
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
COUNT = re.compile(r"(\d+) generated")


@contextmanager
def served(folder: Path) -> Iterator[tuple[FleetService, str]]:
    """A service with a run and a fleet, and its address."""
    bundle = find_shipped_bundle("wrist.bundle")
    assert bundle is not None
    file = FleetFile(
        name=CLOUD,
        broker="mqtt://127.0.0.1:1",
        directory=folder / "service",
        bundles=(bundle,),
        classes=tuple(f"c{i}" for i in range(11)),
        hospitals={"north": 2},
        listen="127.0.0.1:0",
    )
    service, line = FleetService(file), listen(file)
    fill(service)
    server = ConsoleServer(make_app(service))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[line])), daemon=True)
    thread.start()
    try:
        yield service, f"http://127.0.0.1:{line.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        line.close()


def try_as(role: str, program: str, examples: int) -> tuple[int, str]:
    """Let schemathesis ask as somebody of a role; returns its code and what it says."""
    with tempfile.TemporaryDirectory() as name, served(folder := Path(name)) as (service, url):
        (folder / "openapi.json").write_text(json.dumps(make_document(API)))
        command = [program, "run", str(folder / "openapi.json"), "--url", url, "--workers", "1", "--seed", str(SEED)]
        command += ["--max-examples", str(examples), "--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing"]
        command += ["--continue-on-failure", "--no-shrink", "--warnings", "off", "--output-sanitize", "true"]
        command += ["--exclude-path-regex", "/(people|tokens)/.+/(remove|revoke)"]
        if role != NOBODY:
            key = service.people.make_key(TOKEN, f"robot-{role}", role, 3600.0, NOBODY)
            command += ["--header", f"Authorization: Bearer {key}"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, check=False)
        return found.returncode, found.stdout + found.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schemathesis", default="schemathesis", help="the program")
    parser.add_argument("--examples", type=int, default=5, help="of each operation at most, beside those of its rules")
    parser.add_argument("--as", dest="roles", action="append", choices=(NOBODY, *ROLES), help="only as these")
    options = parser.parse_args()
    code = 0
    for role in options.roles or (NOBODY, *ROLES):
        failed, said = try_as(role, str(Path(options.schemathesis).absolute()), options.examples)
        count = COUNT.search(said)
        words = "FAIL" if failed else "ok  "
        print(f"{words} {role:<8} {count[1] if count else 'no'} requests", flush=True)
        if failed:
            print(said)
        code = code or failed
    return code


if __name__ == "__main__":
    sys.exit(main())
