"""What the service of a device loads of its own: each module costs a device time and memory at each start."""

import subprocess
import sys

MOST = 375
"""Modules and packages of `edge_sdk`. Lower it when there are fewer; a new one is loaded where it is needed."""
LOAD = "import sys, edge_sdk.nodes.daemon.device_service; print(*sys.modules)"


def test_the_service_of_a_device_loads_no_more_modules_than_it_did() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    names = [name for name in done.stdout.split() if name.split(".")[0] == "edge_sdk"]
    assert "edge_sdk.nodes.device.device" in names
    assert len(names) <= MOST, f"{len(names)} modules"
