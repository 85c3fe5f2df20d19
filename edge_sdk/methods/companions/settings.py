"""Settings of a method with companions beside it, and what its nodes are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edge_sdk.algebra import prox
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.environment.kernels import Inputs
from edge_sdk.contract.method import NodeEnv
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedslr_consensus
from edge_sdk.methods.fedal import discriminator
from edge_sdk.methods.fedal import settings as fedal_settings
from edge_sdk.methods.fedal.discriminator import DiscriminatorKernels
from edge_sdk.methods.fedal.distillation import Labels
from edge_sdk.methods.fedslr import settings as fedslr_settings
from edge_sdk.methods.fedslr_consensus import RIGOROUS
from edge_sdk.methods.shared.aggregation.server import Svt
from edge_sdk.methods.shared.training.local import zero_or_more

GLOBAL = "~"  # the global model among FedAL's hospitals; no node can be called that


FOREVER = 2**31


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Hyper-parameters of a method with companions beside it.

    Attributes:
        shared: of the method with the global model.
        outputs: of FedAL. Parameters are not averaged here.
        into: weight of the companions' pull on the global model; 0: they learn from it, it does not learn from them.
    """

    shared: fedslr_settings.Settings = field(default_factory=fedslr_settings.Settings)
    outputs: fedal_settings.Settings = field(default_factory=fedal_settings.Settings)
    into: float = 0.0

    def __post_init__(self) -> None:
        zero_or_more(self, "into")
        if self.outputs.averaging != "none" or self.outputs.features:
            raise UsageError("outputs: companions exchange logits; averaging is 'none' and features is 0")

    @property
    def features(self) -> int:
        return 0

    @property
    def public_batch(self) -> int:
        return self.outputs.public_batch


@dataclass(frozen=True, kw_only=True)
class ConsensusSettings(Settings):
    """Hyper-parameters of fedslr-b+fedal."""

    shared: fedslr_consensus.Settings = field(default_factory=fedslr_consensus.Settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared.cloud == RIGOROUS:
            raise UsageError(
                "shared.cloud = 'rigorous': an isolated hospital would be asked for outputs while it works"
            )
        if self.into and self.shared.cloud_step == 0:
            raise UsageError(f"into = {self.into} with shared.cloud_step = 0: the pull needs a step of the aggregator")


@dataclass(frozen=True, kw_only=True)
class Env(NodeEnv):
    """What a node is given: what fedslr.Env and fedal_settings.Env have, and:

    Attributes:
        apart: device: it is a companion.
        companions: hospital: which of its devices are.
        counts: aggregator: hospital -> how many of its devices are.
        public: companions: the public inputs behind their model; aggregator: behind the global one.
    """

    settings: Settings = field(default_factory=Settings)
    svt: Svt = prox.svt
    smooth_grad: Callable[[Vector], Vector] | None = None
    classes: int = 0
    private: Inputs | None = None
    labels: Labels | None = None
    public: Inputs | None = None
    architecture: str = ""
    discriminator: DiscriminatorKernels = discriminator.KERNELS
    apart: bool = False
    companions: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ConsensusEnv(Env):
    """What a node of fedslr-b+fedal is given."""

    settings: ConsensusSettings = field(default_factory=ConsensusSettings)
