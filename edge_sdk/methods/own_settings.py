"""Settings of a method of one's own: those of training, and what its author adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge_sdk.errors import UsageError
from edge_sdk.methods.shared.training.further_settings import extended
from edge_sdk.methods.shared.training.local import Training, one_of


@dataclass(frozen=True, kw_only=True)
class Settings(Training):
    """Hyper-parameters that every such method has, beside its own.

    Attributes:
        weighting: of the mean: "samples" or "uniform".
    """

    weighting: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, ("samples", "uniform"), "weighting")


def settings_type(name: str, given: Mapping[str, object]) -> type:
    """The settings of a method with further ones.

    Args:
        name: of the method. given: name of a setting -> its default.

    Raises:
        UsageError: a name is none that a setting can have, or is taken; a default is of another type than its setting.
    """
    for key in given:
        check_key(name, key)
    return extended(Settings, given)


def check_key(name: str, key: str) -> None:
    """Raises UsageError if a setting of a method cannot have this name."""
    if not key.isidentifier() or key.startswith("_"):
        raise UsageError(f"method {name}: a setting {key!r}; expected a name of letters, digits and _")
    if key not in Settings.__dataclass_fields__ and hasattr(Settings, key):
        raise UsageError(
            f"method {name}: a setting {key!r} would hide settings.{key}(round), the step size of a round, by which "
            "devices train; call it otherwise, or give eta_l another default"
        )
