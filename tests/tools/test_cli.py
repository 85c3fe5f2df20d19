"""The command line itself: version, help, options before and after a command, a reader that goes away."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from edge_sdk.cli import NO_READER, WORDS, find_command, main, make_parser, split_arguments

CLI = [sys.executable, "-m", "edge_sdk.cli"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"auscult {importlib.metadata.version('auscult')}\n"


@pytest.mark.parametrize(
    ("arguments", "level"),
    [
        (["doctor"], None),
        (["--log", "debug", "doctor"], "debug"),
        (["doctor", "--log", "debug"], "debug"),
        (["--log", "error", "doctor", "--log", "debug"], "debug"),
        (["--log=error", "bundle", "verify", "x"], "error"),
        (["bundle", "verify", "--log=error", "x"], "error"),
    ],
)
def test_the_level_may_stand_before_and_after_the_command(arguments: list[str], level: str | None) -> None:
    assert make_parser().parse_args(arguments).log == level


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (["bundle", "compile", "--help"], ["bundle", "compile"]),
        (["--log", "debug", "bundle", "compile", "--seed", "1", "mlp"], ["--log", "debug", "bundle", "compile"]),
        (["--log=debug", "pretrain", "x"], ["--log=debug", "pretrain"]),
        (["bundle", "verify", "x"], ["bundle", "verify", "x"]),
        (["replay", "pretrain"], ["replay", "pretrain"]),
        (["traces", "synth", "pretrain"], ["traces", "synth", "pretrain"]),
    ],
)
def test_some_commands_read_their_own_arguments(arguments: list[str], given: list[str]) -> None:
    assert split_arguments(arguments) == (given, arguments[len(given) :])


def list_commands(only: str | None) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Name of each command -> what its help says, and its parser."""
    top = make_parser(only)
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    return {action.dest: (str(action.help), commands.choices[action.dest]) for action in commands._choices_actions}


def test_a_command_is_the_same_whether_the_others_are_loaded_or_not() -> None:
    every = list_commands(None)
    assert {name: words for name, (words, _) in every.items()} == WORDS
    assert list(list_commands("")) == list(every)
    for name, (words, parser) in every.items():
        alone = list_commands(name)[name]
        assert alone[0] == words
        assert alone[1].format_help() == parser.format_help()


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], ""),
        (["--help"], ""),
        (["--log", "debug", "--version"], ""),
        (["replay", "--help"], "replay"),
        (["--log", "debug", "doctor"], "doctor"),
        (["--log=debug", "doctor", "replay"], "doctor"),
        (["replya"], None),
        (["--bogus", "replay"], None),
    ],
)
def test_the_command_that_is_given_is_found(arguments: list[str], command: str | None) -> None:
    assert find_command(arguments) == command


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["replay", "--help"]])
def test_what_is_not_asked_for_is_not_loaded(arguments: list[str]) -> None:
    run = f"import sys; from edge_sdk.cli import main\ntry: main({arguments})\n"
    code = f"{run}finally: print(*sys.modules, file=sys.stderr)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    assert {"edge_sdk.tools.board", "edge_sdk.simulation.runs.commands", "onnxruntime"}.isdisjoint(loaded)
    assert arguments[0] == "replay" or "numpy" not in loaded


@pytest.mark.parametrize("command", [["bundle", "compile"], ["pretrain"]])
def test_help_of_a_command_with_its_own_parser(command: list[str]) -> None:
    pytest.importorskip("torch", reason="only the compiler and the pretraining know their options")
    done = subprocess.run([*CLI, *command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--seed" in done.stdout, done.stderr
    assert done.stdout.startswith(f"usage: auscult {' '.join(command)} "), "as the user has typed it"


def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    """As in `auscult doctor | head -0`: the pipe is closed before anything is written."""
    command = [*CLI, "doctor", "--directory", str(tmp_path)]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == NO_READER
    assert (tmp_path / "said").read_text() == ""


def test_a_path_that_cannot_be_written_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["doctor", "--directory", str(tmp_path / "file" / "x")]) == 1
    assert main(["traces", "synth", str(tmp_path / "file" / "x"), "--devices", "1", "--minutes", "1"]) == 1
    assert capsys.readouterr().err.startswith("auscult: [Errno 20] Not a directory")


def test_wrong_settings_of_an_aggregator_are_told_before_torch_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_sdk.cli.import_extra", lambda name: pytest.fail(f"{name} is loaded"))
    path = tmp_path / "cloud.toml"
    for text, said in (("name = ", "cloud.toml"), ('nome = "agg"', "nome"), (None, "cannot be read")):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        assert main(["aggregator", str(path)]) == 2
        assert said in capsys.readouterr().err


def test_what_others_have_written_moves_nothing_on_a_terminal(tmp_path: Path) -> None:
    """A label of somebody's file could set the window's title, or write over the lines above it."""
    rows = "".join(f"{n},{n % 7},walk\x1b]0;mine\x07\u202e\n" for n in range(90))
    (tmp_path / "a.csv").write_text("time,ax,activity\n" + rows)
    main_end, terminal = pty.openpty()
    command = [*CLI, "traces", "check", str(tmp_path)]
    with subprocess.Popen(command, stdout=terminal, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        os.close(terminal)
        said = b""
        with suppress(OSError):  # a terminal that nobody holds any more
            while part := os.read(main_end, 4096):
                said += part
        assert process.wait(60) == 0
    os.close(main_end)
    assert rb"walk\x1b]0;mine\x07\u202e" in said and not {0x1B, 0x07} & {*said}, said
    piped = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
    assert b"walk\x1b]0;mine" in piped.stdout, "what a program reads on stays as it is"
