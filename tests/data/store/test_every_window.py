"""All windows of a store for a model that reconstructs them: labelled or not, thinned, with what is abnormal kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.data.recording import StoreLimits
from edge_sdk.data.store import every_window as every
from edge_sdk.data.store.every_window import every_window
from edge_sdk.data.store.frozen import freeze
from edge_sdk.data.store.sample_store import SampleStore
from tests.data.store_making import BEGAN, SHAPE, make_windows

pytestmark = pytest.mark.usefixtures("closed_after")


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    made = SampleStore(tmp_path, SHAPE, StoreLimits(megabytes=2, held_out=0.0))
    made.add(make_windows(range(100), recording=50))
    made.label("walk", BEGAN + 10, BEGAN + 20)
    made.label("Fall", BEGAN + 40.5, BEGAN + 41.2)  # no window lies within it, and two have a moment of it
    made.label("fault", BEGAN + 60.95, BEGAN + 60.99)  # between two windows
    return made


def test_a_window_with_an_abnormal_moment_is_abnormal_and_all_others_stay(store: SampleStore) -> None:
    found = every_window(store, ("fall", "fault"))
    assert len(found.ids) == 100 and [at for at, label in enumerate(found.labels) if label == "fall"] == [40, 41]
    assert found.labels[12] == "walk" and found.labels[60] == "" and "fault" not in found.labels
    assert {*every_window(store, ()).labels} == {"", "walk"}, "nothing is abnormal"
    assert every_window(store, ("fault", "walk")).labels[12] == "walk"


def test_many_are_thinned_and_what_is_rare_stays(store: SampleStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(every, "MOST", 20)
    found = every_window(store, ("fall",))
    assert len(found.ids) == 22 and found.labels.count("fall") == 2 and (found.ended[1:] > found.ended[:-1]).all()
    monkeypatch.setattr(every, "OF_LATEST", 50)
    assert (every_window(store, ("fall",)).began >= BEGAN + 50).all(), "of the latest"


def test_a_run_has_a_copy_of_them_that_stays(store: SampleStore, tmp_path: Path) -> None:
    made = freeze(store, tmp_path, "r", lambda x: x, lambda own: every_window(own, ("fall",)))
    assert len(made.x) == 100 and made.chosen > 0 and {*made.labels} == {"", "walk", "fall"}
    store.add(make_windows(range(100, 120), recording=50))
    again = freeze(store, tmp_path, "r", lambda x: x, lambda own: every_window(own, ("fall",)))
    assert again.labels == made.labels and (again.x == made.x).all()
