"""What the service of a device loads of its own: each module costs a device time and memory at each start."""

import subprocess
import sys

MOST = 117
"""Modules and packages of `edge_sdk`. Lower it when there are fewer; a new one is loaded where it is needed."""
LOAD = "import sys, edge_sdk.nodes.daemon.device_service, edge_sdk.nodes.daemon.serve; print(*sys.modules)"
SERVING = 3
"""Further modules of what runs a service, a hospital's as well."""
WITH_A_RUN = (
    "algebra.ensemble",
    "algebra.forest",
    "algebra.metrics",
    "contract.method",
    "contract.node",
    "contract.round",
    "delivery.messages",
    "delivery.roles.engine",
    "delivery.session",
    "methods",
    "nodes.configuration.assembly",
    "nodes.device.run_env",
    "nodes.kernels",
    "nodes.models.last_line",
    "nodes.models.versions",
    "nodes.policy.epsilon_ledger",
    "nodes.secrets",
    "plugins",
    "wire.codec.codec",
)
ELSEWHERE = (
    "data.npz",
    "data.store",
    "data.traces",
    "hardware",
    "live.loop.fleet_report",
    "model.split_model",
    "model.tasks.values",
    "nodes.device.live_samples",
    "nodes.device.pace",
    "nodes.hospital",
    "nodes.models.predictions",
    "replay",
    "simulation",
    "tools",
)
"""What a run asks for, and what a device needs that reads traces, records, predicts, has a budget, or is none."""


def test_the_service_of_a_device_loads_no_more_modules_than_it_did() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    names = [name for name in done.stdout.split() if name.split(".")[0] == "edge_sdk"]
    assert "edge_sdk.nodes.device.device" in names
    assert len(names) <= MOST + SERVING, f"{len(names)} modules"
    found = [n for n in names for late in (*WITH_A_RUN, *ELSEWHERE) if f"{n}.".startswith(f"edge_sdk.{late}.")]
    assert not found, f"loaded before anything asks for it: {', '.join(found)}"
