"""Messages of an exchange among devices: a closed form, and what does not fit the exchange is not answered."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from edge_sdk.algebra.secure_aggregation import shamir
from edge_sdk.algebra.secure_aggregation.shamir import SHARE
from edge_sdk.contract.environment.sharing import SEALED, TAG
from edge_sdk.methods.secret.among_devices.among_opening import NotOpenedError, opened
from edge_sdk.methods.secret.among_devices.among_states import REVEALING, AmongState
from edge_sdk.methods.secret.messages.among_messages import (
    Agreement,
    Confirmed,
    Dealt,
    KeysOffer,
    NoSum,
    Revealed,
    Survivors,
    Withdrawn,
    from_bits,
    to_bits,
    to_octets,
)
from edge_sdk.methods.secret.messages.messages import SumForm
from edge_sdk.methods.shared.aggregation.gather import Nobody
from edge_sdk.nodes.secrets.secret_sharing import ToldMasks
from tests.methods.problems import DEVICES, LAYOUT
from tests.methods.secret.among_fleet import TICKET, Fleet

GOOD = Fleet().upto(2)
BYTES = np.zeros(1, np.uint8)
BAD = [
    replace(GOOD.roster, ticket=0),
    replace(GOOD.roster, names=GOOD.roster.names[::-1]),
    replace(GOOD.roster, names=("d0", "d1", "d2", "d3", "d4", "\x1b[2J")),
    replace(GOOD.roster, publics=GOOD.roster.publics[1:]),
    replace(GOOD.passed("d0"), ticket=0),
    replace(GOOD.passed("d0"), width=33),
    replace(GOOD.passed("d0"), sealed=BYTES),
    replace(GOOD.passed("d0"), dealers=BYTES[:0]),
    KeysOffer(GOOD.roster.form, BYTES),
    Dealt(BYTES),
    Survivors(0, BYTES),
    Survivors(1, BYTES[:0]),
    Confirmed(BYTES),
    Agreement(1, BYTES, BYTES),
    Agreement(0, BYTES, BYTES[:0]),
    Revealed(BYTES),
    NoSum(Nobody(), 3, "because"),
    NoSum(Nobody(), -1, "few"),
]


@pytest.mark.parametrize("m", BAD)
def test_what_is_no_message_of_an_exchange_is_refused(m):
    with pytest.raises(ValueError, match=r"."):
        m.check(LAYOUT)


def test_bits_of_other_devices_are_refused():
    assert from_bits(DEVICES, to_bits(DEVICES, ("d1", "d5"))) == ("d1", "d5")
    for bits in (np.array([1], np.uint8), np.zeros(2, np.uint8), BYTES[:0]):
        with pytest.raises(ValueError, match="devices"):
            from_bits(DEVICES, bits)


WRONG = [
    lambda f: replace(f.passed("d0"), sealed=f.passed("d0").sealed[SEALED:]),
    lambda f: replace(f.passed("d0"), dealers=np.zeros(2, np.uint8)),
    lambda f: replace(f.passed("d0"), ticket=TICKET + 1),
    lambda f: replace(f.survivors(), members=np.full(1, 255, np.uint8)),
    lambda f: replace(f.agreement("d0", {}), words=np.zeros(TAG, np.uint8)),
]


@pytest.mark.parametrize("make", WRONG)
def test_a_question_that_does_not_fit_the_exchange_is_not_answered(make):
    fleet = Fleet().upto(2)
    assert fleet.ask("d0", make(fleet)) == Withdrawn()


def shares_of(secrets):
    """What two devices tell of the secrets of three."""
    told = [shamir.split(int.from_bytes(secret, "big"), [7], (2, 3)) for secret in secrets]
    return {name: to_octets([one[i].to_bytes(SHARE, "big") for one in told]) for i, name in ((2, "d1"), (3, "d2"))}


def test_a_key_with_which_nobody_shares_a_mask_opens_no_sum():
    """Two liars, one of whom has offered such a key, and the third device is missing: its key is told."""
    private = X25519PrivateKey.generate()
    publics = {"d0": bytes(32) + private.public_key().public_bytes_raw(), "d1": bytes(64), "d2": bytes(64)}
    words = np.zeros(1, np.uint64)
    s = AmongState(None, REVEALING, 1, SumForm("Scores"), 8, members=("d1", "d2"), words=words)
    s = replace(s, offers={name: np.frombuffer(key, np.uint8) for name, key in publics.items()})
    s = replace(
        s, dealt=dict.fromkeys(publics), revealed=shares_of([private.private_bytes_raw(), bytes(32), bytes(32)])
    )
    with pytest.raises(NotOpenedError, match="false"):
        opened(SimpleNamespace(reader=ToldMasks()), s)
