"""A sum of masked answers is opened with what devices have revealed: secrets from shares, masks from secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge_sdk.algebra import shamir
from edge_sdk.algebra.neighbours import neighbours, threshold
from edge_sdk.algebra.shamir import SHARE
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.sharing import PUBLIC
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.among_messages import FALSE, UNSHARED, pieces
from edge_sdk.methods.secret.among_states import AmongState
from edge_sdk.methods.secret.forms import Flat, SumKind, check_count
from edge_sdk.methods.secret.masking import cut, ring_type

SECRET = 32  # bytes


class NotOpenedError(Exception):
    """A sum cannot be opened; the text is a key of `among_messages.WHY`."""


def opened(env: NodeEnv, kind: SumKind, s: AmongState) -> Flat:
    """The sum of the members' answers.

    Raises:
        NotOpenedError: too few shares, or false ones.
    """
    roster = s.roster
    about, publics = roster.digest(), pieces(roster.publics, PUBLIC, s.names)
    graph = neighbours(s.names, about)
    secrets = {device: secret_of(s, graph, device) for device in sorted(s.dealt)}
    assert s.form is not None and env.reader is not None
    steps, words = s.steps.astype(ring_type(s.width)), s.words.copy()
    size = (words.size, steps.size, s.width)
    for device, secret in secrets.items():
        if device in s.members:
            mask, word_mask = env.reader.own_mask(secret, about, device, *size)
            steps, words = steps - mask, words - word_mask
            continue
        if not env.reader.is_key_of(secret, publics[device]):
            raise NotOpenedError(FALSE)
        for peer in {*graph[device]} & {*s.members}:
            mask, word_mask = env.reader.pair_mask(secret, device, publics[peer], peer, about, *size)
            if peer < device:  # the peer has added it
                steps, words = steps - mask, words - word_mask
            else:
                steps, words = steps + mask, words + word_mask
    try:
        check_count(words, len(s.members))
    except PeerError:
        raise NotOpenedError(FALSE) from None
    return Flat(cut(steps, s.width), words)


def secret_of(s: AmongState, graph: Mapping[str, Sequence[str]], device: str) -> bytes:
    """A device's secret of which shares were told: a member's seed, or the key of one that is missing."""
    needed, shares = threshold(len(s.names)), dict[int, int]()
    for holder in sorted({device, *graph[device]} & {*s.revealed}):
        if len(shares) < needed:
            told = pieces(s.revealed[holder], SHARE, held_by(s, graph, holder))
            shares[1 + s.names.index(holder)] = int.from_bytes(told[device], "big")
    if len(shares) < needed:
        raise NotOpenedError(UNSHARED)
    try:
        return shamir.join(shares).to_bytes(SECRET, "big")
    except (ValueError, OverflowError):
        raise NotOpenedError(FALSE) from None


def held_by(s: AmongState, graph: Mapping[str, Sequence[str]], holder: str) -> list[str]:
    """Devices of which one holds shares, itself among them, sorted."""
    return sorted({holder, *graph[holder]} & {*s.dealt})
