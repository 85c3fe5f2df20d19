"""Networks for wearables, ECG, sleep and forecasts that nobody here wrote, by name: of packages and published sources.

Of a source, `benchmarks/foreign.py --sources FOLDER` takes the checkout FOLDER/NAME; nothing of it is kept here:

    git clone https://github.com/teco-kit/ISWC22-HAR FOLDER/ISWC22-HAR           # TinyHAR and its rivals
    git clone https://github.com/Navidfoumani/ConvTran FOLDER/ConvTran
    git clone https://github.com/hsd1503/resnet1d FOLDER/resnet1d                # ECG
    git clone https://github.com/zhihanyue/ts2vec FOLDER/ts2vec
    git clone https://github.com/thuml/Time-Series-Library FOLDER/Time-Series-Library
    git clone https://github.com/Blealtan/efficient-kan FOLDER/efficient-kan
    git clone https://github.com/state-spaces/s4 FOLDER/s4
"""

from __future__ import annotations

from typing import Any

from foreign_networks import Foreign

WINDOW, LENGTH, CLASSES = (6, 64), 64, 5
"""Six channels of 64 samples; some take (samples, channels)."""
LAST = (LENGTH, 6)
KEPT = {"dropout": "keep"}
BATCH = {"dropout": "keep", "norm": "batch"}
FORECAST = {"dropout": "keep", "loss": "mean_squared_error"}
MADE = "foreign_builders"
HAR, LIBRARY, ECG = "ISWC22-HAR", "Time-Series-Library", "resnet1d"
ATTEND = {"hidden_dim": 32, "filter_num": 16, "filter_size": 5, "enc_num_layers": 2, "dropout": 0.5}
ATTEND |= {"dropout_rnn": 0.25, "dropout_cls": 0.5, "activation": "ReLU", "sa_div": 1}
RECURRENT = {"nb_conv_blocks": 2, "nb_filters": 16, "dilation": 1, "batch_norm": 0, "filter_width": 5}
RECURRENT |= {"nb_layers_lstm": 2, "drop_prob": 0.5, "nb_units_lstm": 32}
BRANCHES = {"nb_conv_blocks": 2, "nb_filters": 16, "dilation": 1, "batch_norm": 0, "filter_width": 5, "drop_prob": 0.25}


def har(make: str, config: dict[str, Any] | None = None, **given: Any) -> Foreign:
    """A network for activities, whose input has an axis of one channel before samples and sensors."""
    named = {"input_shape": (1, 1, *LAST), "net": f"models.{make}"}
    named |= {"places": (CLASSES, 1, config)} if config else {"places": (CLASSES,)}
    return Foreign(f"{MADE}.placed", (1, *LAST), named | given, BATCH, HAR)


def ecg(make: str, **given: Any) -> Foreign:
    return Foreign(make, (1, 256), {"in_channels": 1, "n_classes": CLASSES, **given}, BATCH, ECG)


def tsai(make: str, **given: Any) -> Foreign:
    return Foreign(f"tsai.models.{make}", WINDOW, {"c_in": 6, "c_out": CLASSES, **given}, BATCH)


def classify(name: str, **given: Any) -> Foreign:
    named = {"name": name, "task_name": "classification", **given}
    return Foreign(f"{MADE}.time_series", LAST, named, BATCH, LIBRARY)


def forecast(name: str, **given: Any) -> Foreign:
    named = {"name": name, "task_name": "long_term_forecast", **given}
    return Foreign(f"{MADE}.time_series", LAST, named, FORECAST | {"norm": "batch"}, LIBRARY)


def hugging(name: str, input: tuple[int, ...] = LAST, spec: dict[str, Any] | None = None, **config: Any) -> Foreign:
    """A network of transformers by its class; its configuration is that of the same name."""
    return Foreign(f"{MADE}.hugging", input, {"name": name, **config}, BATCH | (spec or {}))


PATCHES = {"num_input_channels": 6, "context_length": LENGTH, "patch_length": 8, "num_targets": CLASSES, "d_model": 16}
TOKENS = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2}

