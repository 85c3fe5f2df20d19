"""Trees of Linux's files, as several boards have them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def lay(root: Path, files: Mapping[str, str | int]) -> Path:
    """Writes files below `root`, as the kernel would show them, with a line end."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def lay_raspberry(root: Path, model: str = "Raspberry Pi 4 Model B Rev 1.4", throttled: str = "50005") -> Path:
    """A Raspberry Pi that is hot and badly powered."""
    lay(root, {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq": 600_000 + n for n in range(4)})
    lay(root, {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_max_freq": 1_500_000 for n in range(4)})
    return lay(
        root,
        {
            "proc/device-tree/model": f"{model}\0",
            "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
            "sys/class/thermal/thermal_zone0/temp": 81234,
            "sys/devices/platform/soc/soc:firmware/get_throttled": throttled,
            "proc/meminfo": "MemTotal:  948208 kB\nMemFree:  100000 kB\nMemAvailable:  512000 kB",
            "proc/loadavg": "0.52 0.40 0.30 1/120 999",
        },
    )
