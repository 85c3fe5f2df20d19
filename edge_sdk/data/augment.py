"""Random changes of samples while a device trains: the same movement as another strap, arm or day would show it.

A small fleet's model otherwise learns its devices' windows by heart, and leaves fine-tuning nothing to learn. Every
change is drawn anew for each sample of each mini-batch, from the generator that is passed in, or once for each of a few
copies of each sample. What is 0 is not drawn and not computed: samples are then returned as they are, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import isfinite

import numpy as np
import numpy.typing as npt

from edge_sdk.errors import UsageError

Batch = npt.NDArray[np.float32]
AXES = 3
PIECE = 64
"""Samples that noise is drawn for at once: a device has no room for that of all."""
MOST_COPIES = 64
WINDOWS, IMAGES = "windows of channels x samples", "images of channels x height x width"


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Amounts by which samples are changed: the [run.augment] table of an aggregator's settings.

    Windows are (channels, samples), images (channels, height, width).

    Attributes:
        rotation: standard deviation, in rad, of the angle by which a window's sensor is turned, about an axis that is
            uniform on the sphere. Channels are taken in threes, x y z, and all of a window's are turned alike: they
            are sensors in one housing.
        scale: standard deviation of the factor, of mean 1, that a window or image is multiplied with.
        noise: standard deviation of what is added to every single value, in the samples' own unit.
        shift: the largest share of its length by which a window is moved in time, to either side; the first or last
            value is repeated where nothing is known.
        flip: probability with which an image is mirrored, left to right.
        crop: the largest share of its height and width by which an image is moved, to any side; 0 where nothing is
            known. It is what cutting an image out of one with a border does.
        mixup: alpha of Beta(alpha + 1, alpha), of which the share of a sample is drawn that stays; the rest is another
            sample of its mini-batch, and the label is the first one's.
        copies: 0: samples are changed anew in each step. Above: so many changed copies of each sample are made once,
            and each step takes a sample itself or one of its copies, with equal chances. What a bundle's front makes of
            them is then kept as well. Mixup takes its other sample from all of the device.
    """

    rotation: float = 0.0
    scale: float = 0.0
    noise: float = 0.0
    shift: float = 0.0
    flip: float = 0.0
    crop: float = 0.0
    mixup: float = 0.0
    copies: int = 0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not (isfinite(value) and value >= 0):
                raise UsageError(f"{f.name} = {value}: a finite number, 0 (no such change) or more")
        for name in ("shift", "crop"):
            if getattr(self, name) >= 1:
                raise UsageError(f"{name} = {getattr(self, name)}: a share of the sample's size, below 1")
        if self.copies > MOST_COPIES or self.copies != int(self.copies):
            raise UsageError(f"copies = {self.copies}: a whole number, from 0 (anew in each step) to {MOST_COPIES}")
        if self.flip > 1:
            raise UsageError(f"flip = {self.flip}: a probability, at most 1")

    @property
    def changes(self) -> bool:
        """Is there anything to draw?"""
        return any(getattr(self, f.name) for f in fields(self) if f.name != "copies")

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises UsageError if samples of this shape, without the batch, cannot be augmented so."""
        kinds = {"rotation": (2, WINDOWS), "shift": (2, WINDOWS), "flip": (3, IMAGES), "crop": (3, IMAGES)}
        for name, (axes, kind) in kinds.items():
            if getattr(self, name) and len(shape) != axes:
                raise UsageError(f"{name} = {getattr(self, name)}: it is for {kind}, these samples are {shape}")
        if self.rotation and shape[0] % AXES:
            raise UsageError(f"rotation = {self.rotation}: channels come in threes (x, y, z), there are {shape[0]}")


AMOUNTS = tuple(field.name for field in fields(Augment))


def augment(x: Batch, how: Augment, random: np.random.Generator) -> Batch:
    """Samples as they might have been recorded, too.

    Args:
        x: (B, channels, samples) or (B, channels, height, width); never changed.
        how: has passed its `check` for this shape.
        random: every row draws from it in turn, so the result depends on how many rows there are.

    Returns:
        x itself where `how` changes nothing, else a new array of the same shape and type.
    """
    given = x
    if how.rotation:
        x = rotated(x, rotations(len(x), how.rotation, random))
    if how.scale:
        factor = (1 + how.scale * random.standard_normal((len(x), *[1] * (x.ndim - 1)))).astype(x.dtype)
        x = np.multiply(x, factor, out=None if x is given else x)  # a device has no room for both
    if how.noise:
        x = x.copy() if x is given else x
        for i in range(0, len(x), PIECE):
            some = x[i : i + PIECE]
            some += how.noise * random.standard_normal(some.shape, np.float32)
    if how.shift:
        most = how.shift * x.shape[2]
        x = shifted(x, np.rint(random.uniform(-most, most, len(x))).astype(np.intp))
    if how.flip:
        x = np.where((random.random(len(x)) < how.flip)[:, None, None, None], x[..., ::-1], x)
    if how.crop:
        most = how.crop * np.asarray(x.shape[2:])
        x = moved(x, np.rint(random.uniform(-most, most, (len(x), 2))).astype(np.intp))
    if how.mixup:
        x = mixed(x, how.mixup, random)
    return x


def with_copies(x: Batch, how: Augment, random: np.random.Generator) -> Batch:
    """The samples, and behind them `how.copies` changed copies of all, one after the other; see `augment`."""
    return np.concatenate([*each_copy(x, how, random)])


def each_copy(x: Batch, how: Augment, random: np.random.Generator) -> Iterator[Batch]:
    """The parts of `with_copies`, each drawn when it is asked for: the samples, then copy after copy of all of them."""
    yield x
    for _ in range(int(how.copies)):
        yield augment(x, how, random)


def rotations(count: int, deviation: float, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Rotation matrices (count, 3, 3): about axes uniform on the sphere, by normal angles of this deviation in rad.

    Rodrigues' formula: R = I + sin(angle) K + (1 - cos(angle)) K^2, where K v is the cross product of axis and v.
    """
    axis = random.standard_normal((count, AXES))
    axis /= np.linalg.norm(axis, axis=1, keepdims=True)
    angle = deviation * random.standard_normal((count, 1, 1))
    k = np.cross(axis[:, None, :], np.eye(AXES)).transpose(0, 2, 1)
    return np.asarray(np.eye(AXES) + np.sin(angle) * k + (1 - np.cos(angle)) * (k @ k))


