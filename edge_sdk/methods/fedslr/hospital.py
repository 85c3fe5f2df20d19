"""FedSLR's hospital: draws devices, adds up their w_i, and remembers whose uploads entered w."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from edge_sdk.contract.method import UP, Send, Step, ask_nobody
from edge_sdk.contract.round import life_of
from edge_sdk.methods.fedslr.messages import FedslrModel, Forgotten
from edge_sdk.methods.fedslr.settings import Env
from edge_sdk.methods.fedslr.uploads import Past, recall
from edge_sdk.methods.shared.aggregation import draw, gather
from edge_sdk.methods.shared.aggregation.gather import Tally
from edge_sdk.methods.shared.membership.changing import departed
from edge_sdk.methods.shared.membership.mirror import was_put_back


@dataclass(frozen=True)
class HospitalState:
    """What FedSLR's hospital remembers.

    Attributes:
        past: the round of the latest question, and what became of the sums.
        tally: the uploads of that round.
        counted: device -> the last round of this era in which its upload entered w.
        forgotten: a node has lost its memory, this one or a device.
        life: in which it was asked last in this era; -1: not yet, or that was not noted (see
            shared/membership/mirror.py).
    """

    written_as: ClassVar[str] = "FedslrHospital"

    past: Past = field(default_factory=Past)
    tally: Tally | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    forgotten: bool = False
    life: int = -1


def hospital_start(env: Env) -> Step:
    return HospitalState(), []


def hospital_receive(env: Env, s: HospitalState, sender: str, message: object) -> Step:
    if sender != UP:
        if isinstance(message, Forgotten):
            return replace(s, forgotten=True), []
        return replace(s, tally=gather.gathered(env, s.tally, sender, message)), []
    m: FedslrModel = gather.expected(sender, message, FedslrModel)
    past = recall(s.past, env.me, m)
    if past is None or was_put_back(env, s.life, in_same_era=past.era == s.past.era):
        return HospitalState(s.past, None, s.counted, True, s.life), [ask_nobody(m)]
    counted = confirm_counted(s, past)
    if departed(env, counted):
        return HospitalState(s.past, None, counted, True, s.life), [ask_nobody(m)]
    chosen = draw.chosen(env, m.round, m.pick)
    question = replace(m, counted={d: counted[d] for d in chosen if d in counted})
    return HospitalState(replace(past, round=m.round), None, counted, life=life_of(env.asked)), [Send(chosen, question)]


def confirm_counted(s: HospitalState, past: Past) -> Mapping[str, int]:
    """A device's upload counts only if its hospital's sum counted too."""
    if past.era != s.past.era:
        return {}
    heard = s.tally.heard if s.tally is not None and past.counted == s.past.round else ()
    return {**s.counted, **dict.fromkeys(heard, s.past.round)}


def hospital_close(env: Env, s: HospitalState) -> Step:
    return s, [Send(UP, Forgotten() if s.forgotten else gather.answer(s.tally, env.theta0))]
