"""What the service of a device loads of its own: each module costs a device time and memory at each start."""

import subprocess
import sys

MOST = 115
"""Modules and packages of `edge_sdk`. Lower it when there are fewer; a new one is loaded where it is needed."""
LOAD = "import sys, edge_sdk.nodes.daemon.device_service, edge_sdk.nodes.daemon.serve; print(*sys.modules)"
SERVING = 5
"""Further modules of what runs a service, a hospital's as well."""
WITH_A_RUN = (
    "methods.fedavg",
    "methods.integers",
    "methods.robust",
    "methods.rollout",
    "methods.secret",
    "methods.settling",
    "methods.shared",
    "methods.standardising",
    "algebra.forest",
    "contract.method",
    "contract.node",
    "contract.round",
    "delivery.messages.incoming",
    "delivery.roles.engine",
    "delivery.session",
    "nodes.configuration.assembly",
    "nodes.device.run_env",
    "nodes.kernels",
    "nodes.secrets.mask_assignment",
    "wire.codec.codec",
)
ELSEWHERE = (
    "data.traces.read",
    "data.store.sample_store",
    "model.tasks.values",
    "nodes.device.live_samples",
    "nodes.device.pace",
    "nodes.hospital",
    "replay",
    "simulation",
    "tools",
)
"""What a run asks for, and what a device needs that reads traces, records, has a budget, or is none."""


def test_the_service_of_a_device_loads_no_more_modules_than_it_did() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    names = [name for name in done.stdout.split() if name.split(".")[0] == "edge_sdk"]
    assert "edge_sdk.nodes.device.device" in names
    assert len(names) <= MOST + SERVING, f"{len(names)} modules"
    found = [n for n in names for late in (*WITH_A_RUN, *ELSEWHERE) if f"{n}.".startswith(f"edge_sdk.{late}.")]
    assert not found, f"loaded before anything asks for it: {', '.join(found)}"
