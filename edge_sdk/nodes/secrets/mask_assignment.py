"""Who is given keystreams: devices and the aggregator of a run with secret sums, and hospitals for sums over them.

A hospital's are those that it shares with other hospitals; of what its devices share with the aggregator it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edge_sdk.contract.run import Run
from edge_sdk.errors import UsageError
from edge_sdk.methods.integers.vectors.settings import LEAST_COHORT
from edge_sdk.nodes.configuration.around import is_secret, opens_among_devices, uploads_of
from edge_sdk.nodes.configuration.mask_tables import DeviceKeys, HospitalKeys
from edge_sdk.nodes.policy.allow import Allow
from edge_sdk.nodes.policy.score_filter import for_masking
from edge_sdk.nodes.secrets import mask_keys, masks
from edge_sdk.nodes.secrets.device_secrets import device_secrets
from edge_sdk.nodes.secrets.secret_sharing import mask_reader


def for_device(
    run: Run, files: DeviceKeys | None, name: str, classes: int, allow: Callable[[], Allow]
) -> dict[str, Any]:
    """Fields of a device's env with which it hides its answers, in a run whose sums are secret.

    Args:
        classes: that its model tells apart.
        allow: its holder's table, at that moment.

    Raises:
        UsageError: it was given no keys, or they cannot be used.
    """
    if not is_secret(run):
        return {}
    if files is None:
        raise UsageError(f"device {name}: run {run.id} has secret sums, and this device no keys for them (masks)")
    given: dict[str, Any] = {"outputs": classes, "allowed": for_masking(allow)}
    if opens_among_devices(run):
        return given | {"secrets": device_secrets(files, run.id)}
    return given | {"masks": masks.device_masks(files, run.id)}


def for_hospital(run: Run, classes: int) -> dict[str, Any]:
    """Fields of a hospital's env by which it knows what masked scores look like, in a run whose sums are secret, and by
    which it reads what its devices reveal.

    Args:
        classes: that the models of its devices tell apart.
    """
    if not is_secret(run):
        return {}
    return {"outputs": classes} | ({"reader": mask_reader()} if opens_among_devices(run) else {})


def for_pooling(run: Run, files: HospitalKeys | None, name: str) -> dict[str, Any]:
    """Field of a hospital's env with which it hides its sums from the aggregator, in a run with sums over hospitals.

    Raises:
        UsageError: it was given no keys, or they cannot be used.
    """
    if not (is_secret(run) and uploads_of(run).hospitals):
        return {}
    if files is None:
        raise UsageError(f"hospital {name}: run {run.id} has sums over hospitals, and this one no keys (masks)")
    return {"masks": masks.hospital_masks(files, run.id, name)}


def for_aggregator(run: Run, files: mask_keys.AggregatorKeys | None, hospitals: Mapping[str, int]) -> dict[str, Any]:
    """Field of the aggregator's env that opens sums, in a run whose sums are secret.

    Args:
        hospitals: name -> number of its devices.

    Raises:
        UsageError: there are no keys, or a hospital has too few devices for a sum that may be opened.
    """
    if not is_secret(run):
        return {}
    if opens_among_devices(run):
        check_hospitals(run, hospitals)
        return {}
    if files is None:
        raise UsageError(f"run {run.id} has secret sums, and the aggregator no keys for them (masks)")
    check_hospitals(run, hospitals)
    return {"masks": masks.aggregator_masks(files, run.id)}


def check_hospitals(run: Run, hospitals: Mapping[str, int]) -> None:
    """Raises UsageError for a run with secret sums in which a hospital has too few devices for one."""
    if not is_secret(run):
        return
    uploads = uploads_of(run)
    if len(hospitals) < uploads.hospitals:
        raise UsageError(f"run.uploads.hospitals = {uploads.hospitals}: there are {len(hospitals)} (hospitals)")
    cohort = uploads.cohort
    if uploads.hospitals and sum(hospitals.values()) >= cohort:
        return
    if small := next((name for name, devices in hospitals.items() if devices < cohort), None):
        raise UsageError(
            f"hospitals.{small} = {hospitals[small]}: a secret sum is made of {cohort} devices at least, so nothing of "
            f"{small} would ever count; leave it out, or set run.uploads.cohort (not below {LEAST_COHORT})"
        )
