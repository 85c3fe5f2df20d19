"""The red team, small: each attack works on bare messages, and is worth little where a protection says so."""

import pytest

from benchmarks.privacy import INTEGERS, NOISE, NOISY_SUMS, PLAIN, SECRET, table


@pytest.fixture(scope="module")
def found():
    return table(devices=8, rounds=3, seed=0)


def test_bare_messages_tell_everything(found):
    """If an attack no longer works here, it is the attack that is broken, and its other columns prove nothing."""
    assert float(found["inversion"][PLAIN]) > 0.9 and float(found["membership"][PLAIN]) > 0.9
    assert found["label counts"][PLAIN] == found["held-out counts"][PLAIN] == "100%"
    assert {*found["by default"].values()} == {"0%"}, "histograms do not leave"
    assert float(found["gamma_i"][PLAIN]) > 0.999 and float(found["features"][PLAIN]) < 1e-6


def test_integers_hide_nothing(found):
    assert float(found["inversion"][INTEGERS]) > 0.8 and float(found["membership"][INTEGERS]) > 0.9
    assert float(found["gamma_i"][INTEGERS]) > 0.9 and float(found["features"][INTEGERS]) < 0.1


def test_sums_and_noise_hide_what_the_page_says(found):
    for column in (SECRET, NOISE, NOISY_SUMS):
        assert abs(float(found["inversion"][column])) < 0.3
        assert found["label counts"][column] == found["held-out counts"][column] == "0%"
    assert float(found["membership"][NOISY_SUMS]) < 0.75
    assert abs(float(found["gamma_i"][NOISE])) < 0.4 and abs(float(found["gamma_i"][NOISY_SUMS])) < 0.2
    assert found["features"][SECRET] == "refused"
