"""Augmentation against its definition, and what it leaves alone."""

import numpy as np
import pytest

from edge_sdk.data.augment import Augment, augment, mixed, moved, rotations, shifted, with_copies
from edge_sdk.errors import UsageError

X = np.random.default_rng(0).normal(size=(40, 6, 32)).astype(np.float32)
PICTURES = np.random.default_rng(2).normal(size=(40, 3, 8, 6)).astype(np.float32)
MANY = np.random.default_rng(1).normal(size=(4000, 3, 8)).astype(np.float32)


def generator():
    return np.random.default_rng(7)


def test_nothing_is_the_identity_to_the_bit():
    assert augment(X, Augment(), generator()) is X


@pytest.mark.parametrize(
    ("x", "how"),
    [
        *(
            (X, {name: amount})
            for name, amount in dict(rotation=0.5, scale=0.2, noise=0.1, shift=0.3, mixup=0.4).items()
        ),
        *(
            (PICTURES, {name: amount})
            for name, amount in dict(scale=0.2, noise=0.1, flip=0.5, crop=0.2, mixup=0.4).items()
        ),
    ],
)
def test_each_change_is_drawn_and_leaves_its_input(x, how):
    before = x.copy()
    found = augment(x, Augment(**how), generator())
    assert found.dtype == np.float32 and found.shape == x.shape and (found != x).any()
    assert found.tobytes() == augment(x, Augment(**how), generator()).tobytes()
    assert found.tobytes() != augment(x, Augment(**how), np.random.default_rng(8)).tobytes()
    assert x.tobytes() == before.tobytes()


def test_a_rotation_keeps_norms_and_angles_of_both_sensors():
    found = augment(X, Augment(rotation=0.5), generator())
    for sensor in (slice(0, 3), slice(3, 6)):
        a, b = X[:, sensor], found[:, sensor]
        np.testing.assert_allclose(np.einsum("nct,ncu->ntu", b, b), np.einsum("nct,ncu->ntu", a, a), atol=1e-4)


def test_both_sensors_of_a_window_are_turned_alike():
    twice = np.concatenate([X[:, :3], X[:, :3]], axis=1)
    found = augment(twice, Augment(rotation=0.5), generator())
    np.testing.assert_array_equal(found[:, :3], found[:, 3:])


