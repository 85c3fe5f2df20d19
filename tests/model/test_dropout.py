"""Masks as a device draws them."""

import numpy as np
import pytest

from edge_sdk.model.dropout import DropSite, draw_masks, read_sites, rest_masks, write_sites

SITES = (DropSite("a", 3, 0.5, 2.0, 1.0), DropSite("b.drop", 1, 0.9, 1.0, 0.9))


def test_masks_are_the_same_on_every_machine():
    drawn = draw_masks(SITES, 4, np.random.default_rng(7))
    assert drawn.dtype == np.float32
    assert drawn.tolist() == KNOWN


KNOWN = [[2.0, 0.0, 2.0, 1.0], [2.0, 0.0, 0.0, 1.0], [0.0, 0.0, 2.0, 1.0], [2.0, 0.0, 2.0, 1.0]]


def test_what_is_kept_and_how_often():
    drawn = draw_masks(SITES, 20_000, np.random.default_rng(1))
    assert set(np.unique(drawn[:, :3])) == {0.0, 2.0} and set(np.unique(drawn[:, 3])) == {0.0, 1.0}
    assert drawn[:, :3].mean() == pytest.approx(1.0, abs=0.02) and drawn[:, 3].mean() == pytest.approx(0.9, abs=0.01)


def test_each_step_draws_anew():
    random = np.random.default_rng(1)
    first, second = (draw_masks(SITES, 50, random) for _ in range(2))
    assert not np.array_equal(first, second)


def test_nothing_is_dropped_at_rest():
    assert rest_masks(SITES, 2).tolist() == [[1.0, 1.0, 1.0, np.float32(0.9)]] * 2


def test_sites_come_back_from_a_manifest():
    assert read_sites(write_sites(SITES)) == SITES


@pytest.mark.parametrize(
    "change", [{"columns": 0}, {"probability": 0.0}, {"probability": 1.5}, {"kept": float("nan")}, {"rest": 1e999}]
)
def test_sites_that_make_no_sense(change):
    with pytest.raises(ValueError, match="no place for dropout"):
        read_sites([{**write_sites(SITES)[0], **change}])
