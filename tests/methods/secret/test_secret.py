"""Secret sums on the loopback: the same as in the clear, to the bit, and nothing but noise on the way."""

import base64
import re
from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.methods import METHODS
from edge_sdk.methods.integers.vectors.settings import why_opened
from edge_sdk.methods.shared.evaluation import evaluation
from edge_sdk.methods.shared.evaluation.evaluation import Report
from edge_sdk.nodes.configuration.assembly import method_of, settings_of
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.secrets import mask_assignment
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys, read_public
from tests.methods import contract
from tests.methods.contract import fingerprint
from tests.methods.problems import PATIENT, play
from tests.methods.secret.parties import TREE, envs_for, keyed, run_of

ROOT = Path(__file__).parents[3]


def played(run, **more):
    given = {"policies": PATIENT, "tree": TREE, "envs": envs_for(run)} | more
    return play(method_of(run), settings_of(run), run.rounds, **given)


def outcome(net, transcript):
    """All that the aggregator ends with, and all that applications were told."""
    state = net.nodes["aggregator"].record.state
    inner = state.inner if type(state).__name__ == "SecretState" else state
    return fingerprint([inner, sorted(fingerprint(m) for _, m in transcript.told)])


OTHERS = [
    n for n in METHODS if n not in ("fedavg", "fedslr", "augfl") and not why_opened(METHODS[n], METHODS[n].settings())
]
SETTLES = {"evaluate_every": 2, "settle": {"steps": [0, 5], "local_steps": [5]}}
CASES = [
    ("fedavg", {}),
    ("fedslr", SETTLES),
    ("augfl", {}),
    *(pytest.param(name, {"evaluate_every": 2}, marks=pytest.mark.long) for name in OTHERS),
]


@pytest.mark.parametrize(("method", "more"), CASES)
def test_it_is_the_same_as_in_the_clear_to_the_bit(method, more, monkeypatch):
    """But for facts of personal models, which are in no masked answer (test_few_scores.py)."""
    monkeypatch.setattr(evaluation, "judge_personal", lambda models, sums: {})
    pairs = [played(run_of(method, secret=secret, **more)) for secret in (True, False)]
    assert outcome(*pairs[0]) == outcome(*pairs[1])
    reports = [m for _, m in pairs[0][1].told if isinstance(m, Report)]
    assert reports[-1].sums["devices"] == 6


CHECKS = [check for check in contract.CHECKS if check is not contract.an_interrupted_round_is_dropped]


USUAL = [("fedavg", contract.survives_the_codec)]
MORE = [(name, check) for name in ("fedavg", "fedslr") for check in CHECKS if (name, check) not in USUAL]


@pytest.mark.parametrize(("name", "check"), [*USUAL, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE)])
def test_contract(name, check):
    """Keys are no part of a state: what is left of a run is the same, in whatever order answers came."""
    run = run_of(name, evaluate_every=3)
    check(keyed(method_of(run)), settings_of(run))


# Which methods can ----------------------------------------------------------------------------------------------
def test_the_table_says_which_methods_can_and_why_the_others_cannot():
    """docs/uploads.md, against what methods declare, in the words with which a run is refused."""
    text = (ROOT / "docs" / "uploads.md").read_text().split("## Which methods")[1].split("\n\n")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    said = {name: what for names, _, what in rows for name in re.findall("`([^`]+)`", names)}
    declared = {name: why_opened(method, method.settings()) for name, method in METHODS.items() if name != "rollout"}
    assert said == {name: f"no: {why}" if why else "yes" for name, why in declared.items()}


REFUSED = [
    ("fedal", {}, "with method fedal: devices compare outputs"),
    (
        "fedbcd",
        {"settings": {"cloud": "first-b"}},
        "secret with method fedbcd: with cloud = 'first-b' each hospital has",
    ),
    ("fedavg", {"robust": {"rule": "median"}}, "the robust rule 'median' looks at single uploads"),
    ("fedavg", {"uploads": {"cohort": 1}}, "cohort = 1: a sum of 2 to 1000"),
]


@pytest.mark.parametrize(("method", "more", "why"), REFUSED)
def test_a_run_that_cannot_keep_it_is_refused_before_it_starts(method, more, why):
    with pytest.raises(UsageError, match=why):
        settings_of(run_of(method, **{"settings": {}, **more}))


def test_a_hospital_of_too_few_is_refused_before_it_starts(tmp_path):
    run = run_of(uploads={"cohort": 3})
    keys = AggregatorKeys(key=tmp_path / "key", devices=tmp_path / "devices.pub")
    with pytest.raises(UsageError, match=r"hospitals\.h1 = 2: a secret sum is made of 3 devices"):
        mask_assignment.for_aggregator(run, keys, {"h0": 3, "h1": 2})
    with pytest.raises(UsageError, match="no keys"):
        mask_assignment.for_aggregator(run, None, {"h0": 3})
    with pytest.raises(UsageError, match="no keys"):
        mask_assignment.for_device(run, None, "d0", 2, Allow)


def test_a_public_key_that_shares_nothing_is_found_where_it_is_read(tmp_path):
    """A point of small order shares the same zeros with everybody: the aggregator once failed on it in each round."""
    for raw in (bytes(32), (1).to_bytes(32, "little")):
        (tmp_path / "devices.pub").write_text(f"d0 {base64.b64encode(raw).decode()}\n")
        with pytest.raises(UsageError, match=r"devices\.pub, line 1: the key of d0 .* shares nothing"):
            read_public(tmp_path / "devices.pub")