def test_rotations_are_proper_and_by_the_angle_that_was_drawn():
    turns = rotations(4000, 0.25, generator())
    np.testing.assert_allclose(turns @ turns.transpose(0, 2, 1), np.broadcast_to(np.eye(3), turns.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(turns), 1, atol=1e-12)
    angle = np.arccos(np.clip((np.trace(turns, axis1=1, axis2=2) - 1) / 2, -1, 1))
    assert abs(np.sqrt((angle**2).mean()) - 0.25) < 0.01
    axis = np.stack([turns[:, 2, 1] - turns[:, 1, 2], turns[:, 0, 2] - turns[:, 2, 0], turns[:, 1, 0] - turns[:, 0, 1]])
    axis /= np.linalg.norm(axis, axis=0)
    assert np.abs(axis.mean(1)).max() < 0.05 and np.abs((axis**2).mean(1) - 1 / 3).max() < 0.02


def test_scale_is_one_factor_for_each_window():
    factor = augment(MANY, Augment(scale=0.15), generator()) / MANY
    np.testing.assert_allclose(factor, np.broadcast_to(factor[:, :1, :1], factor.shape), rtol=1e-5)
    assert abs(factor[:, 0, 0].mean() - 1) < 0.01 and abs(factor[:, 0, 0].std() - 0.15) < 0.01


def test_noise_has_its_deviation_and_no_memory():
    added = (augment(MANY, Augment(noise=0.1), generator()) - MANY).astype(np.float64)
    assert abs(added.mean()) < 1e-3 and abs(added.std() - 0.1) < 1e-3
    assert abs((added[:, :, 1:] * added[:, :, :-1]).mean()) < 1e-4


def test_a_shift_moves_whole_windows_and_repeats_their_ends():
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    assert shifted(x, np.array([2]))[0, 0].tolist() == [0, 0, 0, 1, 2, 3]
    assert shifted(x, np.array([-1]))[0, 0].tolist() == [1, 2, 3, 4, 5, 5]
    ramp = np.tile(np.arange(32, dtype=np.float32), (500, 1, 1))
    by = 16 - augment(ramp, Augment(shift=0.25), generator())[:, 0, 16]
    assert set(by) == set(range(-8, 9))


def test_images_are_mirrored_left_to_right_as_often_as_asked():
    found = augment(PICTURES, Augment(flip=0.25), generator())
    turned = [(f == x[..., ::-1]).all() for f, x in zip(found, PICTURES, strict=True)]
    assert all(t or (f == x).all() for t, f, x in zip(turned, found, PICTURES, strict=True))
    assert 0 < sum(turned) < 20


def test_a_crop_moves_whole_images_with_nothing_behind_them():
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    assert moved(x, np.array([[1, 0]]))[0, 0].tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert moved(x, np.array([[0, -1]]))[0, 0].tolist() == [[2, 3, 0], [5, 6, 0], [8, 9, 0]]
    many = np.ones((300, 1, 10, 20), np.float32)
    left = augment(many, Augment(crop=0.2), generator())[:, 0].any(2).sum(1)
    assert set(left) == {8, 9, 10}


def test_mixup_has_the_mean_gradient_of_the_papers_two_labels():
    """Linear scores and a squared loss: the expectation over draws, against Beta(alpha, alpha) and both labels."""
    alpha, x, y = 0.6, np.array([[1.0], [3.0]], np.float32), np.array([0.0, 5.0])
    random, count = generator(), 4000
    ours = [((x_ - y[:, None]) * x_).mean() for x_ in (mixed(x, alpha, random) for _ in range(count))]
    a = np.random.default_rng(0).beta(alpha, alpha, 200_000)
    z = a * 1.0 + (1 - a) * 3.0
    pairs = (a * (z - 0.0) + (1 - a) * (z - 5.0)) * z
    # half of all permutations of two samples leave each with itself
    alone = np.mean([(1.0 - 0.0) * 1.0, (3.0 - 5.0) * 3.0])
    assert abs(np.mean(ours) - (alone + pairs.mean()) / 2) < 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        *(dict(rotation=-1.0), dict(noise=float("nan")), dict(shift=1.0), dict(crop=1.0), dict(flip=1.1)),
        *(dict(copies=-1), dict(copies=2.5), dict(copies=65)),
    ],
)
def test_settings_say_what_is_wrong(wrong):
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} = "):
        Augment(**wrong)


def test_copies_are_changed_samples_behind_the_samples_themselves():
    how = Augment(rotation=0.3, noise=0.1, copies=2)
    found, random = with_copies(MANY[:9], how, generator()), generator()
    wanted = [MANY[:9], augment(MANY[:9], how, random), augment(MANY[:9], how, random)]
    assert found.tobytes() == np.concatenate(wanted).tobytes()
    assert not Augment(copies=2).changes and how.changes


def test_shapes_that_cannot_be_augmented_are_refused():
    with pytest.raises(UsageError, match="in threes"):
        Augment(rotation=0.1).check((4, 64))
    with pytest.raises(UsageError, match=r"shift = 0\.1: .*channels x samples"):
        Augment(shift=0.1).check((3, 8, 8))
    with pytest.raises(UsageError, match=r"flip = 0\.5: .*height x width"):
        Augment(flip=0.5).check((4, 64))
    Augment(noise=0.1, flip=0.5, crop=0.1, mixup=0.2).check((3, 8, 8))
    Augment().check((3, 8, 8))
    Augment(noise=0.1).check((4, 64))
