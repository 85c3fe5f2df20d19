"""Makes coders from the annotations of dataclasses: what may be written is decided once, and completely.

Everything that can be reached from the roots through annotations is found here. An annotation whose values could not be
checked on arrival is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from edge_sdk.algebra.arrays import FLOAT, Tensor, Within
from edge_sdk.algebra.vectors import Layout
from edge_sdk.contract.records import is_record
from edge_sdk.errors import UsageError
from edge_sdk.wire.codec.coders import RANGED, SCALARS, Coder, fixed_tuple, mapping, names, sequence, tensor, within
from edge_sdk.wire.codec.composites import Step, anything, dataclass_coder, union, written_name

SUPPORTED = (
    "int, float, bool, str, bytes, None, tuple[X, ...], tuple[X, Y], Mapping[str, X], frozenset[str], X | Y, Any, "
    "frozen dataclasses, and arrays as Annotated[..., Tensor(dims, dtype)]"
)


class Schema:
    """Coders of some dataclasses.

    Args:
        roots: frozen dataclasses: what a message may be, and what may lie in a field of type Any.
        layout: sets the symbol "n" of shapes, and is handed to each message's own `check`.
        dtype: element type that "float" stands for in this run.
        checks: what is read is a peer's, so each number has a range, and each message checks itself.

    Raises:
        UsageError: a class or an annotation that cannot be written, with its name.
    """

    def __init__(self, roots: Iterable[type], layout: Layout | None, dtype: npt.DTypeLike, checks: bool = True) -> None:
        self._layout, self._float = layout, float_name(dtype)
        self._checked_with = layout if checks else None
        self._scalars = SCALARS if self._checked_with is None else RANGED
        self._coders: dict[type, Coder] = {}
        self._names: dict[str, type] = {}
        self._generic: dict[Any, Callable[[Any, str], Coder]] = {
            Annotated: self._annotated,
            tuple: self._tuple,
            Mapping: self._mapping,
            frozenset: self._frozenset,
            Set: self._frozenset,
            Union: self._union,
            UnionType: self._union,
        }
        self.roots: dict[str, Coder] = {}
        self._any = anything(self.roots)
        for root in roots:
            self.roots[written_name(root)] = self._dataclass(root, "roots")

    def _dataclass(self, cls: type, where: str) -> Coder:
        if known := self._coders.get(cls):
            return known
        if not (isinstance(cls, type) and is_dataclass(cls) and is_frozen(cls)):
            raise UsageError(f"{where}: {cls!r} is no frozen dataclass")
        other = self._names.setdefault(name := written_name(cls), cls)
        if other is not cls:
            raise UsageError(f"{where}: two classes are named {name}, of {other.__module__} and {cls.__module__}")
        steps: list[Step] = []
        coder = dataclass_coder(cls, steps, self._checked_with)
        self._coders[cls] = coder  # before its fields, which may name it
        steps += self._steps(cls)
        return coder

    def _steps(self, cls: type) -> Iterable[Step]:
        try:
            hints = get_type_hints(cls, include_extras=True)
        except Exception as error:
            raise UsageError(f"{cls.__name__}: its annotations cannot be read: {error}") from error
        for field in fields(cls):
            where = f"{cls.__name__}.{field.name}"
            if not field.init:
                raise UsageError(f"{where}: a field with init=False cannot be read back")
            coder = self._coder(hints[field.name], where)
            required = field.default is MISSING and field.default_factory is MISSING
            yield field.name, coder.encode, coder.decode, required

    def _coder(self, hint: Any, where: str) -> Coder:
        if hint is Any:
            return self._any
        if hint is None or (isinstance(hint, type) and hint in SCALARS):
            return self._scalars[hint or type(None)]
        if isinstance(hint, type) and is_dataclass(hint):
            return self._dataclass(hint, where)
        if make := self._generic.get(get_origin(hint)):
            return make(hint, where)
        raise unsupported(hint, where)

    def _annotated(self, hint: Any, where: str) -> Coder:
        specs = [m for m in hint.__metadata__ if isinstance(m, Tensor)]
        ranges = [m for m in hint.__metadata__ if isinstance(m, Within)]
        if ranges and self._checked_with is not None:
            return within(SCALARS[hint.__origin__], ranges[0].least, ranges[0].most)
        if not specs:
            return self._coder(hint.__origin__, where)
        if len(specs) > 1 or not is_array(hint.__origin__):
            raise UsageError(f"{where}: one Tensor annotates one numpy array, got {hint}")
        n = self._layout.size if self._layout is not None else "n"
        dims = tuple(n if d == "n" else d for d in specs[0].dims)
        return tensor(Tensor(dims, self._float if specs[0].dtype == FLOAT else specs[0].dtype))

    def _tuple(self, hint: Any, where: str) -> Coder:
        items = get_args(hint)
        if len(items) == 2 and items[1] is Ellipsis:
            return sequence(self._coder(items[0], where))
        return fixed_tuple(tuple(self._coder(item, where) for item in items))

    def _mapping(self, hint: Any, where: str) -> Coder:
        key, value = get_args(hint)
        if key is not str:
            raise unsupported(hint, where)
        return mapping(self._coder(value, where))

    def _frozenset(self, hint: Any, where: str) -> Coder:
        if get_args(hint) != (str,):
            raise unsupported(hint, where)
        return names()

    def _union(self, hint: Any, where: str) -> Coder:
        if Any in get_args(hint):
            raise UsageError(f"{where}: Any takes in the rest of {hint}, write Any")
        return union(tuple(self._coder(member, where) for member in get_args(hint)), where)


def float_name(dtype: npt.DTypeLike) -> str:
    name = np.dtype(dtype).name
    if name not in ("float32", "float64"):
        raise UsageError(f"dtype = {name}, a run computes in float32 or float64")
    return name


def is_array(hint: Any) -> bool:
    """True for `np.ndarray` and `NDArray[...]`, which is an alias of its own from numpy 2.5 on."""
    origin = get_origin(hint) or hint
    origin = getattr(origin, "__value__", origin)
    return (get_origin(origin) or origin) is np.ndarray


def unsupported(hint: Any, where: str) -> UsageError:
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return UsageError(f"{where}: {text} cannot be written; what can: {SUPPORTED}")


def is_frozen(cls: Any) -> bool:
    return bool(cls.__dataclass_params__.frozen or is_record(cls))
