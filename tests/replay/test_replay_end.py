"""How a replay waits for its devices after the last round, what it passes on, and how it counts bytes."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge_sdk.nodes.daemon.device_result import ALONE, ProgressNote
from edge_sdk.replay.nodes import watch
from edge_sdk.replay.nodes.processes import NodeProcesses, ProcessError
from edge_sdk.replay.nodes.sent_before import keep_sent, sent_before


@dataclass
class Script:
    """A clock, and two devices of which each training step and the end happen at a given second.

    Attributes:
        notes: second -> (device, rounds done of 4). ends: device -> second; never if there is none.
    """

    directory: Path
    notes: dict[int, tuple[str, int]]
    ends: dict[str, int]
    now: float = 0.0
    said: list[str] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        before, self.now = self.now, self.now + seconds
        for second, (device, rounds) in self.notes.items():
            if before < second <= self.now:
                (self.directory / device).mkdir(exist_ok=True)
                ProgressNote(self.directory / device / ALONE)(rounds, 4)

    def check(self) -> None:
        pass

    def unfinished(self) -> list[str]:
        return [device for device in "ab" if self.now < self.ends.get(device, 1e9)]

    def play(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watch, "time", self)
        notes = watch.LocalOnlyNotes(self.directory, ["a", "b"])
        watch.wait_for_end(self, notes, self.said.append)  # type: ignore[arg-type]


def test_devices_may_take_their_time_as_long_as_one_gets_on(tmp_path, monkeypatch):
    steps = {200: ("a", 1), 450: ("a", 2), 700: ("b", 2), 950: ("a", 4)}
    script = Script(tmp_path, steps, {"a": 960, "b": 1200})
    script.play(monkeypatch)
    assert script.now >= 1200
    assert script.said[0].split() == ["alone", "12%", "0", "of", "2", "devices", "are", "done"]
    assert "alone    75%   1 of 2 devices are done" in script.said


def test_who_does_nothing_any_more_is_named(tmp_path, monkeypatch):
    script = Script(tmp_path, {100: ("a", 4), 250: ("b", 1)}, {"a": 110})
    with pytest.raises(ProcessError, match="nothing has moved for 300 s; still running: b"):
        script.play(monkeypatch)
    assert 550 <= script.now < 552


def test_a_disk_that_takes_no_note_ends_no_training(tmp_path, caplog):
    noted = ProgressNote(tmp_path / "gone" / ALONE)
    noted(1, 4)
    assert "1 of 4 rounds are done, which could not be noted" in caplog.text


def test_a_replay_that_goes_on_shows_no_progress_of_before(tmp_path):
    (tmp_path / "a").mkdir()
    ProgressNote(tmp_path / "a" / ALONE)(4, 4)
    notes = watch.LocalOnlyNotes(tmp_path, ["a", "b"])
    assert notes.read_shares() == [1.0, 0.0]
    notes.forget()
    assert notes.read_shares() == [0.0, 0.0]


def test_a_replay_that_goes_on_counts_what_it_had_sent_before(tmp_path):
    """Its nodes count from 0 again."""
    ledger = {"up": {"sent": 1000, "received": 200}, "to_all": 7, "down": {"a": {"sent": 10, "received": 20}}}
    file = tmp_path / "hospital-1" / "ledger.json"
    file.parent.mkdir()
    for times in (1, 2):
        file.write_text(json.dumps(ledger))
        assert watch.count_bytes(tmp_path) == times * 1237
        keep_sent(tmp_path)
        assert watch.count_bytes(tmp_path) == times * 1237
        keep_sent(tmp_path)  # interrupted before a hospital had counted anything
        assert watch.count_bytes(tmp_path) == sum(sent_before(tmp_path).values()) == times * 1237
    assert sent_before(tmp_path)["hospital_to_device"] == 2 * 17


@pytest.mark.parametrize("dies_at", range(3))
def test_a_replay_that_dies_while_it_takes_over_what_was_sent_counts_it_once(tmp_path, monkeypatch, dies_at):
    ledger = {"up": {"sent": 1000, "received": 200}, "to_all": 0, "down": {"a": {"sent": 10, "received": 20}}}
    for hospital in ("hospital-1", "hospital-2"):
        (tmp_path / hospital).mkdir()
        (tmp_path / hospital / "ledger.json").write_text(json.dumps(ledger))
    steps = []

    def counted(function):
        def call(*given, **more):
            steps.append(function)
            if len(steps) > dies_at:
                raise KeyboardInterrupt
            return function(*given, **more)

        return call

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        for name in ("rename", "replace", "unlink"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        keep_sent(tmp_path)
    assert watch.count_bytes(tmp_path) == 2 * 1230
    keep_sent(tmp_path)
    assert watch.count_bytes(tmp_path) == sum(sent_before(tmp_path).values()) == 2 * 1230


def test_bytes_so_far_are_seen_from_the_lower_end_of_each_hop(tmp_path):
    ledger = {"up": {"sent": 1000, "received": 200}, "to_all": 7}
    down = {"a": {"sent": 10, "received": 20}, "b": {"sent": 30, "received": 40}}
    for name, some in (("hospital-1", down), ("hospital-2", {"c": {"sent": 1, "received": 2}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ledger.json").write_text(json.dumps({**ledger, "down": some}))
    assert watch.count_bytes(tmp_path) == (1200 + 100 + 2 * 7) + (1200 + 3 + 7)


def test_what_a_process_warns_of(tmp_path):
    nodes = NodeProcesses(tmp_path)
    text = "2026-01-02 03:04:05,678 INFO cloud: run opened\n2026-01-02 03:04:05,679 WARNING cloud: rho is small\n"
    (tmp_path / "aggregator.log").write_text(text)
    assert nodes.warnings("aggregator") == ["cloud: rho is small"]


def test_the_first_half_minute_is_not_silent(tmp_path, monkeypatch):
    """A line every few seconds, as long as the first round is not over."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(watch, "time", clock)
    nodes = NodeProcesses(tmp_path)
    nodes.running.update({"aggregator": None, "device-a": None})  # type: ignore[dict-item]
    for name in nodes.running:
        (tmp_path / f"{name}.log").write_text("")
    said: list[str] = []
    waiting = watch.StartUp(nodes, said.append)
    for second in range(12):
        clock.now = float(second)
        if second == 7:
            for name in nodes.running:
                (tmp_path / f"{name}.log").write_text("INFO cloud: connected to mqtt://127.0.0.1:1\n")
        waiting()
    assert said == [
        "0 of 2 processes are connected; models are loaded and checked",
        "2 of 2 processes are connected; the first round is under way",
    ]


def test_a_replay_that_is_to_stop_ends_at_the_next_look(tmp_path):
    nodes = NodeProcesses(tmp_path)
    nodes.check()
    nodes.stopping.set()
    with pytest.raises(ProcessError, match="stopped before its end"):
        nodes.check()
