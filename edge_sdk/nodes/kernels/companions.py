"""The family of a shared model with companions: devices of other architectures that take part with outputs only."""

from __future__ import annotations

from edge_sdk.data.public_inputs import read_public
from edge_sdk.errors import UsageError
from edge_sdk.model.model import Model
from edge_sdk.nodes.kernels import outputs, plain
from edge_sdk.nodes.kernels.family import AggregatorParts, DeviceParts, Family, Fields, HospitalParts


def for_device(parts: DeviceParts) -> Fields:
    """A device with the run's bundle trains the shared model; one with another bundle is a companion."""
    if parts.model.sha256 == parts.run.bundle:
        return plain.for_device(parts)
    return {"apart": True, **outputs.for_device(parts)}


def for_hospital(parts: HospitalParts) -> Fields:
    return {"companions": parts.companions}


def for_aggregator(parts: AggregatorParts) -> Fields:
    """The global model's outputs on the public inputs, with which it takes part among the companions."""
    for name, count in parts.companions.items():
        devices = parts.hospitals.get(name, 0)
        if not 0 <= count < devices:
            raise UsageError(f"companions.{name} = {count}: less than the {devices} devices of that hospital")
    if parts.public is None:
        raise UsageError("public: companions compare outputs on public inputs; name their file")
    model = Model(parts.bundle)
    x = read_public(parts.public).shaped(model.input_shape, "the aggregator")
    return {"counts": dict(parts.companions), "public": outputs.inputs(model, x)}


COMPANIONS = Family(
    check=outputs.check,
    for_device=for_device,
    for_hospital=for_hospital,
    for_aggregator=for_aggregator,
    own_bundles=frozenset({"device"}),
    public=True,
    companions=True,
)
