"""A sum of masked answers is opened with what devices have revealed: secrets from shares, masks from secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edge_sdk.algebra.secure_aggregation import shamir
from edge_sdk.algebra.secure_aggregation.neighbours import neighbours, threshold
from edge_sdk.algebra.secure_aggregation.shamir import SHARE
from edge_sdk.contract.environment.sharing import PUBLIC
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.among_devices.among_states import AmongState
from edge_sdk.methods.secret.messages.among_messages import FALSE, UNSHARED, from_bits, pieces
from edge_sdk.methods.secret.messages.forms import Flat, check_count
from edge_sdk.methods.secret.messages.masking import cut, ring_type

SECRET = 32  # bytes


class NotOpenedError(Exception):
    """A sum cannot be opened; the text is a key of `among_messages.WHY`. `liars`: device -> why it is its fault."""

    def __init__(self, why: str, liars: Mapping[str, str] | None = None):
        super().__init__(why)
        self.liars = liars or {}


def opened(env: NodeEnv, s: AmongState) -> Flat:
    """The sum of the members' answers.

    Raises:
        NotOpenedError: too few shares, or false ones.
    """
    roster, steps, words = s.roster, s.steps.astype(ring_type(s.width)), s.words.copy()
    about = roster.digest()
    graph = neighbours(s.names, about)
    for sign, (mask, word_mask) in masks_in(env, s, graph, about, pieces(roster.publics, PUBLIC, s.names)):
        steps = steps + mask if sign > 0 else steps - mask
        words = words + word_mask if sign > 0 else words - word_mask
    try:
        check_count(words, len(s.members))
    except PeerError:
        raise NotOpenedError(FALSE) from None
    return Flat(cut(steps, s.width), words)


def masks_in(
    env: NodeEnv, s: AmongState, graph: Mapping[str, Sequence[str]], about: bytes, publics: Mapping[str, bytes]
) -> Iterator[tuple[int, Any]]:
    """What is left of masks in the sum, each with the sign by which it is taken off: each member's own, and those that
    members share with devices that are missing, which the lesser name has added."""
    reader, size = env.reader, (s.words.size, s.steps.size, s.width)
    assert reader is not None  # looked at when the role was started
    for device, secret in secrets_told(s, graph).items():
        if device in s.members:
            yield -1, reader.own_mask(secret, about, device, *size)
            continue
        if not reader.is_key_of(secret, publics[device]):
            raise NotOpenedError(FALSE, {device: "the key that it has dealt out is not the one that it has offered"})
        for peer in {*graph[device]} & {*s.members}:
            try:
                mask = reader.pair_mask(secret, device, publics[peer], peer, about, *size)
            except ValueError:  # a roster of a version that did not look at offers
                raise NotOpenedError(FALSE, {peer: "its keys share nothing with anybody's"}) from None
            yield -1 if peer < device else 1, mask


def secrets_told(s: AmongState, graph: Mapping[str, Sequence[str]]) -> dict[str, bytes]:
    """Device -> the secret that was told of it. Raises NotOpenedError for one of which that cannot be made."""
    told = {holder: pieces(m, SHARE, held_by(s, graph, holder)) for holder, m in sorted(s.revealed.items())}
    places, needed = {name: i for i, name in enumerate(s.names, 1)}, threshold(len(s.names))
    return {
        device: secret_of(
            device, {places[holder]: found[device] for holder, found in told.items() if device in found}, needed
        )
        for device in sorted(s.dealt)
    }


def secret_of(device: str, told: Mapping[int, bytes], needed: int) -> bytes:
    """A device's secret of shares by place: a member's seed, or the key of one that is missing.

    All shares are those that it has dealt. So where the first and the last of them make two secrets, or none that can
    be one, it has dealt falsely; every share is among the first or the last, as more than half are needed.
    """
    if len(told) < needed:
        raise NotOpenedError(UNSHARED)
    shares = [(place, int.from_bytes(told[place], "big")) for place in sorted(told)]
    try:
        first, last = (shamir.join(dict(some)).to_bytes(SECRET, "big") for some in (shares[:needed], shares[-needed:]))
    except (ValueError, OverflowError):
        first, last = b"", b"?"
    if first != last:
        raise NotOpenedError(FALSE, {device: "the shares that it has dealt out are not of one secret"})
    return first


def holders(graph: Mapping[str, Sequence[str]], dealer: str) -> list[str]:
    """Who holds shares of a dealer: its neighbours and itself, sorted."""
    return sorted({dealer, *graph[dealer]})


def held_by(s: AmongState, graph: Mapping[str, Sequence[str]], holder: str) -> list[str]:
    """Devices of which one holds shares that it does not dispute, itself among them, sorted."""
    disputed = from_bits(s.names, s.disputed[holder]) if holder in s.disputed else ()
    return sorted(({holder, *graph[holder]} & {*s.dealt}) - {*disputed})