WEARABLES: dict[str, Foreign] = {
    "TinyHAR": har(
        "TinyHAR.TinyHAR_Model", filter_num=20, cross_channel_aggregation_type="FC",
        temporal_info_interaction_type="lstm", temporal_info_aggregation_type="tnaive",
    ),
    "AttendDiscriminate": har("Attend.AttendDiscriminate", ATTEND),
    "SA_HAR": har("SA_HAR.SA_HAR", {"nb_filters": 32}),
    "DeepConvLSTM": har("deepconvlstm.DeepConvLSTM", RECURRENT),
    "DeepConvLSTM_ATTN": har("deepconvlstm_attn.DeepConvLSTM_ATTN", RECURRENT),
    "MCNN": har("mcnn.MCNN", BRANCHES),
    "ConvTran": Foreign(f"{MADE}.convtran", WINDOW, {}, BATCH, "ConvTran"),
    "ResNet1D": ecg("resnet1d.ResNet1D", base_filters=16, kernel_size=5, stride=2, groups=1, n_block=8),
    "Net1D": ecg(
        "net1d.Net1D", base_filters=16, ratio=1.0, filter_list=[16, 32, 32], m_blocks_list=[1, 2, 1], kernel_size=5,
        stride=2, groups_width=16,
    ),
    "CRNN": ecg("crnn1d.CRNN", out_channels=16, n_len_seg=64, device="cpu"),
    "ACNN": ecg("acnn1d.ACNN", out_channels=16, att_channels=8, n_len_seg=64, device="cpu"),
    "AttnSleep --dropout keep": Foreign(
        "braindecode.models.AttnSleep", (1, 3000), {"n_chans": 1, "n_outputs": 5, "n_times": 3000, "sfreq": 100}, BATCH
    ),
    "LaBraM": Foreign(f"{MADE}.Electrodes", (4, 400), {}, BATCH),
    "InceptionTime": tsai("InceptionTime.InceptionTime", nf=8),
    "OmniScaleCNN": tsai("OmniScaleCNN.OmniScaleCNN", seq_len=LENGTH, layers=[256, 2048]),
    "MLSTM_FCN": tsai("RNN_FCN.MLSTM_FCN", seq_len=LENGTH, hidden_size=16, conv_layers=[16, 32, 16]),
    "MLSTM_FCN of steps": tsai("RNN_FCN.MLSTM_FCN", hidden_size=16, conv_layers=[16, 32, 16], shuffle=False),
    "xresnet1d18": tsai("XResNet1d.xresnet1d18"),
    "XceptionTime": tsai("XceptionTime.XceptionTime", nf=4),
    "TST": tsai("TST.TST", seq_len=LENGTH, d_model=32, n_heads=4, d_ff=64, n_layers=2),
    "PatchTST of tsai": Foreign(
        "tsai.models.PatchTST.PatchTST", WINDOW,
        {"c_in": 6, "c_out": None, "seq_len": LENGTH, "pred_dim": 16, "d_model": 16, "n_heads": 4, "d_ff": 32,
         "patch_len": 8, "stride": 4}, FORECAST | {"norm": "batch"},
    ),
    "TS2Vec": Foreign(
        f"{MADE}.pooled", LAST,
        {"net": "models.encoder.TSEncoder", "input_dims": 6, "output_dims": 16, "hidden_dims": 8, "depth": 3},
        {}, "ts2vec",
    ),
    "PatchTST": forecast("PatchTST"),
    "PatchTST of classes": classify("PatchTST"),
    "iTransformer": forecast("iTransformer"),
    "iTransformer of classes": classify("iTransformer"),
    "TSMixer": forecast("TSMixer"),
    "TimeXer": forecast("TimeXer"),
    "TimesNet": classify("TimesNet", pred_len=0),
    "Crossformer": classify("Crossformer"),
    "Autoformer": classify("Autoformer"),
    "Mamba": forecast("MambaSimple"),
    "PatchTST of transformers": hugging("PatchTSTForClassification", **PATCHES, head_dropout=0.1),
    "PatchTSMixer of transformers": hugging(
        "PatchTSMixerForTimeSeriesClassification", spec={"output": "prediction_outputs"}, **PATCHES
    ),
    "Mamba of transformers": hugging(
        "MambaForCausalLM", (16,), {"below": 50, "output": "logits", "loss": "soft_cross_entropy"},
        **TOKENS, state_size=4,
    ),
    "xLSTM, matrix memories": Foreign(f"{MADE}.xlstm", LAST, {"slstm_at": []}, KEPT),
    "xLSTM, scalar memories": Foreign(f"{MADE}.xlstm", LAST, {"slstm_at": [1]}, KEPT),
    "S4D": Foreign(f"{MADE}.s4d", (16, LENGTH), {}, {}, "s4"),
    "S4D --dropout keep": Foreign(f"{MADE}.s4d", (16, LENGTH), {}, KEPT, "s4"),
    "KAN of efficient-kan": Foreign(
        "efficient_kan.KAN", (12,), {"layers_hidden": [12, 8, CLASSES]}, KEPT, "efficient-kan/src"
    ),
    "KAN of pykan": Foreign(f"{MADE}.pykan", (4,), {}, KEPT),
    "U-Net of windows": Foreign(
        "monai.networks.nets.BasicUNet", (2, LENGTH),
        {"spatial_dims": 1, "in_channels": 2, "out_channels": 3, "features": (8, 8, 16, 16, 32, 8), "dropout": 0.1},
        BATCH | {"loss": "soft_cross_entropy"},
    ),
    "U-Net of images": Foreign(
        "segmentation_models_pytorch.Unet", (1, 64, 64),
        {"encoder_name": "timm-mobilenetv3_small_minimal_100", "encoder_weights": None, "in_channels": 1, "classes": 3,
         "decoder_channels": (32, 16, 16, 8, 8)}, BATCH | {"loss": "soft_cross_entropy"},
    ),
}  # fmt: skip
