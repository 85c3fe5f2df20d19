"""What a node's store can keep of what roles tell: as much as the run has around its method, and all of that."""

from __future__ import annotations

import pytest

from edge_sdk.algebra.vectors import EMPTY_LAYOUT
from edge_sdk.contract.run import ROLLOUT, Run
from edge_sdk.errors import UsageError
from edge_sdk.methods.rollout.messages import RolloutVerdict, StageOver, VersionKept, VersionLeft, VersionTaken
from edge_sdk.methods.secret.messages.among_messages import Disputed, NoneOpened, Withheld
from edge_sdk.methods.secret.messages.pool_messages import NotOpened, NotPooled
from edge_sdk.methods.secret.to_aggregator.aggregator import NotSummed
from edge_sdk.methods.settling.method import Choice
from edge_sdk.methods.settling.self_training import LabelChoice
from edge_sdk.nodes.configuration.assembly import TOLD, list_told, method_of, record_codec
from edge_sdk.wire.codec.codec import DecodeError

OF_SETTLING = {Choice, LabelChoice}
OF_SECRETS = {NotSummed, NotPooled, NotOpened, NoneOpened, Withheld, Disputed}
OF_ROLLOUTS = {VersionTaken, VersionLeft, VersionKept, StageOver, RolloutVerdict}
CASES = {
    "plain": (Run(id="r", method="fedavg"), set()),
    "robust": (Run(id="r", method="fedavg", robust={"rule": "median"}), set()),
    "integers": (Run(id="r", method="fedavg", uploads={"bits": 4}), set()),
    "settling": (Run(id="r", method="fedavg", settle={"trees": 0}), OF_SETTLING),
    "self-training": (Run(id="r", method="fedavg", settle={"label_times": 2, "statistics": True}), OF_SETTLING),
    "secret": (Run(id="r", method="fedavg", uploads={"secret": True}), OF_SECRETS),
    "among devices": (Run(id="r", method="fedavg", uploads={"secret": "among-devices"}), OF_SECRETS),
    "over hospitals": (Run(id="r", method="fedavg", uploads={"secret": True, "hospitals": 2}), OF_SECRETS),
    "both": (Run(id="r", method="fedavg", uploads={"secret": True}, settle={"trees": 0}), OF_SECRETS | OF_SETTLING),
    "rollout": (Run(id="r", method=ROLLOUT), OF_ROLLOUTS),
}


@pytest.mark.parametrize("case", CASES)
def test_a_store_knows_what_the_roles_of_a_run_tell_and_nothing_of_other_runs(case: str) -> None:
    run, wanted = CASES[case]
    method = method_of(run)
    assert {*list_told(method.messages)} == wanted
    for role in (method.device, method.hospital, method.aggregator):
        codec = record_codec(role, method.messages, EMPTY_LAYOUT)
        for kind in {*TOLD, *OF_SETTLING, *OF_SECRETS, *OF_ROLLOUTS}:
            known = kind in TOLD or kind in wanted
            with pytest.raises(DecodeError if known else UsageError):  # no bytes are no message of a kind it knows
                codec.decode(b"", expect=kind)
