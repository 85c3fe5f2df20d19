"""Whatever a module keeps in Python beside its own numbers and tensors, and what follows from it.

Lists and tables that grow, attributes of classes, globals, variables around a function: calls may change them without
harm where no result or gradient is another one with them, at these parameters and at others.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from edge_sdk.models.frontend.kept.calls import LARGER, Call, Seen, part, run_once, try_once
from edge_sdk.models.frontend.kept.counts import find_counts
from edge_sdk.models.frontend.kept.holders import NUMBERS, SEQUENCES, is_iterator
from edge_sdk.models.frontend.kept.remembered import Unnamed
from edge_sdk.models.frontend.kept.snapshots import Length, Path, Snapshot, list_names, take_snapshot
from edge_sdk.models.frontend.modules.randomness import set_training
from edge_sdk.models.frontend.modules.training import BATCH
from edge_sdk.models.ir.errors import UnsupportedPattern

MOST_NAMED = 3
LONGEST = 10_000
"""Elements of a container that is tried."""
ADVICE = (
    "a device starts anew with each call and keeps nothing of it; leave it out, make it an input, or change it outside "
    "of forward, before the module is compiled"
)


def refuse_iterators(net: nn.Module) -> None:
    """Raise UnsupportedPattern for an iterator that a module's code names: it gives something else at each call."""
    found = take_snapshot(net, copied=False)
    names = set[str]().union(*(list_names(f.__code__) | {*f.__code__.co_freevars} for f in found.functions.values()))
    for path, value in found.values.items():
        if is_iterator(value) and any(key in names for key in path if isinstance(key, str)):
            place = found.places[path]
            what = f"{place.words} is an iterator ({type(value).__name__}), which gives something else at each call"
            raise UnsupportedPattern(what, place.where or "the module", ADVICE)


def refuse_python_state(
    net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], output: str, dropout: str
) -> None:
    """Raise for a module that changes something in Python on which its result or a gradient depends.

    Classes and globals, which a copy of a module shares with it, are as before afterwards.

    Args:
        output, dropout: as of Spec.

    Raises:
        UnsupportedPattern: with the path of the module and the name of what it changes.
    """
    given = [e[:BATCH] for e in examples]
    net, call = copy.deepcopy(net), partial(run_once, arguments=arguments, output=output, drawn=dropout == "keep")
    further = [e * LARGER if e.is_floating_point() else e for e in given]
    usual: Call = partial(call, given=given)
    before = take_snapshot(net)
    if not before.functions:
        return
    try:
        for training, inputs in ((True, given), (True, given), (True, further), (False, given)):
            set_training(net, others=training)
            try_once(net, partial(call, given=inputs))
        after = take_snapshot(net, before)
        if changed := before.find_changes(after):
            refuse_followed(net, before, after, changed, usual)
    finally:
        before.restore()


def is_own(net: nn.Module, path: Path, value: Any) -> bool:
    """True for a parameter, buffer, number or tensor of a module itself, of which training_state.py tries values."""
    named = len(path) > 1 and path[1] in ("_parameters", "_buffers")
    plain = len(path) == 2 and isinstance(value, (bool, int, float, torch.Tensor))
    return isinstance(path[0], str) and path[0] in dict(net.named_modules()) and path[1:2] != () and (named or plain)


def refuse_followed(net: nn.Module, before: Snapshot, after: Snapshot, changed: Sequence[Path], call: Call) -> None:
    """Raise UnsupportedPattern where another result or gradient follows from what has changed."""
    for training in (True, False):
        for moved in (False, True):
            seen = run_at(net, before, training, moved, call)
            if seen is None or not is_equal_run(seen, run_at(net, before, training, moved, call)):
                continue  # it does not run, or draws numbers of its own
            if not is_equal_run(seen, run_at(net, after, training, moved, call)):
                raise refuse_places(after, changed)
            for path in [] if moved else [p for p in changed if not is_own(net, p, after.values[p])]:
                for value in list_values(net, after, path):
                    if not is_equal_run(seen, run_at(net, after, training, moved, call, path, value)):
                        raise refuse_places(after, [path])


def run_at(
    net: nn.Module, state: Snapshot, training: bool, moved: bool, call: Call, path: Path = (), value: Any = None
) -> Seen | None:
    """What a call makes in one state, at other parameters if `moved`, with another value in one place."""
    state.restore()
    set_training(net, others=training)
    if moved:
        part(net)
    if path and not put(state, path, value):
        return None
    return try_once(net, call)


def put(state: Snapshot, path: Path, value: Any) -> bool:
    """Put a value, or the items of a container, in a place; False: that is in something that never changes."""
    if path in state.holders and (write := state.holders[path].write) is not None:
        write(value)
        return True
    return state.write(path, value)


def is_equal_run(a: Seen, b: Seen | None) -> bool:
    """True for two calls that made the same."""
    return b is not None and a.equals(b)


def list_values(net: nn.Module, state: Snapshot, path: Path) -> Iterator[Any]:
    """Values of a count that are far ahead; contents of a container that has grown."""
    value = state.values[path]
    if isinstance(value, Length):
        holder = state.holders.get(path)
        for count in find_counts(net) if holder is not None and holder.write is not None else ():
            if count <= LONGEST and (items := stretch(state, path, count)) is not None:
                yield items
    elif isinstance(value, NUMBERS) and state.setters[path][0].write is not None:
        yield from (type(value)(count) for count in find_counts(net)) if type(value) in (int, float) else ()


def stretch(state: Snapshot, path: Path, size: int) -> dict[Any, Any] | None:
    """The items of a container, over and over, until there are so many; None: it cannot have so many."""
    state.restore()
    holder, kind = state.holders[path], state.values[path].kind
    items = [*holder.read().items()]
    if not items:
        return None
    if issubclass(kind, SEQUENCES):
        return {i: items[i % len(items)][1] for i in range(size)}
    keys, (_, last) = [k for k, _ in items][:size], items[-1]
    if issubclass(kind, dict) and all(type(k) in (int, str) for k in keys):
        more = {type(keys[-1])(f"{i + 1_000_000}"): last for i in range(size - len(keys))} if keys else {}
        return {**dict(items[:size]), **more}
    return None


def refuse_places(state: Snapshot, paths: Sequence[Path]) -> UnsupportedPattern:
    """The error of a module that keeps something in Python, in one of these places."""
    words = " or ".join(dict.fromkeys(state.places[p].words for p in paths[:MOST_NAMED]))
    what = f"{words} in Python changes with each call, and results or gradients with it"
    return UnsupportedPattern(what, state.places[paths[0]].where or "the module", ADVICE)


@contextmanager
def named_state(
    net: nn.Module, examples: Sequence[torch.Tensor], arguments: Sequence[str], output: str, dropout: str
) -> Iterator[None]:
    """Name what a module keeps where a check has only seen that its results change from call to call."""
    try:
        yield
    except Unnamed:
        refuse_python_state(net, examples, arguments, output, dropout)
        raise
