"""The methods that a run can name. Each is one module: device, hospital and aggregator of one paper together."""

from __future__ import annotations

from collections.abc import Mapping

from edge_sdk.contract.method import Method
from edge_sdk.methods.apfl import APFL
from edge_sdk.methods.augfl.method import AUGFL
from edge_sdk.methods.companions.method import FEDSLR_B_FEDAL, FEDSLR_FEDAL
from edge_sdk.methods.ditto import DITTO
from edge_sdk.methods.fedal.method import FEDAL
from edge_sdk.methods.fedala import FEDALA
from edge_sdk.methods.fedavg import FEDAVG
from edge_sdk.methods.fedbabu import FEDBABU
from edge_sdk.methods.fedbcd.method import FEDBCD, FEDBCD_I
from edge_sdk.methods.fedbn import FEDBN
from edge_sdk.methods.feddyn import FEDDYN
from edge_sdk.methods.fedper import FEDPER
from edge_sdk.methods.fedrep import FEDREP
from edge_sdk.methods.fedslr.method import FEDSLR
from edge_sdk.methods.fedslr_consensus import FEDSLR_B
from edge_sdk.methods.hsgd.method import HSGD
from edge_sdk.methods.perfedavg import PERFEDAVG
from edge_sdk.methods.scaffold import SCAFFOLD

REPRODUCED = (FEDSLR, FEDBCD, FEDBCD_I, HSGD, FEDAL, AUGFL)
COMBINED = (FEDSLR_B, FEDSLR_FEDAL, FEDSLR_B_FEDAL)
NEIGHBOURS = (
    FEDAVG,
    PERFEDAVG,
    DITTO,
    SCAFFOLD,
    FEDPER,
    FEDREP,
    FEDBABU,
    APFL,
    FEDDYN,
    FEDBN,
    FEDALA,
)
"""Baselines by others, each a module that a new one can be written after."""

METHODS: Mapping[str, Method] = {method.name: method for method in (*REPRODUCED, *NEIGHBOURS, *COMBINED)}
