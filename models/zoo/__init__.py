"""Torch definitions of the models that papers and devices use; `ZOO[name]` says how to build and compile one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from edge_sdk.model.tasks.signal_spec import SignalSpec
from edge_sdk.model.tasks.task import CLASS, FORECAST, RECONSTRUCTION, STEPS
from edge_sdk.models.zoo import autoencoders, dense, features, forecasters, sequence, step_networks, vision, wearable


@dataclass(frozen=True)
class Entry:
    """One model of the zoo, and how to build it.

    Attributes:
        make: its class. input: shape of one sample. options: further arguments of the class.
        parameters: their number, as published or counted by hand.
        norm: as in Spec. max_batch: as in Spec; small where activations need more memory than a small device has.
        class_names, signal: as in Spec, for a model of this input and so many classes.
        task: kind of the task that it is for where none is stated.
    """

    make: Callable[..., nn.Module]
    input: tuple[int, ...]
    classes: int
    parameters: int
    options: Mapping[str, Any] = field(default_factory=dict)
    norm: str = "frozen"
    max_batch: int | None = None
    class_names: tuple[str, ...] = ()
    signal: SignalSpec | None = None
    task: str = CLASS

    def build(self, input: tuple[int, ...] | None = None, classes: int | None = None, **given: Any) -> nn.Module:
        """The module; `given`: arguments of its class, in place of `options`."""
        return self.make(input=input or self.input, classes=classes or self.classes, **{**self.options, **given})


IMAGE = (3, 32, 32)
KD_STAGES = {"stem": 32, "widths": (64, 128, 256)}  # the distillation literature's CIFAR networks

DAILY = (
    "brush_teeth", "climb_stairs", "comb_hair", "descend_stairs", "drink_glass", "eat_meat", "eat_soup", "getup_bed",
    "liedown_bed", "pour_water", "sitdown_chair", "standup_chair", "use_telephone", "walk",
)  # fmt: skip
"""Activities of the data that the wrist model is made for: "ADL Recognition with Wrist-worn Accelerometer" (UCI)."""
WRIST_SIGNAL = SignalSpec(("ax", "ay", "az"), ("g", "g", "g"), 32.0, 64, 32)
"""Their acceleration, with gravity."""

ZOO: dict[str, Entry] = {
    "mlp": Entry(dense.MLP, (561,), 6, 36_358),
    "wrist": Entry(wearable.Wrist, (3, 64), 14, 77_518, class_names=DAILY, signal=WRIST_SIGNAL),
    "features": Entry(features.FeatureNetwork, (3, 64), 14, 7_934, class_names=DAILY, signal=WRIST_SIGNAL),
    "features-conv": Entry(features.FeatureBranches, (3, 64), 14, 11_774, class_names=DAILY, signal=WRIST_SIGNAL),
    "autoencoder": Entry(autoencoders.WindowAutoencoder, (3, 64), 1, 23_491, signal=WRIST_SIGNAL, task=RECONSTRUCTION),
    "autoencoder-dense": Entry(autoencoders.DenseAutoencoder, (64,), 1, 20_816, task=RECONSTRUCTION),
    "forecaster": Entry(forecasters.ConvForecaster, (3, 64), 16, 53_184, signal=WRIST_SIGNAL, task=FORECAST),
    "forecaster-linear": Entry(forecasters.LinearForecaster, (3, 64), 16, 1_040, signal=WRIST_SIGNAL, task=FORECAST),
    "steps": Entry(step_networks.StepNetwork, (2, 192), 4, 13_908, {"steps": 32}, task=STEPS),
    "signal": Entry(wearable.Signal, (1, 178), 5, 20_293),
    "separable": Entry(wearable.Separable, (12, 256), 5, 19_365, max_batch=16),
    "gru": Entry(sequence.Recurrent, (32, 12), 5, 4_581, {"cell": "GRU"}),
    "gru2": Entry(sequence.Recurrent, (32, 12), 5, 10_917, {"cell": "GRU", "layers": 2}),
    "lstm": Entry(sequence.Recurrent, (32, 12), 5, 6_053, {"cell": "LSTM"}),
    "lstm2": Entry(sequence.Recurrent, (32, 12), 5, 14_501, {"cell": "LSTM", "layers": 2}),
    "transformer": Entry(sequence.Transformer, (32, 12), 5, 70_149),
    "lenet": Entry(vision.LeNet, (1, 28, 28), 10, 61_706),
    "plain": Entry(vision.Plain, IMAGE, 10, 11_162),
    "resnet20": Entry(vision.ResNet, IMAGE, 10, 272_474),
    "resnet20-bn": Entry(vision.ResNet, IMAGE, 10, 272_474, {"norm": "batch"}, norm="batch"),
    "resnet8x4": Entry(vision.ResNet, IMAGE, 10, 1_210_410, {**KD_STAGES, "blocks": (1, 1, 1)}),
    "resnet32x4": Entry(vision.ResNet, IMAGE, 100, 7_433_860, {**KD_STAGES, "blocks": (5, 5, 5)}),
    "resnet18": Entry(
        vision.ResNet,
        IMAGE,
        10,
        11_173_952,
        {"stem": 64, "widths": (64, 128, 256, 512), "blocks": (2, 2, 2, 2), "norm": "two_groups", "bias": False},
    ),
    "wrn10-1": Entry(vision.WideResNet, IMAGE, 10, 77_850, max_batch=4),
    "wrn10-2": Entry(vision.WideResNet, IMAGE, 10, 303_706, {"width": 2}),
    "wrn16-1": Entry(vision.WideResNet, IMAGE, 10, 175_066, {"depth": 16}),
}
