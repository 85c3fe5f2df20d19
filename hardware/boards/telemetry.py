"""State of a machine right now, from Linux's own files: heat, clocks, throttling, battery, load, memory.

What a file does not tell is None or empty, never a guess. Everything is read below a root directory.

    thermal zones    sys/class/thermal/thermal_zone*/{type,temp}          thousandths of a degree
    hwmon            sys/class/hwmon/hwmon*/temp*_input                   likewise
    cpufreq          sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq kHz
    throttling       sys/devices/platform/soc/soc:firmware/get_throttled  bits of the Raspberry Pi's firmware
    undervoltage     sys/class/hwmon/hwmon*/in0_lcrit_alarm of rpi_volt   0 or 1
    power supplies   sys/class/power_supply/*/{type,capacity,status,online}
    links            sys/class/net/*/{operstate,statistics/rx_bytes,statistics/tx_bytes}
    default route    proc/net/route
    processor        proc/stat
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from edge_sdk.hardware.boards.linux_files import list_folders, read_fields, read_number, read_text

THROTTLING = {0: "undervoltage", 1: "clock capped", 2: "throttled", 3: "soft temperature limit"}
"""Bits of get_throttled for what is so now; 16 higher: what has been so since the start."""
SINCE_START = 16
TICKS = 100.0  # a second, in which proc/stat counts on all machines that Linux runs on
ABSOLUTE_ZERO, TOO_HOT = -273.15, 500.0
"""Degrees Celsius between which a reading can be true; broken sensors tell others."""


METERED = ("wwan*", "ppp*", "rmnet*")
"""Names of interfaces of mobile networks, as patterns of fnmatch."""


@dataclass(frozen=True)
class NetworkLink:
    """A network interface.

    Attributes:
        up: does it carry? None where it does not tell.
        received, sent: bytes since it was made.
    """

    up: bool | None
    received: int
    sent: int


@dataclass(frozen=True)
class Telemetry:
    """A reading of all of Linux's files.

    Attributes:
        temperatures: sensor -> degrees Celsius.
        clocks_mhz: number of a core -> its clock now.
        clock_limits_mhz: number of a core -> the highest clock that it may take now.
        throttled: what slows the machine down now, in words; None where nothing tells.
        throttled_before: what has done so since its start; None where nothing tells.
        battery: share of the battery, 0 to 1; None where there is none.
        charging: is it connected to power? None where nothing tells.
        load: runnable processes, mean of the last minute.
        memory_mb: of the machine, MiB.  memory_free_mb: what a new process could get, MiB.
        links: name of an interface -> its state; the loopback is none.
        route: interface of the default route (IPv4); None where there is none.
        cpu_seconds: seconds in which the processor was busy, and all of them, over all cores since the start.
    """

    temperatures: Mapping[str, float]
    clocks_mhz: Mapping[int, float]
    clock_limits_mhz: Mapping[int, float]
    throttled: tuple[str, ...] | None
    throttled_before: tuple[str, ...] | None
    battery: float | None
    charging: bool | None
    load: float | None
    memory_mb: float | None
    memory_free_mb: float | None
    links: Mapping[str, NetworkLink]
    route: str | None = None
    cpu_seconds: tuple[float, float] | None = None

    @property
    def hottest(self) -> float | None:
        """Highest temperature of all sensors, degrees Celsius."""
        return max(self.temperatures.values(), default=None)

    def is_metered(self, patterns: Sequence[str] = METERED) -> bool | None:
        """The default route's interface is one whose bytes cost money; None: there is no route."""
        return None if self.route is None else any(fnmatch(self.route, pattern) for pattern in patterns)


def read_telemetry(root: Path = Path("/")) -> Telemetry:
    """Reads everything, below `root`."""
    now, before = read_throttling(root)
    battery, charging = read_power_supplies(root)
    memory = read_fields(root / "proc/meminfo")
    load = (read_text(root / "proc/loadavg") or "").split()
    return Telemetry(
        temperatures=read_temperatures(root),
        clocks_mhz=read_clocks(root, "scaling_cur_freq"),
        clock_limits_mhz=read_clocks(root, "scaling_max_freq"),
        throttled=now,
        throttled_before=before,
        battery=battery,
        charging=charging,
        load=parse_number(load[0]) if load else None,
        memory_mb=parse_kilobytes(memory.get("MemTotal")),
        memory_free_mb=parse_kilobytes(memory.get("MemAvailable")),
        links=read_links(root),
        route=read_default_route(root),
        cpu_seconds=read_cpu_seconds(root),
    )


