"""Completion in real shells, and the manual page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_man_page import PAGE, page
from tests.cli.running import run
from tests.needs import needs_fish, needs_man, needs_zsh

_ASK = {
    "bash": (
        "source <(dsgen completion bash); COMP_WORDS=({words}); COMP_CWORD={last}; "
        "_dsgen_completion dsgen; "
        'printf "%s\\n" "${{COMPREPLY[@]}}"'
    ),
    "fish": "dsgen completion fish | source; complete -C '{words}'",
    "zsh": (
        "autoload -Uz compinit; compinit -D; source <(dsgen completion zsh); "
        "words=({words}); CURRENT={last}+1; "
        "compdef() {{ :; }}; _describe() {{ print -rl -- ${{(P)3}} }}; "
        "compadd() {{ print -rl -- ${{(P)${{@[-1]}}}} }}; _dsgen_completion"
    ),
}


def completed(shell: str, words: str) -> list[str]:
    """What a shell offers for the last of some words."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = _ASK[shell].format(words=words, last=len(words.split()) - 1)
    flags = ["-f", "-c"] if shell == "zsh" else ["-c"]
    done = subprocess.run(
        [shell, *flags, script], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    return [line.split("\t")[0].split(":")[0] for line in done.stdout.splitlines() if line]


@pytest.mark.integration
@pytest.mark.parametrize(
    "shell", ["bash", pytest.param("zsh", marks=needs_zsh), pytest.param("fish", marks=needs_fish)]
)
def test_shells_complete(shell: str) -> None:
    """Commands, options, those of the default command, and choices are completed in each shell."""
    assert completed(shell, "dsgen val") == ["validate"]
    assert "--fail-on" in completed(shell, "dsgen validate --fail")
    assert "--gpus" in completed(shell, "dsgen --gp")
    assert "sarif" in completed(shell, "dsgen validate --format sa")


def test_other_shells_are_refused() -> None:
    """A shell that isn't known is a usage error with those that are."""
    answer = run("completion", "tcsh")
    assert answer.exit_code == 2 and "'bash', 'zsh', 'fish'" in answer.stderr


def test_man_page_is_fresh(update_golden: bool) -> None:
    """man/dsgen.1 is what the commands' help gives; --update-golden writes it."""
    if update_golden:
        PAGE.write_text(page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.integration
@needs_man
def test_man_page_renders() -> None:
    """man shows the page without a warning, with every command."""
    command = ["man", "--warnings", "-E", "UTF-8", "-l", str(PAGE)]
    shown = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "MANWIDTH": "80"}
    )
    assert shown.returncode == 0 and not shown.stderr
    assert all(f"dsgen {name}" in shown.stdout for name in ("generate", "validate", "completion"))
