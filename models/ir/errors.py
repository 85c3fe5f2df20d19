"""The reasons why a module cannot be compiled; each has a class of its own, so that a caller can tell them apart."""

from __future__ import annotations


class CompileError(Exception):
    """The module cannot become a bundle; the message says what is wrong and what to use instead."""


class UnsupportedOperator(CompileError):
    """An ONNX operator without a gradient rule."""

    def __init__(self, operator: str, where: str, advice: str = "") -> None:
        self.operator, self.where = operator, where
        hint = advice or "express it with supported operators (models/README.md lists them)"
        super().__init__(f"{where or 'the module'}: operator {operator} has no gradient rule; {hint}")


class UnsupportedPattern(CompileError):
    """A supported operator, used in a way that its rule does not cover."""

    def __init__(self, what: str, where: str = "", advice: str = "") -> None:
        self.what, self.where, self.advice = what, where, advice
        super().__init__(f"{where + ': ' if where else ''}{what}" + (f"; {advice}" if advice else ""))


class TrainModeExport(CompileError):
    """A part of the module behaves differently in training; the graph would only hold its evaluation form."""


class DetachedGradient(CompileError):
    """`detach`, `no_grad` or `.data`: autograd stops there, but an exported forward graph does not show it."""


class DataDependentControlFlow(CompileError):
    """Python branches or shapes that depend on values."""


class BatchSpecialised(CompileError):
    """The exported graph works for one batch size only."""


class UnknownShape(CompileError):
    """The shape of a value is neither fixed nor proportional to the batch."""


class ParityError(CompileError):
    """The compiled graph and torch's autograd disagree. No bundle is written."""

    def __init__(self, kind: str, case: str, slot: str, error: float, limit: float, advice: str = "") -> None:
        self.kind, self.case, self.slot, self.error, self.limit, self.advice = kind, case, slot, error, limit, advice
        super().__init__(
            f"parity ({kind}, {case}): error {error:.2e} at {slot}, the limit is {limit:.0e}: the bundle is not written"
            + (f"; {advice}" if advice else "")
        )
