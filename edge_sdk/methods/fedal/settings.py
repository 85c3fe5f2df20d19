"""What FedAL's nodes are given: hyper-parameters, the variants made of them, and what its theorems say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge_sdk.contract.environment.kernels import Inputs
from edge_sdk.contract.method import NodeEnv
from edge_sdk.contract.search import OneOf, Range, SearchSpace
from edge_sdk.errors import UsageError
from edge_sdk.methods.fedal import discriminator
from edge_sdk.methods.fedal.discriminator import DiscriminatorKernels
from edge_sdk.methods.fedal.distillation import Labels
from edge_sdk.methods.fedal.memory import KINDS
from edge_sdk.methods.shared.training.local import above_zero, one_of, zero_or_more

TARGETS = ("others", "all")


MEAN, MEDIAN = CONSENSUS = ("mean", "median")


AVERAGING = ("none", "after_local", "after_transfer")


STARTS = ("bundle", "own")


LOCAL, PUBLIC, DISCRIMINATOR, START = 1, 2, 3, 4  # purposes of randomness


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyper-parameters; the defaults are the paper's.

    Attributes:
        tau: steps of the local stage, and exchanges of the transfer stage.
        eta_l, eta_d: step sizes of devices and discriminator in round 0. decay_l, decay_d: their factors per round.
        optimiser, optimiser_d: "adam" or "sgd".
        fresh_optimiser: a device's optimiser forgets at the start of each stage.
        batch, public_batch: inputs per step of the local and of the transfer stage.
        kd: weight of K(consensus, own) in the transfer stage.
        al: weight of the adversarial term U_n; 0: there is no discriminator, and nothing of it on the wire.
        lf_local, lf_transfer: weights of the less-forgetting terms of the two stages.
        temperature_d: of the discriminator's input. temperature_kd: of the consensus. temperature_lf: of the
            less-forgetting terms; None: temperature_kd.
        target: consensus of the "others" (leave one out), or of "all" (Algorithm 1 as it is printed).
        consensus: of each public input and class over the devices: their "mean", as in the paper, or their "median",
            which a minority of devices cannot carry away. A median cannot be rebuilt without the device itself, so it
            goes with target = "all".
        lf_skip_first: no less-forgetting in the first local stage, which has nothing worth remembering.
        clip: longest feedback g_n(x) for one input; 0: any.
        widths: of the discriminator's hidden layers.
        start: theta_n^{0,0}: the parameters of the "bundle", or each device's "own" of the same law: right where the
            bundle's are random, wrong where they are trained.
        features: FedProto on public inputs: the width of the features that are exchanged in place of logits, and drawn
            together by their mean squared distance; all devices have as many. Its paper's tau is 1. 0: logits.
        averaging: parameters are averaged within equal architectures: "none", "after_local" (FedDF) or
            "after_transfer". Only then does a model leave its device.
        measure: rounds between measurements of forgetting (own and held-out accuracy around each stage); 0: none.
    """

    tau: int = 5
    eta_l: float = 1e-3
    eta_d: float = 1e-4
    decay_l: float = 1.0
    decay_d: float = 1.0
    optimiser: str = "adam"
    optimiser_d: str = "adam"
    fresh_optimiser: bool = False
    batch: int = 32
    public_batch: int = 32
    kd: float = 1.0
    al: float = 1.0
    lf_local: float = 1.0
    lf_transfer: float = 1.0
    temperature_d: float = 2.0
    temperature_kd: float = 1.0
    temperature_lf: float | None = None
    target: str = "others"
    consensus: str = MEAN
    lf_skip_first: bool = False
    clip: float = 0.0
    widths: tuple[int, ...] = (32, 256)
    start: str = "bundle"
    features: int = 0
    averaging: str = "none"
    measure: int = 0

    def __post_init__(self) -> None:
        above_zero(self, "eta_l", "eta_d")
        zero_or_more(self, "kd", "al", "lf_local", "lf_transfer", "clip", "measure", "features")
        if self.features and (self.al or self.lf_local or self.lf_transfer):
            raise UsageError("features: these terms compare probabilities; set al, lf_local and lf_transfer to 0")
        one_of(self, KINDS, "optimiser", "optimiser_d")
        one_of(self, TARGETS, "target")
        one_of(self, CONSENSUS, "consensus")
        if self.consensus == MEDIAN and self.target != "all":
            raise UsageError('consensus = "median": a device cannot take itself out of a median; set target = "all"')
        one_of(self, AVERAGING, "averaging")
        one_of(self, STARTS, "start")
        for key in ("tau", "batch", "public_batch"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key} = {getattr(self, key)}: at least 1")
        for key in ("decay_l", "decay_d"):
            if not 0 < getattr(self, key) <= 1:
                raise UsageError(f"{key} = {getattr(self, key)}: a factor per round, above 0 and at most 1")
        for key in ("temperature_d", "temperature_kd", "temperature_lf"):
            value = getattr(self, key)
            if value is not None and not 1 <= value < float("inf"):
                raise UsageError(f"{key} = {value}: a temperature is 1 or more")
        if any(width < 1 for width in self.widths):
            raise UsageError(f"widths = {self.widths}: a hidden layer has at least 1 unit")

    @property
    def memory_temperature(self) -> float:
        """E of the less-forgetting terms."""
        return self.temperature_kd if self.temperature_lf is None else self.temperature_lf

    def width(self, classes: int) -> int:
        """Numbers that are exchanged for one public input."""
        return self.features or classes

    def eta(self, round: int) -> float:
        """eta_l^t."""
        return float(self.eta_l * self.decay_l**round)

    def ascent(self, round: int) -> float:
        """eta_d^t."""
        return float(self.eta_d * self.decay_d**round)


