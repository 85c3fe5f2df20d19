"""A node with a trusted key takes no run but its operator's, whatever broker and hospital hand out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.live.loop.runtime import Runtime
from edge_sdk.live.presence.directory import decode_run, encode_run, is_same_training
from edge_sdk.nodes.policy.trust import Trust, draw_number
from edge_sdk.replay.nodes.broker import LocalBroker
from edge_sdk.wire.signatures import SignatureError, Signer, make_private_key, sign_run
from tests.delivery import roles
from tests.delivery.fleet import eventually
from tests.delivery.live import Net, playing

pytest.importorskip("cryptography", reason="the extra `secure` is not installed")
SIGNER, FOREIGN = Signer(make_private_key()), Signer(make_private_key())
PLAIN = Run(id="count", method="count", rounds=10**6, bundle="ab" * 32, settings={"eta": 0.5, "deep": {"b": 1, "a": 2}})
SIGNED = sign_run(PLAIN, SIGNER, 2000)


def trust_in(directory: Path) -> Trust:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "trusted.pem").write_bytes(SIGNER.public_pem)
    return Trust(directory / "trusted.pem", directory / "state")


def parent_of(net: Net, run: Run, name: str = "agg") -> Runtime:
    return net.node(name, roles.AGGREGATOR, None, ("a",), given={"size": 4}, run=run)


BAD = {
    "unsigned": (PLAIN, "is not signed"),
    "foreign": (sign_run(PLAIN, FOREIGN, 2001), "is signed by the key"),
    "another model": (replace(SIGNED, bundle="cd" * 32), "was changed after the key"),
    "another setting": (replace(SIGNED, settings={"eta": 0.6}), "was changed after the key"),
    "a later number": (replace(SIGNED, signed={**SIGNED.signed, "number": 9000}), "was changed after the key"),
    "old": (sign_run(PLAIN, SIGNER, 999), "is an old one: it was signed as number 999, taken was 1000 already"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_hospital_that_hands_out_another_run_is_refused_and_hears_why(
    tmp_path: Path, quick: LocalBroker, kind: str
) -> None:
    run, why = BAD[kind]
    trust, net = trust_in(tmp_path / "key"), Net(tmp_path, quick.url)
    trust.check_run(sign_run(PLAIN, SIGNER, 1000))
    device = net.device("a", "agg", check_run=trust.check_run)
    parent = parent_of(net, run)
    with playing(parent, device):
        eventually(lambda: why in device.refusal, 60)
        eventually(lambda: why in parent.presence.refusals.get("a", ""), 60)
        assert device.current is None


def test_a_signed_run_is_taken_and_remembered(tmp_path: Path, quick: LocalBroker) -> None:
    trust, net = trust_in(tmp_path / "key"), Net(tmp_path, quick.url)
    device = net.device("a", "agg", check_run=trust.check_run)
    with playing(parent_of(net, SIGNED), device):
        eventually(lambda: device.current == SIGNED, 60)
    with pytest.raises(SignatureError, match="is an old one"):
        trust.check_run(sign_run(PLAIN, SIGNER, 1999))
    trust.check_run(SIGNED)


def test_a_run_that_is_under_way_is_left_when_its_description_is_changed(tmp_path: Path, quick: LocalBroker) -> None:
    """Its aggregator signs it anew whenever it is started; somebody else cannot."""
    trust, net = trust_in(tmp_path / "key"), Net(tmp_path, quick.url)
    device = net.device("a", "agg", check_run=trust.check_run)
    with playing(device):
        with playing(parent_of(net, SIGNED)):
            eventually(lambda: device.current == SIGNED, 60)
        again = sign_run(PLAIN, SIGNER, 2001)
        with playing(parent_of(net, again)):
            eventually(lambda: device.current == again, 60)
        with playing(parent_of(net, PLAIN)):
            eventually(lambda: "is not signed" in device.refusal, 60)
            assert device.current is None


def test_how_long_is_waited_is_not_signed() -> None:
    run = replace(SIGNED, deadline=3.0, measured=True, quorum=1)
    assert is_same_training(run, PLAIN) and decode_run(encode_run(run)) == run


def test_a_signature_stays_good_on_its_way(tmp_path: Path) -> None:
    trust_in(tmp_path).check_run(decode_run(encode_run(SIGNED)))
    assert b"signed" not in encode_run(PLAIN)


@pytest.mark.parametrize("signed", [{"number": True}, {"signature": 5}, {"signature": "zz"}, {"number": "7"}])
def test_nonsense_in_place_of_a_signature_is_refused(tmp_path: Path, signed: dict[str, object]) -> None:
    with pytest.raises(SignatureError, match="was changed"):
        trust_in(tmp_path).check_run(replace(SIGNED, signed={**SIGNED.signed, **signed}))


def test_a_trusted_key_without_the_library_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust_in(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"trusted_key: signatures need a library: pip install cryptography"):
        Trust(tmp_path / "trusted.pem", tmp_path)
    Trust(None, tmp_path).check_run(PLAIN)


@pytest.mark.parametrize("content", [b"", b"no key", SIGNER.public_pem[:40]])
def test_a_file_that_is_no_key_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "k.pem").write_bytes(content)
    with pytest.raises(UsageError, match="trusted_key: is no PEM file of a public key"):
        Trust(tmp_path / "k.pem", tmp_path)


def test_a_damaged_note_of_what_was_taken_lets_nothing_in(tmp_path: Path) -> None:
    trust = trust_in(tmp_path)
    trust.check_run(SIGNED)
    trust.path.write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        trust.check_run(SIGNED)


def test_numbers_grow_also_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Callable[[], int] = lambda: 5_000_000  # noqa: E731
    first = draw_number(tmp_path / "signed")
    monkeypatch.setattr("edge_sdk.nodes.policy.trust.time.time_ns", clock)
    assert draw_number(tmp_path / "signed") == first + 1
