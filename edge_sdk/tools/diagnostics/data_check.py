"""The check of a device's samples: they are read and cut as the device would, and must be what its bundle takes."""

from __future__ import annotations

from edge_sdk.tools.diagnostics.findings import Finding
from edge_sdk.tools.diagnostics.node_files import NodeFile


def check_data(file: NodeFile) -> Finding:
    """Reads the samples that a device's settings name. Raises UsageError with what the device would refuse them by."""
    from edge_sdk.data.data_table import samples_of  # here, so that a broken onnxruntime is a finding and not a crash
    from edge_sdk.nodes.evaluation.normalisation import find_normaliser
    from edge_sdk.nodes.kernels.model_inputs import fit_samples
    from edge_sdk.nodes.kernels.split import load_model

    assert file.data is not None
    samples, model = samples_of(file.data, find_normaliser(file.bundle)), load_model(file.bundle, 1)
    parts = {"to train on": samples.train, "held out": samples.held_out, "to choose on": samples.validation}
    fitted = {what: fit_samples(model, part, "data") for what, part in parts.items() if part is not None}
    return Finding("data", True, ", ".join(f"{len(part)} samples {what}" for what, part in fitted.items()))
