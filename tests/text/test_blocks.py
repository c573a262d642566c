"""Blocks that don't fit together are told where bash tells them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from dsgen.text.shell.blocks import fault_in
from dsgen.text.shell.tokens import Tokens

#: A script with every kind of block.
_WHOLE = """\
launch() {
  if [ -n "$1" ]; then
    cat <<END
done
END
  elif [[ $2 ]]
  then
    echo fi
  else
    python train.py \\
      --seed 1
  fi
}
for seed in 1 2; do
  case $1 in
    a|b)
      launch "$seed" || exit 1
      ;;
    (*) (
      while sleep 1; do
        launch
      done > log 2>&1
    ) & ;;
  esac
done
"""
_WORDS = ("done", "fi", "esac", "}", "then", "do", "else", ")", ";;", "if true", "{", "(")
_END = re.compile(r"unexpected (?:end of file|EOF)")
_TOKEN = re.compile(r"line (\d+): syntax error near unexpected token `(.*?)'")


def changed_scripts(change: str) -> Iterator[str]:
    """The script with a change at each of its lines."""
    lines = _WHOLE.splitlines(keepends=True)
    for at in range(len(lines)):
        if change == "left out":
            yield "".join((*lines[:at], *lines[at + 1 :]))
        else:
            yield "".join((*lines[:at], f"{change}\n", *lines[at:]))


def told_by_bash(script: str) -> tuple[int, str] | None:
    """The line and the word that bash names; line 0 is the end, and None says that nothing is
    wrong.
    """
    command, environment = ["bash", "-n"], {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        command, input=script, capture_output=True, text=True, env=environment, check=False
    )
    token = _TOKEN.search(run.stderr)
    if token:
        return int(token[1]), token[2]
    return (0, "") if _END.search(run.stderr) else None


@pytest.mark.parametrize("change", ["left out", *_WORDS])
def test_faults_are_where_bash_has_them(change: str) -> None:
    """A word that bash doesn't expect is the one that is told, or nothing is."""
    told = 0
    for script in changed_scripts(change):
        tokens = Tokens(script)
        fault = fault_in(tokens.found, script)
        if fault is None or tokens.unterminated is not None:
            continue
        told += 1
        line = script.count("\n", 0, fault.at) + 1 if fault.word else 0
        by_bash = told_by_bash(script)
        assert by_bash is not None, script
        # bash names the end of the line behind a word that it takes for a pattern.
        assert by_bash in ((line, fault.word), (line, "newline")), script
    assert told >= 8