def rotated(x: Batch, turns: npt.NDArray[np.float64]) -> Batch:
    """Every three channels of window i turned by turns[i]: (B, 3 g, samples) and (B, 3, 3)."""
    sensors = x.reshape(len(x), -1, AXES, x.shape[2])
    return np.asarray(turns.astype(x.dtype)[:, None] @ sensors).reshape(x.shape)


def shifted(x: Batch, by: npt.NDArray[np.intp]) -> Batch:
    """Window i as it was by[i] samples earlier: out[i, :, t] = x[i, :, t - by[i]], with its ends repeated."""
    time = np.clip(np.arange(x.shape[2]) - by[:, None], 0, x.shape[2] - 1)
    return np.take_along_axis(x, time[:, None, :], axis=2)


def moved(x: Batch, by: npt.NDArray[np.intp]) -> Batch:
    """Image i (channels, height, width) moved down by[i, 0] and to the right by[i, 1] pixels, with 0 behind it."""
    at = [np.arange(size) - by[:, axis, None] for axis, size in enumerate(x.shape[2:])]
    known = [(a >= 0) & (a < size) for a, size in zip(at, x.shape[2:], strict=True)]
    rows, columns = (np.clip(a, 0, size - 1) for a, size in zip(at, x.shape[2:], strict=True))
    found = np.take_along_axis(x, rows[:, None, :, None], axis=2)
    found = np.take_along_axis(found, columns[:, None, None, :], axis=3)
    inside = known[0][:, None, :, None] & known[1][:, None, None, :]
    return np.where(inside, found, np.float32(0))


def mixed(x: Batch, alpha: float, random: np.random.Generator) -> Batch:
    """Mixup (H. Zhang et al., ICLR 2018) that leaves labels as they are.

    The paper draws a ~ Beta(alpha, alpha), mixes two samples a x_i + (1 - a) x_j and takes a L(y_i) + (1 - a) L(y_j).
    As i and j change places with a and 1 - a, the mean over draws is that of L(y_i) alone with a drawn by the density
    2 a Beta(alpha, alpha), which is Beta(alpha + 1, alpha). So the label of i has the same expected gradient.
    """
    share = random.beta(alpha + 1, alpha, (len(x), *[1] * (x.ndim - 1))).astype(x.dtype)
    return share * x + (1 - share) * x[random.permutation(len(x))]
