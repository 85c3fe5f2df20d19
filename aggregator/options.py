"""What an aggregator is made with beside its name and its files: its hospitals, its run, its process.

The keys of an aggregator's settings file have the names of these attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aggregator.kernels import FULL
from edge_sdk.contract.children.limits import Limits
from edge_sdk.contract.run import Run
from edge_sdk.nodes.configuration.deadlines import AUTO
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.secrets.mask_keys import AggregatorKeys
from edge_sdk.simulation.processes.ranks import Ranks


@dataclass(frozen=True)
class HospitalList:
    """The hospitals of an aggregator, and how long they are waited for.

    Attributes:
        hospitals: name -> number of its devices (M, the number of all devices, is their sum).
        companions: name -> how many of these take part with outputs only, in a run of the companions family.
        deadline: seconds after which a round ends with the hospitals that have answered, "auto" or "none" (see
            `nodes.deadlines`).
        quorum: hospitals without which a round does not end.
        wait_for: hospitals that must be ready before the run starts; None: all.
        enrolled: hospitals say themselves how many devices they have, and that may change during the run.
        limits: what hospitals may claim, and when they are suspended.

    >>> HospitalList({"north": 14, "south": 8}, quorum=2).deadline
    'auto'
    """

    hospitals: Mapping[str, int]
    companions: Mapping[str, int] = field(default_factory=dict)
    deadline: float | str = AUTO
    quorum: int = 1
    wait_for: int | None = None
    enrolled: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class PreparedRun:
    """A run, and what its aggregator brings into it.

    Attributes:
        run: the training job.
        public: file of the public inputs, for a run that names some.
        private: a pretrained model and what it is for; never sent.
        model: file of the model that a rollout brings; None: the bundle's initial one.
        masks: its keys for runs with secret sums; None: it can have no such run.

    >>> PreparedRun(Run(id="r", method="rollout"), model=Path("better.npz")).run.id
    'r'
    """

    run: Run
    public: Path | None = None
    private: Private | None = None
    model: Path | None = None
    masks: AggregatorKeys | None = None


@dataclass(frozen=True, kw_only=True)
class Process:
    """The process of an aggregator: what it computes on, and its place beside other processes of the same aggregator.

    Attributes:
        device: "cpu", "cuda", or "auto" (a GPU where there is one) for the torch kernels.
        svt: "full" or "fast" singular value thresholding; see `aggregator.kernels`.
        ranks: the processes that share the heavy steps; None: this one alone. See `aggregator.shared`.
        client: its client id at the broker, where other runs of the same aggregator go on; "": its name, and no other
            run goes on.
        lane: of a rollout or an evaluation beside a training at the same hospitals: the number of their lane.

    >>> Process(device="cpu").svt
    'full'
    """

    device: str = "auto"
    svt: str = FULL
    ranks: Ranks | None = None
    client: str = ""
    lane: int = 0


ALONE = Process()
"""The only process of its aggregator, on a GPU where there is one."""
