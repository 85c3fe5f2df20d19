"""The hospital decides: what its [allow] table refuses reaches no device, whatever the aggregator orders."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.cli import main
from edge_sdk.contract.run import Run
from edge_sdk.delivery.roles.counters import Counters
from edge_sdk.delivery.roles.engine import Assembly
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import Bundle, read_bundle
from edge_sdk.nodes.configuration.assembly import make_assembly, make_env
from edge_sdk.nodes.hospital.hospital import Hospital
from edge_sdk.nodes.hospital.options import HospitalPolicy
from edge_sdk.nodes.policy.admission import Gate
from edge_sdk.nodes.policy.allow import BY_HAND, Allow, RunFacts, find_objections
from edge_sdk.nodes.policy.approvals import decide, digest_of, list_asked
from edge_sdk.replay.nodes.broker import LocalBroker
from tests.delivery.fleet import eventually
from tests.delivery.live import QUICK, playing
from tests.delivery.nodes import make_runtime

RUN = Run(id="first", method="fedavg", rounds=3, classes=("a", "b"))
NIGHT = ("22:00-06:00",)
WRIST = Path(__file__).parents[3] / "models" / "shipped" / "wrist.bundle"


def objections(allow: Allow, run: Run = RUN, **facts: object) -> list[str]:
    return list(find_objections(allow, run, RunFacts(**facts)))  # type: ignore[arg-type]


def test_what_is_not_set_is_allowed() -> None:
    assert objections(Allow(), spent=10**12) == []


@pytest.mark.parametrize(
    ("allow", "facts", "says"),
    [
        (Allow(methods=("fedslr",)), {}, "method fedavg is not allowed here; allowed: fedslr"),
        (Allow(messages=("Work",)), {}, "sends messages that are not allowed here"),
        (Allow(hours=NIGHT), {"minute": 12 * 60}, "waits for the hours in which runs are allowed: 22:00-06:00"),
        (Allow(max_bytes=10**6), {"spent": 10**6}, "it has used 1.0 MB, at most 1.0 MB are allowed"),
        (Allow(approval=BY_HAND), {}, "waits for approval by hand, at this node: auscult approve FOLDER first"),
        (Allow(), {"decision": False}, "denied by hand"),
    ],
)
def test_each_rule_objects(allow: Allow, facts: dict[str, int], says: str) -> None:
    [said] = objections(allow, **facts)
    assert says in said


def test_rules_that_are_kept_let_a_run_in() -> None:
    from edge_sdk.nodes.configuration.assembly import method_of

    names = tuple({kind.__name__ for kind in method_of(RUN).messages})
    allow = Allow(methods=("fedavg",), messages=names, hours=NIGHT, max_bytes=10, approval=BY_HAND)
    assert objections(allow, minute=23 * 60, spent=9, decision=True) == []
    settling = replace(RUN, settle={"local_steps": [1]})
    assert "not allowed" in objections(allow, settling, minute=23 * 60, decision=True)[0]  # it sends more than before


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": ("fedvag",)},
        {"hours": ("25:00-01:00",)},
        {"max_bytes": -1},
        {"approval": "perhaps"},
    ],
)
def test_a_table_that_cannot_be_used_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Allow(**wrong)  # type: ignore[arg-type]


# On the disk ---------------------------------------------------------------------------------------------------------


def test_an_approval_is_for_the_run_as_it_was_described(tmp_path: Path) -> None:
    gate = Gate(Allow(approval=BY_HAND), tmp_path, threading.Event())
    assert "waits for approval" in gate.judge_offer(RUN)
    decide(tmp_path, "first", True)
    assert gate.judge_offer(RUN) == "" and gate.look(replace(RUN, deadline=7.0, quorum=2)) == ""
    other = replace(RUN, rounds=1000)  # under the same name
    assert "waits for approval" in gate.judge_offer(other)
    decide(tmp_path, "first", False)
    assert gate.judge_offer(other) == "it was denied by hand" and gate.judge_offer(RUN) == ""
    assert [about["decision"] for about in list_asked(tmp_path)] == [False, True]
    with pytest.raises(UsageError, match="'second' was not offered to this node; runs that were: first"):
        decide(tmp_path, "second", True)


def test_bytes_are_counted_for_each_run_and_outlive_the_process(tmp_path: Path) -> None:
    counters, over = Counters(), threading.Event()

    def make() -> Gate:
        gate = Gate(Allow(max_bytes=1000), tmp_path, over)
        gate.counters = counters
        return gate

    gate = make()
    counters.count("bytes_in.a", 5000)  # of an earlier run
    assert gate.judge_offer(RUN) == "" and gate.look(RUN) == ""
    counters.count("bytes_out.a", 600)
    assert gate.look(RUN) == ""
    gate = make()
    assert gate.judge_offer(RUN) == "" and gate.look(RUN) == ""
    counters.count("bytes_in.a", 400)
    assert "at most 0.0 MB" in gate.look(RUN)
    assert "at most 0.0 MB" in make().judge_offer(RUN)
    assert make().judge_offer(replace(RUN, id="second")) == ""
    over.set()
    assert gate.look(RUN) == ""  # a run that is over costs nothing more


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs-decided.json").write_text("{")
    with pytest.raises(UsageError, match=r"runs-decided.json: cannot be read"):
        Gate(Allow(approval=BY_HAND), tmp_path, threading.Event()).judge_offer(RUN)


# Over a broker -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return read_bundle(WRIST)


class Trial:
    """An aggregator that orders a run, a hospital with its own rules, and a device that notes what it hears of."""

    def __init__(self, base: Path, url: str, bundle: Bundle, allow: Allow, **run: object):
        classes = tuple(f"c{i}" for i in range(11))
        self.run = Run(id="first", method="fedavg", bundle=bundle.sha256, classes=classes, **run)  # type: ignore[arg-type]
        self.heard: list[str] = []

        def order(run: Run) -> Assembly:
            return make_assembly(run, "aggregator", make_env(run, bundle.layout, bundle.theta0, sizes={"north": 1}))

        def hear(run: Run) -> Assembly:
            self.heard.append(run.id)
            raise UsageError("it only listens")

        common = {"broker": url, **QUICK}
        self.aggregator = make_runtime(
            "cloud", children=("north",), directory=base / "c", run=self.run, assemble=order, **common
        )  # type: ignore[arg-type]
        about = {"aggregator": "cloud", "broker": url, "bundle": WRIST, "directory": base / "north"}
        self.hospital = Hospital("north", devices=("a",), policy=HospitalPolicy(allow=allow), **about)  # type: ignore[arg-type]
        self.device = make_runtime("a", parent="north", directory=base / "a", assemble=hear, **common)  # type: ignore[arg-type]

    def playing(self):  # type: ignore[no-untyped-def]
        return playing(self.aggregator, self.hospital.runtime, self.device)


def test_an_aggregator_that_orders_more_is_refused(
    tmp_path: Path, quick: LocalBroker, bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    trial = Trial(tmp_path, quick.url, bundle, Allow(methods=("fedslr",)))
    with trial.playing():
        eventually(lambda: "cloud: north cannot take part: run first: method fedavg is not allowed here" in caplog.text)
        eventually(lambda: "a" in trial.hospital.runtime.presence.children)
        trial.device.announcer.announce()  # it asks again, and hears of no run again
        time.sleep(1.5)  # a look of the gate, which must not let it in either
        assert trial.hospital.runtime.session is None and trial.heard == []
        trial.hospital.change_allow(Allow(methods=("fedslr", "fedavg")))  # at SIGHUP
        eventually(lambda: trial.heard == ["first"])


def test_a_run_waits_for_a_persons_approval(
    tmp_path: Path,
    quick: LocalBroker,
    bundle: Bundle,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO)
    trial = Trial(tmp_path, quick.url, bundle, Allow(approval=BY_HAND))
    with trial.playing():
        eventually(lambda: "cloud: north cannot take part: run first: it waits for approval by hand" in caplog.text)
        assert trial.heard == []
        assert main(["approve", str(tmp_path / "north")]) == 0
        assert "first: fedavg, 1 rounds" in capsys.readouterr().out
        assert main(["approve", str(tmp_path / "north"), "first"]) == 0
        eventually(lambda: trial.heard == ["first"])
        assert caplog.text.count("north: run first: it waits") == 1  # and not once a second
        assert main(["approve", str(tmp_path / "north"), "first", "--deny"]) == 0
        eventually(lambda: "run first: it was denied by hand" in caplog.text)
        eventually(lambda: trial.hospital.runtime.session is None)


def test_the_digest_is_of_all_but_how_long_is_waited() -> None:
    same = {digest_of(replace(RUN, **change)) for change in ({}, {"deadline": 3.0}, {"measured": True}, {"quorum": 1})}  # type: ignore[arg-type]
    other = {digest_of(replace(RUN, **change)) for change in ({"rounds": 4}, {"settings": {"eta": 1}}, {"seed": 1})}  # type: ignore[arg-type]
    assert len(same) == 1 and len(other) == 3 and not same & other


def test_a_list_of_methods_says_of_rollouts_too_whether_they_may_come() -> None:
    run = Run(id="r", method="rollout", settings={"theta": "ab"})
    assert objections(Allow(methods=("fedavg", "rollout")), run) == []
    assert objections(Allow(methods=("fedavg",)), run) == ["method rollout is not allowed here; allowed: fedavg"]


def test_a_run_with_noise_or_secret_sums_keeps_the_devices_of_its_start() -> None:
    from edge_sdk.nodes.configuration.assembly import fixes_members

    assert fixes_members(RUN) == ""
    assert "noise" in fixes_members(replace(RUN, privacy={"epsilon": 1.0}))
