"""What a hospital takes of its devices in an exchange: each answer once, in its step, of those who were asked for it.

Who owes an answer is known before that (contract/round.py), and what is not owed does not come here. But the exchange
does not rest on it: a masked answer that was added up twice would open nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edge_sdk.algebra.secure_aggregation import rounding
from edge_sdk.algebra.secure_aggregation.neighbours import neighbours
from edge_sdk.contract.environment.sharing import COMMITTED, SEALED, TAG
from edge_sdk.contract.method import OUT, NodeEnv, Send
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.among_devices.among_blame import LieError, check_told
from edge_sdk.methods.secret.among_devices.among_opening import holders
from edge_sdk.methods.secret.among_devices.among_states import (
    CONFIRMING,
    COVERING,
    DEALING,
    OFFERING,
    REVEALING,
    AmongState,
)
from edge_sdk.methods.secret.messages.among_messages import (
    Confirmed,
    Covered,
    Dealt,
    Disputed,
    KeysOffer,
    Revealed,
    from_bits,
    pieces,
)
from edge_sdk.methods.secret.messages.masking import cut
from edge_sdk.methods.secret.messages.plan import SecretPlan
from edge_sdk.methods.shared.aggregation.suspension import is_suspended


def offered(env: NodeEnv, plan: SecretPlan, s: AmongState, sender: str, m: KeysOffer) -> AmongState:
    """The state after a device has said that it has an answer.

    Raises:
        PeerError: none was asked for, or not of that form, or it has said so before.
    """
    kind = plan.kind_of(m.form)
    if s.stage != OFFERING or kind is None:
        raise PeerError(f"{sender} offers {m.form.kind}, which was not asked for")
    if sender in s.offers:
        raise PeerError(f"{sender} offers keys for the second time")
    if m.form != (wanted := kind.form(env, kind.blank(m.form))) or s.form not in (None, m.form):
        raise PeerError(f"{sender} offers {m.form}, expected {s.form or wanted}")
    assert env.reader is not None
    if not env.reader.is_usable(m.public.tobytes()):
        raise LieError(f"{sender} offers keys that share nothing with anybody's")
    if is_suspended(env, s.inner.guard, sender):
        return s
    return replace(s, form=m.form, offers={**s.offers, sender: m.public})


STEPS: Mapping[int, tuple[type, str, str]] = {
    DEALING: (Dealt, "offers", "dealt"),
    COVERING: (Covered, "dealt", "members"),
    CONFIRMING: (Confirmed, "members", "confirmed"),
    REVEALING: (Revealed, "confirmed", "revealed"),
}
"""Stage -> what is sent in it, and the fields of the state that say who was asked for it, and who has sent it."""


def told(s: AmongState, sender: str, m: Any) -> AmongState:
    """The state after a device's answer in the exchange. Raises PeerError for one that was not asked for, of one who
    was not asked, or who has answered."""
    kind, asked, heard = STEPS[s.stage]
    if not isinstance(m, kind):
        raise PeerError(f"{sender} sent {type(m).__name__}, expected {kind.__name__}")
    if sender not in getattr(s, asked):
        raise PeerError(f"{sender} sent {kind.__name__}, for which it was not asked")
    if sender in getattr(s, heard):
        raise PeerError(f"{sender} sent {kind.__name__} for the second time")
    try:
        return noted(s, neighbours(s.names, s.roster.digest()), sender, m)
    except ValueError as why:
        raise PeerError(f"{sender} sent {kind.__name__}: {why}") from None


def noted(s: AmongState, graph: Any, sender: str, m: Any) -> AmongState:
    """The state with what a device was asked for. Raises ValueError for what does not fit the exchange."""
    if isinstance(m, Dealt):
        pieces(m.sealed, SEALED, graph[sender])
        pieces(m.commitments, COMMITTED, holders(graph, sender))
        committed = {**s.committed, sender: m.commitments}
        return replace(s, dealt={**s.dealt, sender: m.sealed}, committed=committed)
    if isinstance(m, Covered):
        return covered(s, graph, sender, m)
    if isinstance(m, Confirmed):
        pieces(m.words, TAG, [peer for peer in graph[sender] if peer in s.members])
        return replace(s, confirmed={**s.confirmed, sender: m.words})
    check_told(s, graph, sender, m)
    return replace(s, revealed={**s.revealed, sender: m.shares})


def covered(s: AmongState, graph: Any, sender: str, m: Covered) -> AmongState:
    """The state with one more masked answer in the sum. Raises ValueError for one of another size, or disputes with
    others than neighbours who have dealt."""
    if not {*from_bits(s.names, m.disputed)} <= {*graph[sender]} & {*s.dealt}:
        raise ValueError("a dispute with devices that have dealt nothing to it")
    if m.steps.size != rounding.packed_size(s.steps.size, s.width) or m.words.size != s.words.size:
        raise ValueError(f"{m.steps.size} bytes and {m.words.size} words, expected {s.steps.size} of {s.width} bits")
    steps = cut(s.steps + rounding.unpack(m.steps, s.steps.size, s.width), s.width)
    members, disputed = tuple(sorted({*s.members, sender})), {**s.disputed, sender: m.disputed}
    return replace(s, members=members, steps=steps, words=s.words + m.words, disputed=disputed)


def disputes_in(s: AmongState, sender: str, m: Any) -> list[Send]:
    """Events of shares that a device says to be false."""
    found = from_bits(s.names, m.disputed) if isinstance(m, Covered) else ()
    return [Send(OUT, Disputed(dealer, sender)) for dealer in found]
