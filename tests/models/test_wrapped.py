"""Modules as torch's tools leave them: compiled, parallel, checkpointed, quantised, elsewhere, in another precision."""

import pytest
import torch
from torch import nn
from torch.utils import checkpoint

from edge_sdk.model.bundle import parse
from edge_sdk.model.model import Model
from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.ir.specification.spec import Spec

# torch's own tools warn of each other
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Conv1d(2, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)).mean(-1))


class Around(nn.Module):
    """A module inside another."""

    def __init__(self, part):
        super().__init__()
        self.part, self.out = part, nn.Linear(3, 3)

    def forward(self, x):
        return self.out(self.part(x))


class Checkpointed(Net):
    """The older kind of checkpoint; `first`: around what reads the samples themselves."""

    def __init__(self, first: bool):
        super().__init__()
        self.first = first

    def compute(self, h):
        return torch.relu(self.body(h) if self.first else h).mean(-1)

    def forward(self, x):
        return self.head(checkpoint.checkpoint(self.compute, x if self.first else self.body(x), use_reentrant=True))


def compile_it(net, search=0):
    return compile_module(net.eval(), Spec("net", (2, 9)), search=search)


def list_names(made):
    return [s.name for s in Model(parse(made.data)).layout.slots]


COMPILED = {
    "whole": lambda: torch.compile(Net()),
    "in place": lambda: compile_in_place(Net()),
}


def compile_in_place(net):
    net.compile()
    return net


@pytest.mark.parametrize("kind", COMPILED)
def test_a_compiled_module_is_taken_as_it_was_written(kind):
    made = compile_it(COMPILED[kind]())
    assert made.errors["float64"] < 1e-9
    assert list_names(made) == ["body.weight", "body.bias", "head.weight", "head.bias"]


def test_a_compiled_part_has_the_names_of_the_original_and_stays_in_the_module():
    net = Around(torch.compile(Net()))
    part = net.part
    assert list_names(compile_it(net))[:2] == ["part.body.weight", "part.body.bias"]
    assert net.part is part


def test_dropout_in_a_checkpoint_of_the_newer_kind_is_kept():
    class Dropping(Net):
        def forward(self, x):
            return self.head(checkpoint.checkpoint(self.compute, x, use_reentrant=False))

        def compute(self, x):
            return nn.functional.dropout(torch.relu(self.body(x)).mean(-1), 0.5, self.training)

    torch.manual_seed(1)
    made = compile_module(Dropping().eval(), Spec("net", (2, 16), dropout="keep"), search=0)
    assert len(Model(parse(made.data)).drop_sites) == 1


def test_a_checkpoint_of_the_older_kind_is_a_plain_call():
    apply = checkpoint.CheckpointFunction.apply
    assert compile_it(Checkpointed(first=False)).errors["float64"] < 1e-9
    assert checkpoint.CheckpointFunction.apply == apply


def test_one_that_would_leave_its_layers_without_a_gradient_is_refused():
    with pytest.raises(CompileError, match=r"^part: torch.utils.checkpoint .* say use_reentrant=False"):
        compile_it(Around(Checkpointed(first=True)))


def observe():
    net = Net().train()
    net.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    return torch.ao.quantization.prepare_qat(net)


def quantise():
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(Net(), nn.Linear(3, 3)), {nn.Linear})


def infer():
    with torch.inference_mode():
        return Net()


def parallel():
    net = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(net)
    net.module = Net()
    return net


REFUSED = {
    "rewritten rows": (lambda: Around(nn.Embedding(5, 2, max_norm=1.0)), "^part: an embedding with max_norm"),
    "half": (lambda: Net().half(), r"^body.weight: is of float16, .* net\.float\(\)"),
    "double": (lambda: Net().double(), r"^body.weight: is of float64, .* net\.float\(\)"),
    "a half part": (lambda: Around(Net().bfloat16()), r"^part.body.weight: is of bfloat16"),
    "parallel": (lambda: nn.DataParallel(Net()), r"^the module: is wrapped in DataParallel; compile net\.module"),
    "distributed": (parallel, r"^the module: is wrapped in DistributedDataParallel; compile net\.module"),
    "no values": (lambda: Around(Net().to("meta")), "^part.body.weight: has no values .* load its weights"),
    "inference": (infer, r"^body.weight: was made under torch\.inference_mode"),
    "observed": (observe, r"^body\S*: is there for quantisation; .* as it was before"),
    "quantised": (quantise, "^0.head: is quantised, .* as it was before"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_trained_says_what_to_do(kind):
    make, words = REFUSED[kind]
    with pytest.raises(CompileError, match=words) as told:
        compile_it(make())
    assert "\n" not in str(told.value)
