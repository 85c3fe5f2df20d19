"""The same run over a real broker with secret sums and in the clear: the same to the bit, on every node's disk too."""

import threading
from dataclasses import replace

import pytest

from edge_sdk.methods.shared.evaluation import evaluation
from edge_sdk.methods.shared.evaluation.evaluation import Finished
from edge_sdk.nodes.configuration.assembly import make_assembly
from edge_sdk.wire.link import Backoff
from tests.delivery.nodes import make_runtime
from tests.methods.contract import fingerprint
from tests.methods.secret.among import among_envs, among_run
from tests.methods.secret.parties import TREE, envs_for, masks_of_hospital, run_of

PARENTS = {d: h for h, devices in TREE.items() for d in devices} | dict.fromkeys(TREE, "aggregator")
TIERS = {"aggregator": "aggregator", **dict.fromkeys(TREE, "hospital")}


def among(run):
    return run.uploads.get("secret") not in (True, False, None)


def play(run, base, broker):
    """What the aggregator was told of, and what it ends with."""
    told, over, envs = [], threading.Event(), among_envs(run, TREE) if among(run) else envs_for(run)
    if run.uploads.get("hospitals"):
        envs |= {h: replace(envs[h], masks=masks_of_hospital(h, tuple(TREE))) for h in TREE}

    def node(name):
        def tell(number, message):
            if name == "aggregator":
                told.append(fingerprint(message))
                if isinstance(message, Finished):
                    over.set()

        return make_runtime(
            name,
            parent=PARENTS.get(name),
            children=({"aggregator": tuple(TREE)} | TREE).get(name, ()),
            directory=base / name,
            broker=broker,
            run=run if name == "aggregator" else None,
            told=tell,
            assemble=lambda offered: make_assembly(offered, TIERS.get(name, "device"), envs[name]),
            backoff=Backoff(0.02, 0.3),
            rto=0.5,
            wait_seconds=30.0,
        )

    nodes = {name: node(name) for name in ("aggregator", *PARENTS)}
    threads = [threading.Thread(target=one.run) for one in nodes.values()]
    try:
        for thread in threads:
            thread.start()
        assert over.wait(60)
        state = nodes["aggregator"].node.record.state
    finally:
        for one in nodes.values():
            one.stop()
        for thread in threads:
            thread.join(30)
    if run.uploads.get("hospitals"):
        return told, state
    return told, fingerprint(state.inner if run.uploads.get("secret") is True else state)


@pytest.fixture
def _no_facts(monkeypatch):
    """Devices tell no facts about their personal models, which are never masked."""
    monkeypatch.setattr(evaluation, "judge_personal", lambda *_: {})


@pytest.mark.usefixtures("_no_facts")
@pytest.mark.parametrize("method", ["fedslr", pytest.param("scaffold", marks=pytest.mark.long)])
def test_it_is_the_same_as_in_the_clear(tmp_path, quick, method, monkeypatch):
    """But for facts of personal models, which are in no masked answer (test_few_scores.py)."""
    monkeypatch.setattr(evaluation, "judge_personal", lambda models, sums: {})
    runs = {secret: run_of(method, rounds=3, secret=secret) for secret in (True, False)}
    found = [play(run, tmp_path / str(secret), quick.url) for secret, run in runs.items()]
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.usefixtures("_no_facts")
def test_it_is_the_same_where_devices_open_the_sums(tmp_path, quick):
    runs = [among_run("fedslr", clear=clear, rounds=3) for clear in (False, True)]
    found = [play(run, tmp_path / str(i), quick.url) for i, run in enumerate(runs)]
    assert found[0] == found[1]


def test_sums_over_hospitals(tmp_path, quick):
    """Each round is opened, and nothing of a single hospital: all that the aggregator was sent is masked or a word."""
    told, state = play(run_of(rounds=3, uploads={"hospitals": 2}), tmp_path, quick.url)
    assert not [
        line for line in told if "NotPooled" in str(line) or "NotSummed" in str(line) or "NotOpened" in str(line)
    ]
    assert state.number == 0 and state.inner.inner.round == 3
    assert list(state.inner.opened.values()) == [("d0", "d1", "d2", "d3", "d4", "d5")]
