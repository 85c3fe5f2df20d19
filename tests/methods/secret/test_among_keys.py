"""Keys of devices that open sums among themselves: who is given what, and which runs and files are refused."""

from base64 import b64encode
from dataclasses import replace

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.methods.secret.messages.among_messages import Dealt, Withdrawn
from edge_sdk.nodes.configuration.assembly import fixes_members, settings_of
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.secrets import mask_assignment
from edge_sdk.nodes.secrets.device_secrets import device_secrets
from edge_sdk.nodes.secrets.mask_keys import make_key
from edge_sdk.nodes.secrets.secret_sharing import DeviceSecrets, ToldMasks
from edge_sdk.tools.diagnostics.mask_check import check_masks
from tests.methods.secret.among import PEERS, among_run
from tests.methods.secret.among_fleet import Fleet
from tests.methods.secret.parties import KEYS


@pytest.fixture
def files(tmp_path):
    """Keys of d0 in a hospital of three devices."""
    lines = [f"d{i} {make_key(tmp_path / f'd{i}.key')}\n" for i in range(3)]
    (tmp_path / "devices.pub").write_text("".join(lines))
    (tmp_path / "top.pub").write_text(f"top {make_key(tmp_path / 'top.key')}\n")
    return DeviceKeys(key=tmp_path / "d0.key", aggregator=tmp_path / "top.pub", peers=tmp_path / "devices.pub")


def test_each_node_is_given_what_it_needs_and_the_aggregator_nothing(files):
    run = among_run()
    given = mask_assignment.for_device(run, files, "d0", 2, Allow)
    assert set(given) == {"secrets", "outputs", "allowed"} and isinstance(given["secrets"], DeviceSecrets)
    assert isinstance(mask_assignment.for_hospital(run, 2)["reader"], ToldMasks)
    assert mask_assignment.for_aggregator(run, None, {"h0": 3}) == {}
    assert fixes_members(run)
    with pytest.raises(UsageError, match=r"hospitals\.h0 = 2: a secret sum is made of 3 devices"):
        mask_assignment.for_aggregator(run, None, {"h0": 2})


def test_a_device_that_knows_no_other_takes_no_part(files):
    with pytest.raises(UsageError, match=r"\(masks.peers\)"):
        mask_assignment.for_device(among_run(), replace(files, peers=None), "d0", 2, Allow)
    files.peers.unlink()
    with pytest.raises(UsageError, match=r"devices.pub: public keys cannot be read"):
        mask_assignment.for_device(among_run(), files, "d0", 2, Allow)


def test_a_key_that_is_added_to_the_file_is_known_from_then_on(files, tmp_path):
    keeper = mask_assignment.for_device(among_run(), files, "d0", 2, Allow)["secrets"]
    assert keeper.strangers(["d1", "d2", "d9"]) == ["d9"]
    with files.peers.open("a") as file:
        file.write(f"d9 {make_key(tmp_path / 'd9.key')}\n")
    assert keeper.strangers(["d1", "d2", "d9"]) == []


ZEROS = "A" * 43 + "="
"""A public key that shares the same with everybody, in base64."""


def test_a_peers_key_that_shares_nothing_is_found_where_the_file_is_read(files):
    with files.peers.open("a") as file:
        file.write(f"d9 {ZEROS}\n")
    with pytest.raises(UsageError, match=r"devices\.pub, line 4: the key of d9 .* shares nothing"):
        mask_assignment.for_device(among_run(), files, "d0", 2, Allow)


def test_a_file_that_is_spoilt_in_a_run_costs_an_exchange_and_is_named(files, tmp_path):
    """It is read again when it has changed; a device that cannot read it withdraws, says why, and is back later."""
    files = replace(files, peers=tmp_path / "fleet.pub")
    good = "".join(f"{d} {b64encode(key).decode()}\n" for d, key in PEERS.items())
    files.peers.write_text(good)
    fleet = Fleet()
    keeper = DeviceSecrets(KEYS["d0"], device_secrets(files, "r").peers, "r")
    fleet.envs["d0"] = replace(fleet.envs["d0"], secrets=keeper)
    fleet.offers()
    files.peers.write_text(good.replace(b64encode(PEERS["d3"]).decode(), ZEROS))
    assert fleet.ask("d0", fleet.roster) == Withdrawn()
    assert len(fleet.why) == 1 and "fleet.pub, line 4: the key of d3" in fleet.why[0]
    files.peers.write_text(good + "\n")
    assert isinstance(fleet.ask("d0", fleet.roster), Dealt)


def test_the_doctor_finds_another_key_of_the_device_in_the_file(files, tmp_path):
    assert check_masks(files, tmp_path, "d0").good
    found = check_masks(files, tmp_path, "d1")
    assert found.good is False and "devices.pub has another key of d1, one of 3" in found.detail


@pytest.mark.parametrize(
    ("uploads", "why"),
    [
        ({"secret": "among-hospitals"}, "secret = 'among-hospitals': true, false or 'among-devices'"),
        ({"hospitals": 2}, "a hospital's sum is known when its devices have opened it"),
    ],
)
def test_settings_that_it_cannot_have_are_refused(uploads, why):
    with pytest.raises(UsageError, match=why):
        settings_of(among_run(uploads=uploads))


def test_a_method_that_does_not_add_up_is_refused():
    with pytest.raises(UsageError, match=r"with method fedal: devices compare outputs"):
        settings_of(among_run("fedal", settings={}))
