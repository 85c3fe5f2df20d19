"""What is wrong on a command line is told of with the usage of its own command, and the nearest word; the doors."""

import pytest

from edge_sdk.cli import DOORS, main, make_parser


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (["replay", "wrist", "--bogus"], "auscult replay"),
        (["bundle", "inspect", "a.bundle", "--bogus"], "auscult bundle inspect"),
        (["bundle", "compile", "mlp", "--bogus"], "auscult bundle compile"),
        (["pretrain", "wrist", "-o", "private", "--bogus"], "auscult pretrain"),
        (["runs", "ls", "--bogus"], "auscult runs ls"),
        (["serve", "--bogus"], "auscult serve"),
    ],
)
def test_a_wrong_option_comes_with_the_usage_of_its_command(
    given: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        main(given)
    told = capsys.readouterr().err
    assert exit.value.code == 2
    assert told.startswith(f"usage: {command} [-h]")
    assert f"{command}: error: unrecognized arguments: --bogus" in told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["replya", "wrist"], "there is no replya; perhaps replay"),
        (["replay", "wrist", "--ronds", "3"], "unrecognized arguments: --ronds 3; perhaps --rounds"),
        (["replay", "wrist", "--ronds=3"], "unrecognized arguments: --ronds=3; perhaps --rounds"),
        (["simulate", "wrist", "--calls", "epohc"], "argument --calls: there is no epohc; perhaps epoch"),
        (["simulate", "wrist", "--calls", "often"], "there is no often; there are epoch, step, cohort"),
        (["frobnicate"], "there is no frobnicate; see auscult --help"),
        (["bundle", "verfy", "a.bundle"], "there is no verfy; perhaps verify"),
        (["serve", "--databse=x"], "unrecognized arguments: --databse=x; perhaps --database"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest_right_one(given, words, capsys):
    with pytest.raises(SystemExit) as exit:
        main(given)
    assert exit.value.code == 2
    assert words in capsys.readouterr().err


def test_without_arguments_there_are_five_doors(capsys):
    with pytest.raises(SystemExit) as exit:
        main([])
    told = capsys.readouterr().out
    assert exit.value.code == 0 and len(DOORS) == 5
    assert all(f"  {door}" in told for door in DOORS) and len(told.splitlines()) < 20


def test_every_command_is_behind_one_door(capsys):
    named = [name for _, names in DOORS.values() for name in names.split()]
    parsers = next(a for a in make_parser()._actions if isinstance(a.choices, dict))
    assert sorted(named) == sorted(parsers.choices)
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert all(f"\n  {name} " in told or f"\n  {name}\n" in told for name in named)
