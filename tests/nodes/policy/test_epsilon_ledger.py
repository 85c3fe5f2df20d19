"""What a holder lets runs tell about it: per run, for good, across kills and new runs, refused with the reason."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.algebra.secure_aggregation.privacy import epsilon_of
from edge_sdk.contract.loopback import NetworkFaults
from edge_sdk.contract.run import Run
from edge_sdk.errors import Cancelled, PeerError, UsageError
from edge_sdk.methods.integers.vectors.messages import Changes, Integers
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.policy.allow import Allow, RunFacts, find_objections
from edge_sdk.nodes.policy.approvals import digest_of
from edge_sdk.nodes.policy.epsilon_ledger import EARLIER, FILE, EpsilonLedger, rho_of_answer, rho_of_run, shortened
from tests.methods.integers.test_noise import Seeded
from tests.methods.problems import DEVICES, envs_of, play

DELTA = 1e-5


def run_of(id: str = "first", rounds: int = 3, **privacy: object) -> Run:
    return Run(
        id=id, method="fedavg", rounds=rounds, seed=7, privacy={"clip": 1.0, "noise": 2.0, "cohort": 1, **privacy}
    )


def objections(allow: Allow, run: Run, told: float = 0.0) -> list[str]:
    return list(find_objections(allow, run, RunFacts(told=told)))


def test_a_run_that_costs_too_much_is_refused_with_the_figure() -> None:
    price = epsilon_of(rho_of_run(run_of()), DELTA)
    assert objections(Allow(epsilon_per_run=price * 1.01), run_of()) == []
    (why,) = objections(Allow(epsilon_per_run=price * 0.99), run_of())
    assert why == f"it comes to epsilon {price:.4g} at delta 1e-05, at most {price * 0.99:g} is allowed"


def test_all_runs_together_may_not_cost_more_than_is_allowed_for_good() -> None:
    run = run_of("second")
    both = epsilon_of(2 * rho_of_run(run), DELTA)
    allow = Allow(epsilon_for_good=both * 0.99)
    assert objections(allow, run) == []
    (why,) = objections(allow, run, told=rho_of_run(run))
    assert why.startswith(f"with it, the runs of this node come to epsilon {both:.4g}")


def test_a_run_without_noise_or_with_bare_scores_is_refused_where_epsilon_is_bounded() -> None:
    for allow in (Allow(epsilon_per_run=100.0), Allow(epsilon_for_good=100.0)):
        assert "its uploads have no noise" in objections(allow, replace(run_of(), privacy={}))[0]
        assert "scores without noise" in objections(allow, run_of(scores="clear"))[0]
    assert objections(Allow(), replace(run_of(), privacy={})) == []


@pytest.mark.parametrize(
    "wrong", [{"epsilon_per_run": -1.0}, {"epsilon_for_good": float("inf")}, {"epsilon_delta": 0.0}]
)
def test_wrong_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Allow(**wrong)  # type: ignore[arg-type]


def test_a_charge_survives_a_power_cut_before_its_answer_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in memory only while the answer left: who was cut off then had told it for nothing."""
    synced, sync = set[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: [sync(number), synced.add(os.fstat(number).st_ino)])
    EpsilonLedger(tmp_path).charge(run_of(), 1, answered=False)
    assert synced == {(tmp_path / FILE).stat().st_ino, tmp_path.stat().st_ino}


def test_a_charge_is_on_disk_and_a_call_that_is_made_again_is_not_charged_again(tmp_path: Path) -> None:
    run, price = run_of(), rho_of_answer(run_of())
    EpsilonLedger(tmp_path).charge(run, 1, answered=False)
    killed = EpsilonLedger(tmp_path)
    assert killed.spent_by(run) == price
    killed.charge(run, 1, answered=False)
    assert EpsilonLedger(tmp_path).spent_by(run) == price
    killed.charge(run, 1, answered=True)  # an aggregator that asks for other noise on the same question
    assert EpsilonLedger(tmp_path).spent_by(run) == 2 * price
    assert killed.spent_by_others(run_of("second")) == 2 * price and killed.spent_by_others(run) == 0


def test_a_question_is_answered_again_without_charge_once_only(tmp_path: Path) -> None:
    """Killed before it had saved its answer, a node makes the call again; put back from a backup, it does too."""
    run, price = run_of(rounds=5), rho_of_answer(run_of(rounds=5))
    charged = []
    for version in (1, 1, 1, 1, 2, 2, 2):
        EpsilonLedger(tmp_path).charge(run, version, answered=False)
        charged.append(EpsilonLedger(tmp_path).spent_by(run) / price)
    assert charged == pytest.approx([1, 1, 2, 3, 4, 4, 5])
    with pytest.raises(PeerError, match="run first has 5 rounds"):
        EpsilonLedger(tmp_path).charge(run, 2, answered=False)


