"""FedSLR's hospital: draws devices, adds up their w_i, and remembers whose uploads entered w."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from edge_sdk.contract.method import UP, Send, Step, ask_nobody
from edge_sdk.contract.round import life_of
from edge_sdk.methods.fedslr.messages import FedslrModel, Forgotten
from edge_sdk.methods.fedslr.settings import Env
from edge_sdk.methods.fedslr.uploads import Past
from edge_sdk.methods.shared.aggregation import draw, gather
from edge_sdk.methods.shared.membership.changing import departed
from edge_sdk.methods.shared.membership.mirror import MirrorHospital, confirmed, recalled, was_put_back


@dataclass(frozen=True)
class HospitalState(MirrorHospital):
    """What FedSLR's hospital remembers; "counted" is that an upload entered w."""

    written_as: ClassVar[str] = "FedslrHospital"

    account: Past = field(default_factory=Past)


def hospital_start(env: Env) -> Step:
    return HospitalState(), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender != UP:
        if isinstance(message, Forgotten):
            return replace(s, forgotten=True), []
        return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []
    m: FedslrModel = gather.expected(sender, message, FedslrModel)
    account = recalled(s.account, env.me, m)
    if account is None or was_put_back(env, s.life, in_same_era=account.era == s.account.era):
        return HospitalState(s.account, None, s.counted, True, s.life), [ask_nobody(m)]
    counted = confirmed(s, account)
    if departed(env, counted):
        return HospitalState(s.account, None, counted, True, s.life), [ask_nobody(m)]
    chosen = draw.chosen(env, m.round, m.pick)
    question = replace(m, counted={d: counted[d] for d in chosen if d in counted})
    return HospitalState(replace(account, round=m.round), None, counted, life=life_of(env.asked)), [
        Send(chosen, question)
    ]


def hospital_close(env: Env, s: HospitalState) -> Step:
    return s, [Send(UP, Forgotten() if s.forgotten else gather.answer(s.tally, env.theta0))]
