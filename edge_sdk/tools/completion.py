"""`auscult completion bash`: a script with which a shell completes commands and options. It is made of the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

SHELLS = ("bash", "zsh")
SCRIPT = """# source <(auscult completion {shell})
{prelude}_auscult() {{
    local words="" path="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$word" in -*) ;; *) path="$path $word" ;; esac
    done
    case "${{path# }}" in
{cases}
        *) words="" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}") $(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o filenames -F _auscult auscult
"""
PRELUDE = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}


def add_completion(commands: Any, parents: Any, make_parser: Callable[[], argparse.ArgumentParser]) -> None:
    """Adds the command. `make_parser`: makes the parser of everything, which it describes."""
    words = "print a script that completes commands and options in a shell"
    command = commands.add_parser("completion", help=words, description=words, parents=parents)
    command.add_argument("shell", choices=SHELLS)
    command.set_defaults(do=lambda options: print(make_script(make_parser(), options.shell), end=""))


def make_script(top: argparse.ArgumentParser, shell: str) -> str:
    """The script for one shell."""
    cases = [f'        "{path}"*) words="{" ".join(words)}" ;;' for path, words in reversed(list(list_words(top)))]
    return SCRIPT.format(shell=shell, prelude=PRELUDE[shell], cases="\n".join(cases))


def list_words(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Commands, each with the words that may follow it: commands below it and its options."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    options = [text for action in parser._actions for text in action.option_strings if text.startswith("--")]
    yield path, [*(name for action in below for name in action.choices), *options]
    for action in below:
        for name, child in action.choices.items():
            yield from list_words(child, f"{path} {name}".strip())
