"""An option that nobody knows is told of with the usage of its own command."""

import pytest

from edge_sdk.cli import main


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
