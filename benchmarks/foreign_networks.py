"""The battery of networks that nobody here wrote, by name: torchvision, timm, braindecode, transformers and MONAI."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

IMAGE, EEG = (3, 64, 64), (22, 1000)
SIGNALS = {"n_chans": 22, "n_outputs": 4, "n_times": 1000, "sfreq": 250}
SLEEP = {"n_chans": 2, "n_outputs": 5, "n_times": 3000, "sfreq": 100}


@dataclass(frozen=True)
class Foreign:
    """One network of the battery.

    Attributes:
        make: module.function that builds it. given: its arguments.
        input: shape of one sample; of several inputs, argument -> shape.
        spec: settings of the compilation beside dropout = "off".
        source: folder of a published source, in that of --sources; "": a package has it.
    """

    make: str
    input: tuple[int, ...] | dict[str, tuple[int, ...]] = IMAGE
    given: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    source: str = ""


def vision(name: str, **given: Any) -> Foreign:
    return Foreign(f"torchvision.models.{name}", IMAGE, {"num_classes": 10, **given})


def timm(name: str, size: int = 64, **given: Any) -> Foreign:
    return Foreign("timm.create_model", (3, size, size), {"model_name": name, "num_classes": 10, **given})


def eeg(name: str, **given: Any) -> Foreign:
    return Foreign(f"braindecode.models.{name}", EEG, SIGNALS | given)


def sleep(name: str, **given: Any) -> Foreign:
    return Foreign(f"braindecode.models.{name}", (2, 3000), SLEEP | given)


LIBRARY_NETWORKS: dict[str, Foreign] = {
    "resnet18": vision("resnet18"),
    "resnet18 --norm batch": Foreign("torchvision.models.resnet18", IMAGE, {"num_classes": 10}, {"norm": "batch"}),
    "mobilenet_v2": vision("mobilenet_v2"),
    "mobilenet_v2 --norm batch": Foreign(
        "torchvision.models.mobilenet_v2", IMAGE, {"num_classes": 10}, {"norm": "batch"}
    ),
    "mobilenet_v2 --dropout keep": Foreign(
        "torchvision.models.mobilenet_v2", IMAGE, {"num_classes": 10}, {"dropout": "keep"}
    ),
    "mobilenet_v3_small": vision("mobilenet_v3_small"),
    "shufflenet_v2": vision("shufflenet_v2_x0_5"),
    "shufflenet_v2 --norm batch": Foreign(
        "torchvision.models.shufflenet_v2_x0_5", IMAGE, {"num_classes": 10}, {"norm": "batch"}
    ),
    "mnasnet": vision("mnasnet0_5"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "squeezenet": vision("squeezenet1_1"),
    "googlenet": vision("googlenet", aux_logits=False, init_weights=False),
    "regnet_x_400mf": vision("regnet_x_400mf"),
    "convnext_atto": timm("convnext_atto"),
    "densenet121": vision("densenet121"),
    "vit_tiny": timm("vit_tiny_patch16_224", img_size=64),
    "deit_tiny": timm("deit_tiny_distilled_patch16_224", img_size=64),
    "swin_tiny": timm("swin_tiny_patch4_window7_224", img_size=56, size=56, window_size=7, depths=(1, 1, 1, 1)),
    "mixer": timm("mixer_s32_224", img_size=64),
    "resmlp": timm("resmlp_12_224", img_size=64),
    "mobilenetv4": timm("mobilenetv4_conv_small"),
    "ghostnet": timm("ghostnet_050"),
    "repvgg_a0": timm("repvgg_a0"),
    "edgenext": timm("edgenext_xx_small"),
    "poolformer_s12": timm("poolformer_s12"),
    "levit_128s": timm("levit_128s", 224),
    "EEGNet": eeg("EEGNet"),
    "EEGNet --dropout keep": Foreign("braindecode.models.EEGNet", EEG, SIGNALS, {"dropout": "keep"}),
    "ShallowFBCSPNet": eeg("ShallowFBCSPNet"),
    "Deep4Net": eeg("Deep4Net"),
    "EEGConformer": eeg("EEGConformer"),
    "ATCNet": eeg("ATCNet"),
    "EEGInceptionERP": eeg("EEGInceptionERP"),
    "EEGITNet": eeg("EEGITNet"),
    "EEGTCNet": eeg("EEGTCNet"),
    "EEGNeX": eeg("EEGNeX"),
    "TIDNet": eeg("TIDNet"),
    "CTNet": eeg("CTNet"),
    "BIOT": eeg("BIOT"),
    "USleep": Foreign("braindecode.models.USleep", (2, 3000), SLEEP),
    "Chambon2018": sleep("SleepStagerChambon2018"),
    "Blanco2020": sleep("SleepStagerBlanco2020"),
    "DeepSleepNet": sleep("DeepSleepNet"),
    "AttnSleep": Foreign("braindecode.models.AttnSleep", (1, 3000), SLEEP | {"n_chans": 1}),
    "bert_tiny": Foreign("foreign_networks.bert", (16,), {}, {"below": 100}),
    "bert_tiny, three inputs": Foreign(
        "foreign_networks.bert",
        {"input_ids": (16,), "attention_mask": (16,), "token_type_ids": (16,)},
        {},
        {"below": {"input_ids": 100, "attention_mask": 2, "token_type_ids": 2}},
    ),
    "unet1d": Foreign(
        "monai.networks.nets.BasicUNet",
        (1, 64, 64),
        {"spatial_dims": 2, "out_channels": 2, "features": (8, 8, 16, 16, 32, 8)},
        {"loss": "mean_squared_error"},
    ),
    "segresnet": Foreign(
        "monai.networks.nets.SegResNet", (1, 32, 32), {"spatial_dims": 2}, {"loss": "mean_squared_error"}
    ),
}


def bert() -> Any:
    """A small BERT that classifies 16 word pieces of a vocabulary of 100."""
    made = importlib.import_module("transformers")
    config = made.BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=3,
    )
    return made.BertForSequenceClassification(config)
