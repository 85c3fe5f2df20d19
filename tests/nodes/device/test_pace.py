"""A device's pace on a laid-out machine with a clock of the test: yields before the next mini-batch, rests, counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.hardware.boards.telemetry import read_telemetry
from edge_sdk.nodes.device.conditions import DayLedger, OthersShare, day_of
from edge_sdk.nodes.device.pace import LEDGER, MachineSource, TrainingPace
from edge_sdk.nodes.policy.budget import TrainingBudget
from tests.hardware.boards.fake_root import lay

LOG = logging.getLogger("test")
SUPPLY = "sys/class/power_supply"


class FakeClock:
    """A clock that the test moves, or whoever sleeps; `then` is called with each sleep."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.now, self.then, self.slept = 1_000_000.0, then, 0.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        self.then()


def lay_battery(root: Path, percent: int, status: str = "Discharging") -> Path:
    files: dict[str, str | int] = {"type": "Battery", "capacity": percent, "status": status}
    return lay(root, {f"{SUPPLY}/bat/{name}": text for name, text in files.items()})


def test_training_waits_before_the_next_mini_batch_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    woken: list[str] = []
    clock = FakeClock(lambda: None if clock.slept < 5 else lay_battery(tmp_path, 60) and None)
    budget = TrainingBudget(min_battery=0.3, calm=10.0)
    pace = TrainingPace(
        budget,
        "d",
        tmp_path,
        machine=MachineSource(root=lay_battery(tmp_path, 50), clock=clock),
        wake=lambda: woken.append("d"),
        log=LOG,
    )
    assert not pace() and clock.slept == 0 and pace.why() == ""
    lay_battery(tmp_path, 18)
    clock.now += 2.0  # a mini-batch of two seconds, after which the machine is looked at again
    assert not pace()
    assert 13 <= clock.slept <= 19, "5 s until the battery is full again, 10 s of calm"
    assert "d: training stops after 0 steps: battery 18 % < 30 %" in caplog.text and "goes on" in caplog.text
    assert len(woken) >= 3  # may, may not, calm, may: the hospital hears of each


def test_a_newer_question_ends_the_wait(tmp_path: Path) -> None:
    clock = FakeClock()
    root = lay_battery(tmp_path, 10)
    pace = TrainingPace(
        TrainingBudget(min_battery=0.3), "d", tmp_path, machine=MachineSource(root=root, clock=clock), log=LOG
    )
    pace.cancelled = lambda: clock.slept > 3
    assert pace() and 3 < clock.slept < 6


def test_the_application_may_forbid(tmp_path: Path) -> None:
    pace = TrainingPace(
        TrainingBudget(calm=0.0), "d", tmp_path, machine=MachineSource(root=tmp_path, clock=FakeClock()), log=LOG
    )
    assert pace.why() == ""
    pace.allow(False)
    assert pace.why() == "the application says no"
    pace.allow(True)
    assert pace.why() == ""


def test_a_share_of_the_processor(tmp_path: Path) -> None:
    clock = FakeClock()
    pace = TrainingPace(
        TrainingBudget(cpu_share=0.25), "d", tmp_path, machine=MachineSource(root=tmp_path, clock=clock), log=LOG
    )
    pace()
    for _ in range(10):
        clock.now += 2.0
        pace()
    assert clock.slept == pytest.approx(60.0)  # 20 s of work, a quarter of 80 s


def test_joules_of_a_day_are_counted_kept_and_begin_anew_with_the_next_day(tmp_path: Path) -> None:
    clock, budget = FakeClock(), TrainingBudget(joules=100.0, watts=5.0, keep_every=0.0, calm=0.0)
    pace = TrainingPace(budget, "d", tmp_path, machine=MachineSource(root=tmp_path, clock=clock), log=LOG)
    pace()
    for _ in range(9):
        clock.now += 2.0
        assert not pace()
    assert pace.why() == "" and json.loads((tmp_path / LEDGER).read_text())["joules"] == pytest.approx(90.0)
    again = TrainingPace(
        budget, "d", tmp_path, machine=MachineSource(root=tmp_path, clock=clock), log=LOG
    )  # after a kill
    again()
    clock.now += 2.0
    again.cancelled = lambda: clock.slept > 2
    assert again() and again.why() == "100 J of 100 J for today are used up"
    clock.now += 86400
    again.cancelled = lambda: False
    assert again.why() == "" and not again()


def test_a_counter_counts_what_training_takes_and_not_the_rest(tmp_path: Path) -> None:
    zone = "sys/class/powercap/intel-rapl:0"
    clock, budget = FakeClock(), TrainingBudget(joules=1e9)
    lay(tmp_path, {f"{zone}/name": "package-0", f"{zone}/energy_uj": 1_000_000, f"{zone}/max_energy_range_uj": 10**9})
    pace = TrainingPace(budget, "d", tmp_path, machine=MachineSource(root=tmp_path, clock=clock), log=LOG)
    pace()
    for uj in (3_000_000, 9_000_000):
        lay(tmp_path, {f"{zone}/energy_uj": uj})
        clock.now += 1
        pace()
    assert pace.ledger.joules == pytest.approx(8.0)
    pace.working_since = None  # training is over
    lay(tmp_path, {f"{zone}/energy_uj": 50_000_000})
    pace()
    assert pace.ledger.joules == pytest.approx(8.0)


def test_a_ledger_that_is_damaged_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("", "[]", '{"day": 3}', json.dumps({"day": day_of(0.0), "joules": "x"})):
        (tmp_path / LEDGER).write_text(text)
        caplog.clear()
        assert DayLedger(tmp_path / LEDGER, 0.0, LOG).joules == 0.0
        assert "counted anew" in caplog.text or "3" in text


def test_the_share_of_others_and_the_route_from_linux_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = "Iface Destination Gateway Flags RefCnt Use Metric Mask"
    lines = ["wlan0 00000000 0101A8C0 0003 0 0 600 00000000", "wwan0 00000000 0101A8C0 0003 0 0 700 00000000"]
    lay(tmp_path, {"proc/net/route": "\n".join([header, *lines]), "proc/stat": "cpu 100 0 100 700 100 0 0 0 0 0"})
    telemetry, own, others = read_telemetry(tmp_path), [5.0], OthersShare()
    monkeypatch.setattr("edge_sdk.nodes.device.conditions.cpu_seconds", lambda: own[0])
    assert telemetry.route == "wlan0" and telemetry.cpu_seconds == (2.0, 10.0)
    assert others.measure(telemetry) is None
    lay(tmp_path, {"proc/stat": "cpu 400 0 200 900 100 0 0 0 0 0"})  # 6 s more, of which 4 s busy, 3 s by this process
    own[0] += 3.0
    assert others.measure(read_telemetry(tmp_path)) == pytest.approx(1 / 6)
    lay(tmp_path, {"proc/stat": "nonsense"})
    assert read_telemetry(tmp_path).cpu_seconds is None and others.measure(read_telemetry(tmp_path)) is None
