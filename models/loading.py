"""Finds and builds the module that a command line names: FILE.py:NAME, package:NAME, or a network's name."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from edge_sdk.data.augment import AMOUNTS, Augment
from edge_sdk.errors import UsageError
from edge_sdk.models.ir.errors import CompileError
from edge_sdk.models.zoo import Entry


def build_module(text: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The module that calling `text` gives: a class, or a function that builds one.

    Raises:
        CompileError: there is none, or calling it fails; nothing of the file's own is passed on as a traceback.
    """
    function = load_attribute(text)
    try:
        made = function(**arguments)
    except Exception as error:
        given = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
        raise CompileError(
            f"{text}: calling it with ({given}) fails: {name_error(error)}; give arguments with --arg NAME=VALUE"
        ) from error
    if not isinstance(made, nn.Module):
        raise CompileError(f"{text}: calling it gives a {type(made).__name__}, expected a torch.nn.Module")
    return made


def build_entry(name: str, entry: Entry, shape: tuple[int, ...], classes: int, texts: Sequence[str]) -> nn.Module:
    """A network by its name, with the arguments of --arg.

    Raises:
        CompileError: it takes no such arguments, or cannot be built of this size.
    """
    try:
        net = entry.build(shape, classes, **read_arguments(texts))
    except CompileError:
        raise
    except Exception as error:
        given = f"--arg {' '.join(texts)}" if texts else f"{name}, with input {shape} and {classes} classes"
        raise CompileError(f"{given}: {name_error(error)}") from error
    if not isinstance(net, nn.Module):
        raise CompileError(f"{name}: calling it gives a {type(net).__name__}, expected a torch.nn.Module")
    return net


EXAMPLES = {"--arg": "width=64", "--augment": "rotation=0.25"}


def read_arguments(texts: Sequence[str], option: str = "--arg") -> dict[str, Any]:
    """NAME=VALUE as arguments; values are Python's numbers, text, lists, True, None; other words are text."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not value or not name.isidentifier():
            raise CompileError(f"{option} {text}: expected NAME=VALUE, e.g. {option} {EXAMPLES[option]}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def read_augmentation(texts: Sequence[str]) -> Augment:
    """The augmentation of --augment KEY=VALUE.

    Raises:
        CompileError: there is no such change, or its amount is none.
    """
    given = read_arguments(texts, "--augment")
    for name, amount in given.items():
        if name not in AMOUNTS or isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise CompileError(f"--augment {name}={amount}: expected KEY=NUMBER, with a key of {', '.join(AMOUNTS)}")
    try:
        return Augment(**given)
    except UsageError as error:
        raise CompileError(f"--augment {error}") from error


def load_attribute(text: str) -> Any:
    """The class or function that `file.py:Name` or `package.module:name` names."""
    home, _, name = text.rpartition(":")
    if not home:
        raise CompileError(f"{text}: expected a model of the zoo, FILE.py:NAME or PACKAGE:NAME")
    try:
        module = import_file(Path(home)) if home.endswith(".py") else importlib.import_module(home)
    except CompileError:
        raise
    except ModuleNotFoundError as error:
        raise CompileError(f"{text}: {error}; install it, or put the file beside {home}") from error
    except Exception as error:
        raise CompileError(f"{home} cannot be imported: {name_error(error)}") from error
    if not hasattr(module, name):
        raise CompileError(f"{home} has no {name!r}")
    return getattr(module, name)


def import_file(file: Path) -> Any:
    """Import a Python file; files beside it can be imported by it."""
    if not file.is_file():
        raise CompileError(f"{file}: there is no such file")
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise CompileError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    spec.loader.exec_module(module)
    return module


def name_error(error: BaseException) -> str:
    """Type and first line of an error."""
    lines = str(error).strip().split("\n")
    return f"{type(error).__name__}: {lines[0][:200]}" if lines[0] else type(error).__name__
