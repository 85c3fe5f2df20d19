"""One owner of a device's directory, and devices that cannot run: the application hears of it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.errors import AuscultError, UsageError
from edge_sdk.live.presence import directory as directories
from edge_sdk.nodes.device.descriptions import RunRefused
from tests.delivery.fleet import eventually
from tests.nodes.device.test_live_device import BEGAN, ROOT, make_device, observe_in_pieces


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "PATIENCE", 0.1)


OTHER = """
import sys
from tests.nodes.device.test_starting import *
directories.PATIENCE = 0.1
try:
    make_device(Path(sys.argv[1])).observe(np.zeros((4, 3)), time=BEGAN)
except UsageError as error:
    print(error)
"""


def test_a_second_device_of_a_directory_is_refused_when_it_opens_the_store(tmp_path: Path) -> None:
    first, second = make_device(tmp_path), make_device(tmp_path)
    observe_in_pieces(first, 10)
    for use in (lambda: second.observe(np.zeros((4, 3)), time=BEGAN), second.count_windows, second.forget):
        with pytest.raises(UsageError, match=rf"{tmp_path}.*another process works in this directory"):
            use()
    command = [sys.executable, "-c", OTHER, str(tmp_path)]
    assert (
        "another process works" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    )
    assert first.count_windows() == {"": 9}
    first.close()
    assert second.count_windows() == {"": 9}
    second.close()


def test_a_device_observes_in_the_directory_in_which_it_runs(tmp_path: Path) -> None:
    with make_device(tmp_path) as device:
        observe_in_pieces(device, 10)
        assert device.count_windows() == {"": 9}


def test_start_raises_what_stands_against_it(tmp_path: Path) -> None:
    with make_device(tmp_path / "state") as first:
        second = make_device(tmp_path / "state")
        with pytest.raises(UsageError, match="another process works in this directory"):
            second.start()
        assert first.thread is not None and not second.running.locked()
    (tmp_path / "file").write_text("")
    third = make_device(tmp_path / "state")
    third.part.directory = tmp_path / "file"  # where no directory can be
    with pytest.raises(AuscultError, match=r"file: nothing can be kept there: File exists"):
        third.start()
    third.close()


def test_what_ends_a_device_later_is_told_to_the_application(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = make_device(tmp_path)
    told: list[object] = []
    device.on_event = told.append

    def fail(_: object) -> None:
        raise OSError(30, "Read-only file system")

    device.runtime.run = fail  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR):
        device.start()
        eventually(device.finished.is_set)
        device.stop()
    assert "Read-only file system" in device.refusal and told == [RunRefused(device.refusal)]
    [line] = caplog.records
    assert line.getMessage() == device.refusal and not line.exc_info
    device.close()


def test_a_device_that_was_closed_says_so(tmp_path: Path) -> None:
    """A sensor's last samples were taken without a word, and were lost; the next label waited for them for ever."""
    device = make_device(tmp_path)
    observe_in_pieces(device, 10)
    device.close()
    device.close()
    uses = (
        lambda: device.observe(np.zeros((4, 3)), time=BEGAN + 20),
        lambda: device.label("walk", BEGAN, BEGAN + 5),
        lambda: device.forget(BEGAN, BEGAN + 5),
        *(device.count_windows, device.flush, device.questions, device.predictions, device.start),
    )
    for use in uses:
        with pytest.raises(UsageError, match="device d1 is closed"):
            use()
    assert device.predict(np.zeros((1, 3, 64), np.float32)).model == "initial"


def test_samples_that_are_no_numbers_are_refused_in_words(tmp_path: Path) -> None:
    with make_device(tmp_path) as device:
        for samples in ("abc", [[0.0, 1.0, "x"]], [[1.0], [1.0, 2.0]]):
            with pytest.raises(UsageError, match="observe: samples are no numbers"):
                device.observe(samples)
