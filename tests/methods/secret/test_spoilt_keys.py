"""A file of public keys that cannot be read while a run goes on."""

from base64 import b64encode
from dataclasses import replace

from edge_sdk.nodes.secrets.mask_keys import read_public
from edge_sdk.nodes.secrets.masks import RunMasks, reading_again
from tests.methods.secret.parties import KEYS, PUBLIC
from tests.methods.secret.test_rules import SUMS, aggregator, refusal


def test_a_file_of_keys_that_is_spoilt_in_a_run_costs_no_sum_of_those_whose_keys_are_known(tmp_path):
    """It may be half written just then. What needs a key from it is refused, with what is wrong; the run goes on."""
    path = tmp_path / "devices.pub"
    path.write_text("".join(f"{d} {b64encode(PUBLIC[d]).decode()}\n" for d in ("d0", "d1", "d2")))
    env, s = aggregator()
    env = replace(env, masks=RunMasks(KEYS["aggregator"], reading_again([path], lambda: read_public(path)), "r"))
    with path.open("a") as file:
        file.write("dx half-a-k")
    stranger = replace(SUMS[0], names=("d0", "d1", "dx"))
    assert "devices.pub, line 4: expected a name" in refusal(env, s, stranger)[0]
    path.unlink()
    assert "devices.pub: public keys cannot be read" in refusal(env, s, stranger)[0]
    assert refusal(env, s, SUMS[0])[0] == ""
