"""Who has lied in an exchange among devices, as far as a hospital can see it.

Each device commits itself to the shares that it deals, by a hash of each, and everybody to whom it deals looks whether
they are the ones. So who tells another share than it was dealt is found out by that hash. Where a device says that what
it was dealt is false, one of the two lies, and nobody sees which. As long as a dealer is in dispute with no more
holders than may be missing, that costs nothing, and nobody is blamed. Who is in dispute with more is: else more of
those who disagree with it would have to lie than this mode can bear. One other is never enough: a hospital of two can
miss neither of them, and each is as likely to lie.

What a device has put under its masks, and whether these were the masks that follow from its secrets, nobody can look
at: a lie about that spoils the sum, and is nobody's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from edge_sdk.algebra.secure_aggregation.neighbours import neighbours, threshold
from edge_sdk.algebra.secure_aggregation.shamir import COMMITMENT, SHARE, commit
from edge_sdk.contract.environment.sharing import COMMITTED
from edge_sdk.errors import PeerError
from edge_sdk.methods.secret.among_devices.among_opening import NotOpenedError, held_by, holders
from edge_sdk.methods.secret.among_devices.among_states import AmongState
from edge_sdk.methods.secret.messages.among_messages import FALSE, Revealed, from_bits, pieces


class LieError(PeerError):
    """A device has told what is certainly false."""


def check_told(s: AmongState, graph: Mapping[str, Sequence[str]], holder: str, m: Revealed) -> None:
    """Raises LieError for a share that is not the one that the holder was dealt, ValueError for other sizes."""
    about = s.roster.digest()
    for dealer, share in pieces(m.shares, SHARE, held_by(s, graph, holder)).items():
        which = 0 if dealer in s.members else 1
        said = pieces(s.committed[dealer], COMMITTED, holders(graph, dealer))[holder]
        if commit(about, dealer, holder, which, share) != said[COMMITMENT * which :][:COMMITMENT]:
            raise LieError(f"{holder} tells a share of {dealer} that is not the one that it was dealt")


def check_disputes(s: AmongState, graph: Mapping[str, Sequence[str]]) -> None:
    """Raises NotOpenedError where a secret could not be made: too many dispute their shares of it."""
    counts = Counter(dealer for dealer, _ in disputes_of(s))
    if any(count > spare(s, graph, dealer) for dealer, count in counts.items()):
        raise NotOpenedError(FALSE)


def spare(s: AmongState, graph: Mapping[str, Sequence[str]], dealer: str) -> int:
    """Holders of a device's shares who may be missing."""
    return len(holders(graph, dealer)) - threshold(len(s.names))


def disputes_of(s: AmongState) -> list[tuple[str, str]]:
    """Disputes of an exchange: dealer and holder of each."""
    return [(dealer, holder) for holder, bits in s.disputed.items() for dealer in from_bits(s.names, bits)]


def liars_in(s: AmongState) -> dict[str, str]:
    """Device -> why it is to blame for disputes: who is in dispute with more than may be missing, and with two."""
    graph, found = neighbours(s.names, s.roster.digest()), dict[str, str]()
    for place, why in enumerate(("its shares are false, say {}", "it says that shares are false, of {}")):
        counts = Counter(dispute[place] for dispute in disputes_of(s))
        for name, count in sorted(counts.items()):
            if count > max(1, spare(s, graph, name)):
                found[name] = why.format(f"{count} of {len(graph[name])} neighbours")
    return found
