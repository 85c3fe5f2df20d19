"""What a method with companions beside it is given, and what its nodes tell each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from edge_sdk.algebra import prox
from edge_sdk.algebra.arrays import Values
from edge_sdk.algebra.lowrank import Packed
from edge_sdk.algebra.vectors import Vector
from edge_sdk.contract.method import Method, NodeEnv
from edge_sdk.errors import UsageError
from edge_sdk.methods import fedslr_consensus
from edge_sdk.methods.fedal import discriminator
from edge_sdk.methods.fedal import settings as fedal_settings
from edge_sdk.methods.fedal.discriminator import Kernels
from edge_sdk.methods.fedal.distillation import Labels
from edge_sdk.methods.fedal.settings import Inputs
from edge_sdk.methods.fedslr import method as fedslr
from edge_sdk.methods.fedslr_consensus import RIGOROUS
from edge_sdk.methods.shared.local import zero_or_more
from edge_sdk.methods.shared.server import Svt

GLOBAL = "~"  # the global model among FedAL's hospitals; no node can be called that
FOREVER = 2**31


# Settings -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Attributes:
    shared: of the method with the global model.
    outputs: of FedAL. Parameters are not averaged here.
    into: weight of what the companions pull on the global model; 0: they learn from it, it does not learn from them.
    """

    shared: fedslr.Settings = field(default_factory=fedslr.Settings)
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
    """The same for fedslr-b."""

    shared: fedslr_consensus.Settings = field(default_factory=fedslr_consensus.Settings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared.cloud == RIGOROUS:
            raise UsageError(
                "shared.cloud = 'rigorous': an isolated hospital would be asked for outputs while it works"
            )


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
    discriminator: Kernels = discriminator.KERNELS
    apart: bool = False
    companions: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ConsensusEnv(Env):
    """The same for fedslr-b."""

    settings: ConsensusSettings = field(default_factory=ConsensusSettings)


# The envs of the two methods ----------------------------------------------------------------------------------
def part(kind: type[Any], env: Env, settings: Any, sizes: Mapping[str, int], **more: Any) -> Any:
    """The env of one of the two methods, whose children are those in `sizes`."""
    names = {f.name for f in fields(kind)} & {f.name for f in fields(Env)}
    same = {name: getattr(env, name) for name in names - {"settings", "sizes", "here"}}
    here = tuple(name for name in env.here if name in sizes)
    return kind(**{**same, "settings": settings, "sizes": sizes, "here": here, **more})


def shared_of(base: Method, env: Env) -> Any:
    return part(base.env, env, env.settings.shared, {})


def outputs_of(env: Env) -> fedal_settings.Env:
    found: fedal_settings.Env = part(fedal_settings.Env, env, env.settings.outputs, {}, rounds=FOREVER)
    return found


def wards(base: Method, env: Env) -> tuple[Any, fedal_settings.Env]:
    """The two envs of a hospital: each has the devices of its method."""
    theirs = {d: n for d, n in env.sizes.items() if d in env.companions}
    ours = {d: n for d, n in env.sizes.items() if d not in env.companions}
    if not ours:
        raise UsageError(f"hospital {env.me}: all of its devices are companions; at least one trains the shared model")
    return part(base.env, env, env.settings.shared, ours), part(
        fedal_settings.Env, env, env.settings.outputs, theirs, rounds=FOREVER
    )


def clouds(base: Method, env: Env) -> tuple[Any, fedal_settings.Env]:
    """The two envs of the aggregator: M is how many train the shared model; FedAL has one device more, the model."""
    ours = {h: n - env.counts.get(h, 0) for h, n in env.sizes.items()}
    if min(ours.values(), default=0) < 1:
        raise UsageError("counts: in each hospital at least one device trains the shared model")
    theirs = {h: n for h, n in env.counts.items() if n and h in env.sizes} | {GLOBAL: 1}
    here = (*(h for h in env.here if h in theirs), GLOBAL)
    outputs = part(fedal_settings.Env, env, env.settings.outputs, theirs, rounds=FOREVER, here=here)
    return part(base.env, env, env.settings.shared, ours), outputs


# Messages -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Both:
    """Between hospital and aggregator, either way: a message of each method; None: of this one there is none."""

    shared: Any = None
    outputs: Any = None


@dataclass(frozen=True)
class SharedModel:
    """The global model for evaluation, without a claim about the receiver's layout: companions have another one."""

    round: int
    ranks: tuple[int, ...]
    values: Values

    @property
    def model(self) -> Packed:
        return Packed(self.ranks, self.values)