def test_training_that_was_given_up_costs_nothing_however_often(tmp_path: Path) -> None:
    """A phone may end its application at any time, and training then goes on in the next process."""
    run, left = run_of(), [Cancelled("the node stops")] * 3
    method, envs = method_of(run), envs_of(method_of(run), settings_of(run), run.rounds)

    def receive(*_: Any) -> Any:
        if left:
            raise left.pop()
        return None, []

    state, _ = method.device.start(envs["d0"])
    role = EpsilonLedger(tmp_path).guard(run, replace(method.device, receive=receive))
    for _ in range(3):
        with pytest.raises(Cancelled):
            role.receive(envs["d0"], state, "up", Changes(None, 0, 1, np.zeros(0, np.float32), (), 0, 8, 0.0))
        assert EpsilonLedger(tmp_path).spent_by(run) == 0.0
    role.receive(envs["d0"], state, "up", Changes(None, 0, 1, np.zeros(0, np.float32), (), 0, 8, 0.0))
    assert EpsilonLedger(tmp_path).spent_by(run) == rho_of_answer(run)


def test_a_ledger_of_before_is_read(tmp_path: Path) -> None:
    run, price = run_of(), rho_of_answer(run_of())
    table = {digest_of(run): {"id": run.id, "rho": price, "last": 1}}
    (tmp_path / FILE).write_text(json.dumps(table))
    for count in (1, 2):
        EpsilonLedger(tmp_path).charge(run, 1, answered=False)
        assert EpsilonLedger(tmp_path).spent_by(run) == count * price


@pytest.mark.parametrize(
    "entry", ['{"rho": -5, "last": 0}', '{"rho": NaN, "last": 0}', '{"rho": "1", "last": 0}', "{}", "7"]
)
def test_a_ledger_whose_charges_are_none_is_refused_and_no_run_is_free(tmp_path: Path, entry: str) -> None:
    (tmp_path / FILE).write_text(f'{{"{"a" * 64}": {entry}}}')
    for ask in (EpsilonLedger(tmp_path).spent_by_others, lambda run: EpsilonLedger(tmp_path).charge(run, 1, False)):
        with pytest.raises(UsageError, match=r"the entry aaaaaaaaaaaaaaaa is .* expected an object with a finite rho"):
            ask(run_of())


def test_no_more_questions_are_answered_than_a_run_has_rounds(tmp_path: Path) -> None:
    ledger, run = EpsilonLedger(tmp_path), run_of(rounds=2)
    ledger.charge(run, 1, answered=False)
    ledger.charge(run, 2, answered=False)
    with pytest.raises(PeerError, match="run first has 2 rounds"):
        ledger.charge(run, 3, answered=False)
    assert ledger.spent_by(run) == rho_of_run(run)


def test_a_changed_run_under_the_same_name_is_another_run(tmp_path: Path) -> None:
    ledger = EpsilonLedger(tmp_path)
    ledger.charge(run_of(), 1, answered=False)
    assert ledger.spent_by_others(run_of(noise=3.0)) == rho_of_answer(run_of())


def test_old_runs_are_added_up_and_not_forgotten() -> None:
    table = {str(k): {"id": str(k), "rho": 0.5, "last": 1} for k in range(150)}
    once = shortened(table)
    again = shortened(once | {str(k): {"id": str(k), "rho": 0.5, "last": 1} for k in range(150, 200)})
    assert len(again) == 101 and again[EARLIER]["rho"] == 50.0
    assert sum(entry["rho"] for entry in again.values()) == 100.0


def test_every_answer_of_a_device_is_charged_before_it_leaves(tmp_path: Path) -> None:
    run, ledger = run_of(), EpsilonLedger(tmp_path)
    method, settings = method_of(run), settings_of(run)
    envs = envs_of(method, settings, run.rounds)
    envs |= {d: replace(envs[d], entropy=Seeded(d)) for d in DEVICES}
    net, transcript = play(method, settings, run.rounds, faults=NetworkFaults(repeat=0.0), envs=envs)
    questions = [m for _, to, m in transcript.crossed if isinstance(m, Changes) and to == "d0"]
    assert len(questions) == run.rounds
    role, env = ledger.guard(run, method.device), replace(net.nodes["d0"].env, me="d0")
    state, _ = role.start(env)
    for k, question in enumerate(questions, 1):
        state, sends = role.receive(env, state, "up", question)
        assert isinstance(sends[0].message, Integers)
        assert ledger.spent_by(run) == pytest.approx(k * rho_of_answer(run))
    with pytest.raises(PeerError, match="has 3 rounds"):
        role.receive(env, state, "up", questions[-1])
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0, "its owner's alone"
    assert ledger.guard(replace(run, privacy={}), method.device) is method.device
