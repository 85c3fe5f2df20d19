"""What forward keeps in lists, classes, globals and functions: refused by its name if anything follows from it."""

import itertools
import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edge_sdk.models.bundle.compile import compile_module
from edge_sdk.models.frontend.kept.counts import find_counts
from edge_sdk.models.frontend.kept.snapshots import take_snapshot
from edge_sdk.models.ir.errors import UnsupportedPattern
from edge_sdk.models.ir.specification.spec import Spec

CALLS = 0
SETTINGS = types.SimpleNamespace(calls=0, every=100)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 3)
        self.seen, self.cache, self.calls = [], {}, 0

    def make(self, x, factor=1):
        return self.head(torch.tanh(self.body(x))) * factor


class Listing(Net):
    """A factor by the length of a list that grows."""

    def forward(self, x):
        if self.training:
            self.seen.append(x.shape[0])
        return self.make(x, 1 + len(self.seen) // 100)


class OfClass(Net):
    """A factor by a count of the class."""

    n = 0

    def forward(self, x):
        type(self).n += self.training
        return self.make(x, 1 + type(self).n // 100)


class OfFile(Net):
    """A factor by a count of the file."""

    def forward(self, x):
        global CALLS
        CALLS += self.training
        return self.make(x, 1 + CALLS // 100)


class OfObject(Net):
    """Every hundredth call stops the gradient, as an object of the file counts."""

    def forward(self, x):
        SETTINGS.calls += self.training
        made = self.make(x)
        return made.detach() if self.training and SETTINGS.calls % SETTINGS.every == 0 else made


def around():
    n = 0

    class OfFunction(Net):
        """A factor by a count of the function around the class."""

        def forward(self, x):
            nonlocal n
            n += self.training
            return self.make(x, 1 + n // 100)

    return OfFunction()


class Defaults(Net):
    """A factor by a default that grows."""

    def forward(self, x, seen=[]):  # noqa: B006
        seen += [0] * self.training
        return self.make(x, 1 + len(seen) // 100)


class Iterating(Net):
    """A factor by an iterator."""

    def __init__(self):
        super().__init__()
        self.count = itertools.count()

    def forward(self, x):
        return self.make(x, 1 + (next(self.count) if self.training else 0) // 100)


class Every(Net):
    """Every 97th call stops the gradient."""

    def forward(self, x):
        self.calls += self.training
        made = self.make(x)
        return made.detach() if self.training and self.calls % 97 == 96 else made


class EveryInTensor(Net):
    """The same with a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.steps += self.training
        made = self.make(x)
        return torch.where(self.steps % 97 == 96, made.detach(), made) if self.training else made


class Remembering(Net):
    """The first batch of each size is remembered."""

    def forward(self, x):
        h = self.body(x)
        if self.training:
            h = h + 0.1 * self.cache.setdefault(x.shape[0], torch.zeros_like(h))
            self.cache[x.shape[0]] = h.detach()
        return self.head(h)


class OldWeights(Net):
    """Weights that were cached at the first call, which are the present ones until these are trained."""

    def forward(self, x):
        w = self.cache.setdefault("w", self.body.weight.detach().clone()) if self.training else self.body.weight
        return self.make(x) + F.linear(x, w - self.body.weight)[:, :3]


class OldTensor(Net):
    """The same in an attribute of its own."""

    def forward(self, x):
        if self.training and not hasattr(self, "old"):
            self.old = self.body.weight.detach().clone()
        return self.make(x) + (F.linear(x, self.old - self.body.weight)[:, :3] if self.training else 0)


class Meter:
    """A count as helpers keep it."""

    def __init__(self):
        self.total = 0

    def update(self, n):
        self.total += n


class OfHelper(Net):
    """A factor by what a helper of another class counts."""

    def __init__(self):
        super().__init__()
        self.meter = Meter()

    def forward(self, x):
        self.meter.update(int(self.training))
        return self.make(x, 1 + self.meter.total // 100)


def count_calls():
    count_calls.calls = getattr(count_calls, "calls", 0) + 1
    return count_calls.calls


class OfAttribute(Net):
    """A factor by the attribute of a function."""

    def forward(self, x):
        return self.make(x, 1 + (count_calls() // 100 if self.training else 0))


def hooked():
    net, calls = Net(), []

    def scale(layer, given, made):
        calls.extend([0] * layer.training)
        return made * (1 + len(calls) // 100)

    net.body.register_forward_hook(scale)
    net.forward = net.make
    return net


class Logging(Net):
    """Keeps losses, sizes and a table of positions in all of these places, and nothing follows from them."""

    n = 0
    kept = []  # noqa: RUF012

    def forward(self, x):
        global CALLS
        CALLS += 1
        type(self).n += 1
        self.kept.append(x.shape[0])
        self.seen.append(x.shape[0])
        if len(self.seen) % 100 == 0:
            self.seen.clear()
        if x.shape[1] not in self.cache:
            self.cache[x.shape[1]] = torch.arange(x.shape[1]) / 6
        return self.make(x + self.cache[x.shape[1]])


REFUSED = {
    "a list": (Listing, r"self\.seen in Python"),
    "a class": (OfClass, r"OfClass\.n in Python"),
    "a file": (OfFile, r"\S+\.CALLS in Python"),
    "an object": (OfObject, r"\S+\.SETTINGS in Python"),
    "a function": (around, r"around\S+, from around it: n in Python"),
    "a default": (Defaults, r"a default of Defaults\.forward in Python"),
    "an iterator": (Iterating, r"self\.count is an iterator \(count\)"),
    "every 97th call": (Every, r"self\.calls in Python"),
    "every 97th call by a buffer": (EveryInTensor, r"buffer steps"),
    "a batch": (Remembering, r"self\.cache in Python"),
    "old weights": (OldWeights, r"self\.cache in Python"),
    "an old tensor": (OldTensor, r"self\.old in Python"),
    "a helper": (OfHelper, r"self\.meter in Python"),
    "an attribute": (OfAttribute, r"count_calls\.calls in Python"),
    "a forward hook": (hooked, r"hooked\S+, from around it: calls in Python"),
}


class Around(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part

    def forward(self, x):
        return self.part(x)


@pytest.mark.parametrize("dropout", ["off", "keep"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_follows_from_what_is_kept_in_python_is_refused_by_name(kind, dropout):
    make, words = REFUSED[kind]
    with pytest.raises(UnsupportedPattern, match=rf"^part\S*: {words}"):
        compile_module(Around(make()).eval(), Spec("net", (6,), dropout=dropout), search=0)


@pytest.mark.parametrize("dropout", ["off", "keep"])
def test_what_is_kept_without_any_consequence_compiles(dropout):
    net = Logging().eval()
    assert compile_module(net, Spec("net", (6,), dropout=dropout), search=0).errors["float64"] < 1e-9
    assert all(type(n) is int for n in Logging.kept)


def test_a_snapshot_puts_everything_back():
    net = Logging()
    net(torch.zeros(2, 6))
    before, kept = take_snapshot(net), [CALLS, Logging.n, len(Logging.kept), len(net.seen)]
    weight = net.body.weight.detach().clone()
    net(torch.zeros(2, 6))
    with torch.no_grad():
        net.body.weight.zero_()
    net.extra = 1
    changed = {path[-1] for path in before.find_changes(take_snapshot(net))}
    assert changed == {"CALLS", "n", "kept", "seen", "weight", "extra"}
    before.restore()
    assert [CALLS, Logging.n, len(Logging.kept), len(net.seen)] == kept
    assert torch.equal(net.body.weight, weight) and not hasattr(net, "extra")


def test_counts_are_those_that_the_code_speaks_of():
    assert {95, 96, 97, 193} <= set(find_counts(Every()))
    assert {0, 1, 10, 1000, 1_000_000} <= set(find_counts(nn.Linear(2, 2)))


SESSION = """
from farther_library import Connection
CALLS, CONNECTION = 0, Connection()

def scale(x):
    global CALLS
    CALLS += 1
    return x * (1 + CALLS // 100)

def log(x):
    CONNECTION.send(x.shape[0])
    return x
"""
CONNECTION = """
class Connection:
    __slots__ = ("sent", "lazy")

    def __init__(self):
        self.sent = Sent()

    def __getattr__(self, name):
        raise RuntimeError(f"{name}: whoever looks at this opens a connection")

    def send(self, n):
        self.sent.count += n

class Sent:
    def __init__(self):
        self.count = 0
"""


@pytest.fixture
def near_library(monkeypatch):
    """A package that `forward` calls, and behind it another one."""
    found = {}
    for name, source in (("farther_library", CONNECTION), ("near_library", SESSION)):
        found[name] = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, found[name])
        exec(compile(source, name, "exec"), vars(found[name]))
    return found["near_library"]


def test_what_a_library_that_forward_calls_has_behind_it_is_left_alone(near_library):
    """Its own counts are looked at, and nothing is asked of, or put back in, what it holds of another package."""

    class Logged(Net):
        def forward(self, x):
            return self.make(near_library.log(x))

    class Scaled(Net):
        def forward(self, x):
            return self.make(near_library.scale(x))

    compile_module(Logged().eval(), Spec("logged", (6,)), search=0)
    assert near_library.CONNECTION.sent.count > 0
    with pytest.raises(UnsupportedPattern, match="CALLS"):
        compile_module(Scaled().eval(), Spec("scaled", (6,)), search=0)
