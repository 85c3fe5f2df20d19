"""Augmentation that a bundle names: written by the compiler, kept by its runs unless these say otherwise."""

import pytest
import torch
from torch import nn

from edge_sdk import cli
from edge_sdk.data.augment import Augment
from edge_sdk.errors import UsageError
from edge_sdk.model.bundle import parse, read_bundle
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec
from edge_sdk.nodes.configuration.assembly import with_bundle
from edge_sdk.tools.bundle_commands import describe
from tests.simulation.jobs import job_of, play
from tests.simulation.test_job import model_of, without_times

NOISE = {"noise": 0.3}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("named") / "model.bundle"
    words = ["mlp", "--input", "30", "--classes", "2", "--augment", "noise=0.3", "--search", "0", "-o", str(path)]
    assert cli.main(["bundle", "compile", *words]) == 0
    return path


def test_the_bundle_says_it(bundle):
    read = read_bundle(bundle)
    assert read.augment == NOISE
    assert "augmentation noise 0.3" in describe(read)


def test_without_it_a_bundle_stays_the_same():
    torch.manual_seed(0)
    net = nn.Linear(3, 2).eval()
    plain, none = (
        compile_module(net, Spec("m", (3,), augment=how)).data for how in (Augment(), Augment(noise=0.0, scale=0.0))
    )
    assert parse(plain).sha256 == parse(none).sha256 and "augment" not in parse(plain).manifest


def test_a_run_of_it_is_the_run_that_names_the_same(bundle, tmp_path):
    def result(name, **more):
        found = play(job_of(tmp_path / name, method="fedavg", bundle=(bundle,), **more))
        return found, model_of(tmp_path / name)

    (named, model), (stated, same) = result("named"), result("stated", augment=NOISE)
    assert named["augment"] == NOISE and without_times(named) == without_times(stated) and model == same
    off, other = result("off", augment={"noise": 0.0})
    assert off["augment"] == {"noise": 0.0} and other != model


def test_a_method_that_cannot_augment_refuses_it(bundle, tmp_path):
    job = job_of(tmp_path / "fedal", method="fedal", bundle=(bundle,))
    with pytest.raises(UsageError, match=r"method fedal trains on outputs.*bundle mlp names noise, which 0 leaves out"):
        play(job)
    run = job_of(tmp_path / "off", method="fedal", augment={"noise": 0}).replay.as_run(("a", "b"))
    assert with_bundle(run, read_bundle(bundle)).augment == {"noise": 0}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"augment": Augment(rotation=0.1)}, "rotation = 0.1: it is for windows"),
        ({"augment": Augment(noise=0.1), "below": 9}, "one input, of floats"),
        ({"augment": Augment(noise=0.1), "input": {"a": (3,), "b": (3,)}}, "one input, of floats"),
    ],
)
def test_what_no_sample_can_have_is_refused(given, said):
    with pytest.raises(CompileError, match=said):
        Spec(**{"name": "m", "input": (3,), **given})


@pytest.mark.parametrize("text", ["turn=1", "noise=much", "noise=-1", "noise=True", "noise"])
def test_a_wrong_word_names_the_option(text, tmp_path, capsys):
    words = ["mlp", "--input", "30", "--classes", "2", "--augment", text, "-o", str(tmp_path / "m.bundle")]
    assert cli.main(["bundle", "compile", *words]) == 2
    assert "--augment" in capsys.readouterr().err and not (tmp_path / "m.bundle").exists()
