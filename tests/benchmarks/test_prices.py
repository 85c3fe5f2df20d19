"""The price list's arithmetic, and the packets of scripted devices."""

import pytest

from benchmarks.light_devices import packet, packets, publish
from benchmarks.prices import check, fit, packet_bytes, predict
from edge_sdk.errors import UsageError


def run_of(devices, parameters, hospitals=1):
    """A result of fan_in.py that follows the model: an answer takes 0.2 + 0.1 n + 0.01 P ms in a hospital."""
    behind = devices / hospitals
    names = [f"h{i + 1}" for i in range(hospitals)]
    ms = 0.2 + 0.1 * behind / 1e3 + 0.01 * parameters / 1e3
    return {
        "devices": devices,
        "hospitals": hospitals,
        "asked": [0, devices],
        "parameters": parameters,
        "cpu": {"broker": 0.04e-3 * devices, "cloud": 0.01, **dict.fromkeys(names, ms * behind / 1e3)},
        "mb": {"broker": 8 + 2 * behind / 1e3, "cloud": 200.0, **dict.fromkeys(names, 50.0)},
        "disk": {name: [0, 8e3 * behind] for name in names},
    }


def test_coefficients_are_found_again_and_predict_other_runs():
    model = fit([run_of(300, 2000), run_of(1500, 2000), run_of(300, 6000)])
    assert model["hospital, CPU ms an answer"] == pytest.approx([0.2, 0.1, 0.01])
    assert model["broker, CPU ms an answer"] == pytest.approx([0.04, 0.0, 0.0])
    for other in (run_of(800, 4000), run_of(800, 2000, hospitals=2)):
        for predicted, measured in check(model, other)["figures"].values():
            assert predicted == pytest.approx(measured)
    assert predict(model, 1000, 0)["hospital, disk MB"] == pytest.approx(8.0)


def test_no_coefficient_is_below_zero():
    falling = [run_of(n, p) for n, p in ((300, 2000), (1500, 2000), (300, 6000))]
    for one in falling:
        one["mb"] = {name: 100 - one["devices"] / 100 for name in one["mb"]}
    assert all(c >= 0 for some in fit(falling).values() for c in some)


def test_two_runs_are_too_few():
    with pytest.raises(UsageError, match="2 runs"):
        fit([run_of(300, 2000), run_of(1500, 2000)])


def test_packets_carry_the_model_and_little_else():
    question, answer = packet_bytes(1000)
    assert 4000 < question < 4300 and 4000 < answer < 4300


def test_packets_are_taken_apart_wherever_they_are_cut():
    sent = publish("a/b", bytes(200)) + packet(0x40, b"\0\7") + publish("a/b", b"")
    for cut in range(len(sent) + 1):
        buffer, found = bytearray(), []
        for part in (sent[:cut], sent[cut:]):
            buffer += part
            found += packets(buffer)
        assert [kind for kind, _ in found] == [0x30, 0x40, 0x30] and not buffer
        assert found[0][1] == b"\0\3a/b" + bytes(200) and found[1][1] == b"\0\7"
