"""FedSLR's hospital: draws devices, adds up their w_i, and remembers whose uploads entered w (mirror.py)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from edge_sdk.contract.method import UP, Send, Step
from edge_sdk.methods.fedslr.messages import FedslrModel, Forgotten
from edge_sdk.methods.fedslr.settings import Env
from edge_sdk.methods.fedslr.uploads import Past
from edge_sdk.methods.shared.aggregation import gather
from edge_sdk.methods.shared.membership import mirror
from edge_sdk.methods.shared.membership.mirror import MirrorHospital


@dataclass(frozen=True)
class HospitalState(MirrorHospital):
    """What FedSLR's hospital remembers; "counted" is that an upload entered w."""

    written_as: ClassVar[str] = "FedslrHospital"

    account: Past = field(default_factory=Past)


def hospital_start(env: Env) -> Step:
    return HospitalState(), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender == UP:
        return mirror.pass_on(env, s, gather.expected(sender, message, FedslrModel))
    if isinstance(message, Forgotten):
        return replace(s, forgotten=True), []
    return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []


def hospital_close(env: Env, s: HospitalState) -> Step:
    return s, [Send(UP, Forgotten() if s.forgotten else gather.answer(s.tally, env.theta0))]
