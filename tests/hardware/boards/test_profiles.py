"""Profiles: every figure has a source, unknown is unknown, and boards are told by their device tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.errors import UsageError
from edge_sdk.hardware.boards.detect import detect_board
from edge_sdk.hardware.boards.profile import FIGURES, FOLDER, find_profile, load_profiles, read_profile
from tests.hardware.boards.fake_root import lay

WANTED = {
    "generic-aarch64",
    "generic-x86_64",
    "jetson-nano",
    "linux-watch",
    "raspberry-pi-3b-plus",
    "raspberry-pi-4",
    "raspberry-pi-5",
    "raspberry-pi-cm4",
    "raspberry-pi-zero-2w",
}


def test_every_profile_has_every_figure_and_says_where_it_was_read() -> None:
    profiles = load_profiles()
    assert set(profiles) == WANTED
    for profile in profiles.values():
        assert set(profile.figures) == set(FIGURES)
        assert all(len(figure.source) > 10 for figure in profile.figures.values())


def test_busy_boards_take_more_than_idle_ones_and_half_the_cores_half_of_that() -> None:
    known = [p for p in load_profiles().values() if p.estimate_watts(1) is not None]
    assert {p.key for p in known} >= {"raspberry-pi-3b-plus", "raspberry-pi-4", "raspberry-pi-5"}
    for profile in known:
        idle, busy = profile.value_of("idle_watts"), profile.value_of("busy_watts")
        assert idle is not None and busy is not None and 0 < idle < busy
        assert profile.estimate_watts(2) == pytest.approx((idle + busy) / 2)
        assert profile.estimate_watts(9) == pytest.approx(busy)


def test_no_watts_are_made_up_for_a_board_without_figures() -> None:
    assert find_profile("linux-watch").estimate_watts(1) is None


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("Raspberry Pi Zero 2 W Rev 1.0", "raspberry-pi-zero-2w"),
        ("Raspberry Pi Zero 2 Rev 1.0", "raspberry-pi-zero-2w"),
        ("Raspberry Pi Zero W Rev 1.1", "generic-aarch64"),
        ("Raspberry Pi 3 Model B Plus Rev 1.3", "raspberry-pi-3b-plus"),
        ("Raspberry Pi 3 Model B Rev 1.2", "generic-aarch64"),
        ("Raspberry Pi 4 Model B Rev 1.5", "raspberry-pi-4"),
        ("Raspberry Pi 400 Rev 1.0", "generic-aarch64"),
        ("Raspberry Pi 5 Model B Rev 1.0", "raspberry-pi-5"),
        ("Raspberry Pi 500 Rev 1.0", "generic-aarch64"),
        ("Raspberry Pi Compute Module 4 Rev 1.1", "raspberry-pi-cm4"),
        ("Raspberry Pi Compute Module 4S Rev 1.0", "generic-aarch64"),
        ("NVIDIA Jetson Nano Developer Kit", "jetson-nano"),
    ],
)
def test_boards_are_told_by_their_device_tree(tmp_path: Path, model: str, key: str) -> None:
    lay(tmp_path, {"proc/device-tree/model": f"{model}\0"})
    found = detect_board(tmp_path, "aarch64")
    assert found.profile.key == key
    assert model in found.reason


def test_a_board_is_also_told_by_cpuinfo(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/cpuinfo": "processor\t: 0\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0"})
    assert detect_board(tmp_path, "arm64").profile.key == "raspberry-pi-5"


def test_a_machine_that_says_nothing_is_generic_and_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    assert detect_board(tmp_path, "AMD64").profile.key == "generic-x86_64"
    with pytest.raises(UsageError, match="riscv64"):
        detect_board(tmp_path, "riscv64")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("value = 4\n", 'value = "four"\n', "figures.cores"),
        ("value = 4\n", "value = -4\n", "figures.cores"),
        ("value = 4\n", "value = true\n", "figures.cores"),
        ("[figures.cores]", "[figures.kernels]", "kernels"),
        ("\nsource =", "\nreference =", "source is missing"),
        ('name = "', 'label = "', "name = None"),
        ("models = [", "models = 3\nmodel = [", "models = 3"),
        ("name = ", "name  ", "no profile of a board"),
    ],
)
def test_a_wrong_profile_is_refused_by_name(tmp_path: Path, old: str, new: str, said: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text((FOLDER / "raspberry-pi-4.toml").read_text().replace(old, new))
    with pytest.raises(UsageError, match=said) as caught:
        read_profile(file)
    assert "own.toml" in str(caught.value)
    with pytest.raises(UsageError, match="raspberry-pi-4"):
        find_profile("raspbery-pi-4")