SEARCH: SearchSpace = {
    "tau": OneOf((1, 5, 10, 20)),
    "eta_l": Range(1e-4, 1e-2),
    "eta_d": Range(1e-5, 1e-2),
    "batch": OneOf((16, 32, 64)),
    "public_batch": OneOf((16, 32, 64)),
    "kd": Range(0.1, 10.0),
    "al": Range(0.1, 10.0),
    "lf_local": Range(0.1, 10.0),
    "lf_transfer": Range(0.1, 10.0),
}


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given.

    Attributes:
        classes: K.
        private, labels: device: its own inputs behind its model, and their classes (samples,).
        public: device: the public inputs behind its model; the same inputs in the same order on all devices. With the
            setting `features`, "logits" are what its model thinks of them one layer before.
        architecture: device: equal where parameters may be averaged.
        discriminator: aggregator: its kernels, in numpy or on a GPU.
    """

    settings: Settings = field(default_factory=Settings)
    classes: int = 0
    private: Inputs | None = None
    labels: Labels | None = None
    public: Inputs | None = None
    architecture: str = ""
    discriminator: DiscriminatorKernels = discriminator.KERNELS


FEDMD: Mapping[str, Any] = {"al": 0.0, "lf_local": 0.0, "lf_transfer": 0.0}


FEDDF: Mapping[str, Any] = {**FEDMD, "averaging": "after_local"}


VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "fedmd": {**FEDMD, "tau": 1},
    "fedmd-lf": {"al": 0.0},
    "fedmd-al": {"lf_local": 0.0, "lf_transfer": 0.0},
    "fedal": {},
    "feddf": {**FEDDF, "tau": 10},
    "feddf-al": {"averaging": "after_local", "tau": 15},
}
"""Names of the paper's methods -> their settings, with the tau that it tuned for each (FedMD-LF, FedMD-AL: FedAL's)."""


def warnings(settings: Settings, sizes: Mapping[str, int]) -> Sequence[str]:
    """Settings that run, but do nothing, or what the paper does not cover."""
    said = []
    if settings.averaging != "none" and settings.start == "own":
        said.append('averaging with start = "own": the first average is of models that have nothing in common')
    if settings.tau == 1 and (settings.lf_local or settings.lf_transfer):
        said.append("tau = 1: the less-forgetting terms are zero where each stage begins, so they do nothing")
    if not settings.kd and not settings.al:
        said.append("kd = 0 and al = 0: nothing is learnt from the other devices")
    if settings.averaging == "after_local" and settings.al and sum(sizes.values()) < 3:
        said.append("averaging after the local stage: models that are equal cannot be told apart by a discriminator")
    return said