def read_temperatures(root: Path) -> dict[str, float]:
    """Temperatures of all thermal zones and hwmon sensors; two of one name are told apart by their folders."""
    found: list[tuple[str, str, float | None]] = []
    for zone in list_folders(root / "sys/class/thermal", "thermal_zone*"):
        found.append((read_text(zone / "type") or zone.name, zone.name, read_number(zone / "temp", 1e-3)))
    for chip in list_folders(root / "sys/class/hwmon", "hwmon*"):
        for file in sorted(chip.glob("temp*_input")):
            sensor = file.name.removesuffix("_input")
            name = read_text(chip / f"{sensor}_label") or f"{read_text(chip / 'name') or chip.name} {sensor}"
            found.append((name, chip.name, read_number(file, 1e-3)))
    temperatures: dict[str, float] = {}
    for name, folder, celsius in found:
        if celsius is not None and ABSOLUTE_ZERO < celsius < TOO_HOT:
            temperatures[f"{name} ({folder})" if name in temperatures else name] = celsius
    return temperatures


def read_clocks(root: Path, file: str) -> dict[int, float]:
    """One file of cpufreq for every core, MHz."""
    clocks = {}
    for core in list_folders(root / "sys/devices/system/cpu", "cpu[0-9]*"):
        mhz = read_number(core / "cpufreq" / file, 1e-3)
        if mhz is not None and core.name[3:].isdigit():
            clocks[int(core.name[3:])] = mhz
    return dict(sorted(clocks.items()))


def read_throttling(root: Path) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """What slows the machine down now, and what has since its start: from the firmware, else from hwmon's alarm."""
    text = read_text(root / "sys/devices/platform/soc/soc:firmware/get_throttled")
    try:
        bits = int(text, 16) if text else None
    except ValueError:
        bits = None
    if bits is None:
        return read_undervoltage(root), None
    return tuple(n for b, n in THROTTLING.items() if bits >> b & 1), tuple(
        n for b, n in THROTTLING.items() if bits >> (b + SINCE_START) & 1
    )


def read_undervoltage(root: Path) -> tuple[str, ...] | None:
    """The alarm of the Raspberry Pi's voltage sensor; None where there is no such sensor."""
    for chip in list_folders(root / "sys/class/hwmon", "hwmon*"):
        if read_text(chip / "name") == "rpi_volt":
            alarm = read_number(chip / "in0_lcrit_alarm")
            return None if alarm is None else (THROTTLING[0],) * bool(alarm)
    return None


def read_power_supplies(root: Path) -> tuple[float | None, bool | None]:
    """Share of the battery, and whether the machine is connected to power; batteries of peripherals do not count."""
    shares, words, plugs = [], [], []
    for supply in list_folders(root / "sys/class/power_supply", "*"):
        if read_text(supply / "scope") == "Device":  # a mouse's or a headset's
            continue
        if read_text(supply / "type") == "Battery":
            percent = read_number(supply / "capacity")
            shares += [percent / 100] if percent is not None and 0 <= percent <= 100 else []
            words += [read_text(supply / "status") or "Unknown"]
        else:
            online = read_number(supply / "online")
            plugs += [online > 0] if online is not None else []
    charging = any(plugs) if plugs else None
    if any(word in ("Charging", "Full", "Not charging") for word in words):
        charging = True
    elif charging is None and "Discharging" in words:
        charging = False
    return (min(shares) if shares else None), charging


def read_links(root: Path) -> dict[str, NetworkLink]:
    """States of all network interfaces but the loopback."""
    links = {}
    for interface in list_folders(root / "sys/class/net", "*"):
        received, sent = (read_number(interface / "statistics" / f"{way}_bytes") for way in ("rx", "tx"))
        if interface.name != "lo" and received is not None and sent is not None:
            up = {"up": True, "down": False}.get(read_text(interface / "operstate") or "")
            links[interface.name] = NetworkLink(up, int(received), int(sent))
    return links


def read_default_route(root: Path) -> str | None:
    """Interface of the default route, that with the lowest metric where there are several."""
    found = []
    for line in (read_text(root / "proc/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 8 and fields[1] == fields[7] == "00000000" and fields[6].isdigit():
            found.append((int(fields[6]), fields[0]))
    return min(found)[1] if found else None


def read_cpu_seconds(root: Path) -> tuple[float, float] | None:
    """Seconds in which the processor was busy, and all of them; idle are columns idle and iowait of `cpu`."""
    fields = (read_text(root / "proc/stat") or "").partition("\n")[0].split()
    if len(fields) < 6 or fields[0] != "cpu" or not all(field.isdigit() for field in fields[1:]):
        return None
    ticks = [int(field) for field in fields[1:9]]
    total = sum(ticks)
    return (total - ticks[3] - ticks[4]) / TICKS, total / TICKS


def parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def parse_kilobytes(text: str | None) -> float | None:
    """MiB of a line of /proc/meminfo such as `948208 kB`."""
    number = parse_number(text.split()[0]) if text and text.split() else None
    return None if number is None else number / 1024
