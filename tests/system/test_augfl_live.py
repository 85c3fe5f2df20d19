"""AugFL over a broker: a pretrained model that stays on the aggregator, and devices that never train. A tap on the wire
sees all bytes: nothing of the model, its data, its features or lambda is among them."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the aggregator needs torch")
pytest.importorskip("amqtt", reason="the embedded broker needs amqtt")

import torch

from aggregator.private_model.checkpoint import compute_outputs, load_module
from edge_sdk.model.bundle import read_bundle
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.models.zoo.dense import MLP
from edge_sdk.nodes.configuration.private_table import Private
from edge_sdk.nodes.configuration.settings import read_toml
from edge_sdk.replay.nodes.broker import EmbeddedBroker
from tests import warm
from tests.system import refusals

LAMBDA = 0.731058


class Tap:
    """Passes TCP on to a port, and keeps a copy of all that goes by."""

    def __init__(self, port: int) -> None:
        self.to, self.seen, self.lock = port, bytearray(), threading.Lock()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                here, _ = self.server.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", self.to))
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                with self.lock:
                    self.seen += data
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, sink):
                one.close()


def auscult(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm.auscult(*arguments)
    assert done.returncode == code, f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The [private] table that the tool writes, and the devices' bundle: another architecture."""
    directory = tmp_path_factory.mktemp("files")
    tool = ("breast-cancer", "-o", directory / "private", "--rows", 150, "--architecture", "mlp", "--epochs", 5)
    assert "right; files in" in auscult("pretrain", *tool, "--weight", LAMBDA).stdout
    torch.manual_seed(0)
    compile_module(MLP((30,), 2, (8,)).eval(), Spec("small", (30,), 2)).save(directory / "small.bundle")
    return directory / "private" / "private.toml", directory / "small.bundle"


def replayed(out: Path, bundle: Path, *more: object) -> dict[str, Any]:
    fixed = ("--hospitals", 2, "--devices", 3, "--seed", 5, "--out", out, "--json", "--bundle", bundle, "--deal", "iid")
    settings = ("--set", "unseen=0.34", "--set", "alpha=0.1", "--no-local-only", "--method", "augfl", "--rounds", 4)
    words = (*fixed, *settings, "--no-neighbours", *more)  # neighbours of a replay: tests/system/test_replay.py
    return dict(json.loads(auscult("replay", "breast-cancer", *words).stdout))


@pytest.fixture(scope="module")
def played(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, bytes]:
    out = tmp_path_factory.mktemp("played") / "out"
    with EmbeddedBroker() as broker:
        tap = Tap(int(broker.url.rpartition(":")[2]))
        url = f"mqtt://127.0.0.1:{tap.port}"
        found = replayed(out, files[1], "--private", files[0], "--broker", url, "--evaluate-every", 2)
        tap.server.close()
    return found, out, bytes(tap.seen)


def test_devices_that_never_train_are_told_apart(played: tuple[dict[str, Any], Path, bytes]) -> None:
    found, out, _ = played
    assert set(found["accuracy"]) == {"global", "personalised", "unseen"}
    assert sum("unseen" in d["accuracy"] for d in found["devices"]) == 2
    rounds = [line for line in found["curve"] if line["kind"] == "round"]
    assert [(line["round"], line["devices"]) for line in rounds] == [(t, 4) for t in (1, 2, 3, 4)]
    reports = [line for line in found["curve"] if line["kind"] == "evaluation"]
    assert [(r["round"], r["sums"]["unseen_devices"]) for r in reports] == [(2, 2), (4, 2)]
    values = [line["sums"]["regulariser"] for line in rounds]
    assert all(v > 0 for v in values) and all(line["sums"]["residual"] > 0 for line in rounds)
    assert "[private]" in (out / "config" / "aggregator.toml").read_text()


def test_no_device_has_a_sample_of_the_aggregator(
    played: tuple[dict[str, Any], Path, bytes], files: tuple[Path, Path]
) -> None:
    with np.load(files[0].parent / "data.npz") as file:
        own = file["x"]
    held = np.concatenate([x for path in (played[1] / "data").glob("h*.npz") for x in samples(path)])
    assert len(own) == 150 and len(held) == 569 - 150
    nearest = np.sqrt(((held[:, None] - own[None]) ** 2).sum(2)).min()  # standardised a little differently, so no bytes
    assert nearest > 0.1


def samples(path: Path) -> list[np.ndarray]:
    with np.load(path) as file:
        return [file[name] for name in file.files if file[name].ndim == 2]


def test_nothing_private_is_on_the_wire(played: tuple[dict[str, Any], Path, bytes], files: tuple[Path, Path]) -> None:
    seen, private = played[2], read_toml(files[0], Private)
    assert len(seen) > 10_000
    theta0 = read_bundle(files[1]).theta0
    assert any(piece in seen for piece in pieces(theta0))  # the tap does see what is sent
    module = load_module(private, "cpu")
    with np.load(files[0].parent / "data.npz") as file:
        x = file["x"]
    outputs = compute_outputs(module, "", torch.from_numpy(x), 50)
    secrets = [p.detach().numpy() for p in module.parameters()]
    secrets += [x, outputs.features.numpy(), outputs.logits.numpy()]
    for secret in secrets:
        for kind in (np.float32, np.float64, np.float16):
            assert not any(piece in seen for piece in pieces(secret.astype(kind)))
    for text in (str(LAMBDA), "private", "model.pt", "data.npz", "crd", "regulariser"):
        assert text.encode() not in seen
    for kind in ("<f8", ">f8"):  # messages are msgpack, whose floats are these
        assert np.array(LAMBDA, kind).tobytes() not in seen


def pieces(array: np.ndarray) -> list[bytes]:
    """Runs of eight numbers; a message that is cut into chunks still has most of them whole. Features may be zero."""
    flat = np.ascontiguousarray(array).reshape(-1)
    runs = [flat[i : i + 8] for i in range(0, len(flat) - 7, max(8, len(flat) // 200))]
    return [run.tobytes() for run in runs if np.count_nonzero(run) > 4]


@pytest.mark.long
def test_without_weight_the_files_are_not_opened(files: tuple[Path, Path], tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.toml"
    nothing.write_text('weight = 0.0\nmodel = "nowhere.pt"\ndata = "nowhere.npz"\nreserved = 150\n')
    without = replayed(tmp_path / "out", files[1], "--private", nothing, "--rounds", 1)
    (line,) = [line for line in without["curve"] if line["kind"] == "round"]
    assert "regulariser" not in line["sums"] and line["devices"] == 4


def test_mistakes_are_told_before_anything_starts(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: object) -> str:
        said = refusals.refused(capsys, "replay", "breast-cancer", "--out", tmp_path / "out", *arguments)
        assert not (tmp_path / "out" / "logs").exists()
        return said

    private = ("--private", files[0])
    assert "the aggregator of fedavg has no use for a pretrained model" in refused("--method", "fedavg", *private)
    assert "there is no such file" in refused("--private", broken(tmp_path, 'weight = 1.0\nmodel = "no.pt"\n'))
    assert "wieght is no setting" in refused("--private", broken(tmp_path, "wieght = 1.0\n"))
    assert "weight = -1" in refused("--private", broken(tmp_path, "weight = -1.0\n"))
    too_many = broken(tmp_path, "weight = 0.0\nreserved = 569\n")
    assert "some are for devices" in refused("--method", "augfl", "--private", too_many)


def broken(directory: Path, text: str) -> Path:
    path = directory / "broken.toml"
    path.write_text(text)
    return path
