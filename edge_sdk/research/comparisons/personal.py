"""The models that devices have at the end of a run, ready to predict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_sdk.errors import UsageError, nearest
from edge_sdk.model.inputs import Data
from edge_sdk.model.model import Model
from edge_sdk.nodes.models import kept_models
from edge_sdk.nodes.models.predictions import Predictions
from edge_sdk.nodes.models.working_model import WorkingModel
from edge_sdk.replay.metrics.statistics import shares_in
from edge_sdk.replay.values.tables import number

MODELS = "models"


@dataclass(frozen=True)
class DeviceModel:
    """One device at the end of a run.

    Attributes:
        name: of the device.
        accuracy: model -> share of its test samples, 0 to 1; of sets of labels macro-F1, of values nothing.
        working: its models.
        errors: model -> name of a value -> its errors on test samples ("mae", "rmse", "bias"), in its unit.
    """

    name: str
    accuracy: Mapping[str, float]
    working: WorkingModel
    errors: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of its models, for `which`."""
        return tuple(self.working.kept.models)

    def predict(self, x: Data, which: str | None = None, smooth: int = 1, abstain: float = 0.0) -> Predictions:
        """Predicts classes, values or sets of labels as the device does.

        Args:
            x: float32 or integers (N, ...), or one sample without the first axis.
            which: "personal", "global" or another one of `models`; None: the one that has seen most of its own samples.
            smooth: decide by the mean over the last so many of the samples, which are in time order.
            abstain: a sample whose best class has a smaller probability than this gets no label.

        Returns:
            Predictions: `labels` (N names), `probabilities` float (N, classes), `classes`; of values `values` (N, K)
            in their `units`; of sets of labels `probabilities` (N, labels), and each one's `labels`.

        Raises:
            UsageError: there is no such model, or x has another shape.
        """
        return self.working.predict(x, which, smooth, abstain)

    def __repr__(self) -> str:
        told = ", ".join(f"{model} {100 * value:.1f} %" for model, value in self.accuracy.items()) or ", ".join(
            f"{model} off by {number(errors['mae'])} ({value})"
            for model, values in self.errors.items()
            for value, errors in values.items()
        )
        return f"device {self.name}: {told}"


class DeviceModels(Mapping[str, DeviceModel]):
    """Name -> device, read from the disk when it is asked for.

    Args:
        directory: of a run that kept models.
        result: of that run.
    """

    def __init__(self, directory: Path, result: Mapping[str, Any]) -> None:
        self.directory = directory
        self.told = {str(d["device"]): d for d in result["devices"]}
        self.bundles: dict[str, Model] = {}

    def __getitem__(self, name: str) -> DeviceModel:
        if name not in self.told:
            raise KeyError(f"no device {name}{nearest(name, self.told)}; there are {', '.join(self.told)}")
        path = self.directory / MODELS / f"{name}.npz"
        if not path.is_file():
            raise UsageError(f"{self.directory}: this run kept no models; simulate it again, with --keep-models")
        kept = kept_models.load(path)
        own = self.told[name]
        working = WorkingModel(name, self.model(kept.bundle), kept.classes, kept, self.directory.name)
        return DeviceModel(name, shares_in(own), working, own.get("errors", {}))

    def model(self, sha256: str) -> Model:
        """The graphs of a bundle, loaded once."""
        if sha256 not in self.bundles:
            every = [Model(path) for path in sorted(self.directory.glob("model*.bundle"))]
            self.bundles |= {model.sha256: model for model in every}
        return self.bundles[sha256]

    def __contains__(self, name: object) -> bool:
        return name in self.told

    def __iter__(self) -> Iterator[str]:
        return iter(self.told)

    def __len__(self) -> int:
        return len(self.told)

    def __repr__(self) -> str:
        return f"{len(self)} devices: {', '.join(self.told)}"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.told)
