"""The command of an AzureML job: words that a shell takes as data, but for the paths that the service puts in.

The service replaces `${{inputs.NAME}}` and the like in the text of a command, and azure-ai-ml makes `${{inputs.NAME}}`
of `{inputs.NAME}` before; a shell of each process runs what comes out.
Source: azure-ai-ml azure/ai/ml/_utils/utils.py:845-869 (map_single_brackets_and_warn) @ 1.35.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ...dataclass import dataclass
from ...job.needs import EXPRESSION, Bindings
from ...search.plan import Plan
from ..launching.call import environment, shell_word
from ..program import ConfigPath, Program, Resume, step_to_reach

#: What the service or azure-ai-ml would replace, or leave out where it is optional.
_LIVE: Final = re.compile(r"\$(?=\{\{|\[\[)|(?<!\{)\{(?=(?:inputs|outputs|search_space)\.)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program's words, as the shell of a process is given them."""

    plan: Plan
    program: Program
    bound: Bindings
    apart: frozenset[str] = frozenset()  #: variables that are set in the command
    configs: Mapping[str, str]  #: what stands for the path of each configuration file, as a shell word

    @property
    def text(self) -> str:
        """The command: the variables that hold expressions or would be taken for some, then the program."""
        held_back = [f"{name}={word}" for name, word in self._held_back()]
        words = [*(("env", *held_back) if held_back else ()), "python", self._word(self.program.script)]
        words += map(self._word, self.program.arguments)
        return f'{self._find(resume)}{" ".join(words)} "$@"' if (resume := self.program.resume) else " ".join(words)

    @property
    def until_saved(self) -> str:
        """The end of a command that fails while the last step isn't saved; empty where status 0 is success."""
        step, job = step_to_reach(self.plan, self.program), self.plan.job
        if not step:
            return ""
        tracker = f"{self._word(str(job.output.checkpoints))}/{_data(str(job.framework.checkpoints.tracker))}"
        saved, why = (
            f'grep -qE "(^|[^0-9]){step}$" {tracker}',
            f"step {step} is not saved: submit the job again to resume",
        )
        return f' && {{ [ "$RANK" != 0 ] || {saved} || {{ echo "{why}"; exit 143; }}; }}'

    @property
    def variables(self) -> dict[str, str]:
        """The variables that are plain text to the service too."""
        held_back = {name for name, _ in self._held_back()}
        return {name: value for name, value in environment(self.plan, self.program).items() if name not in held_back}

    def _held_back(self) -> Iterator[tuple[str, str]]:
        own = self.plan.job.launch.environment
        for name, value in environment(self.plan, self.program).items():
            if name not in own and EXPRESSION.search(self.bound.word(value)):
                yield name, self._word(value)
            elif "${{" in value or name in self.apart:
                yield name, _data(value)

    def _word(self, value: str | ConfigPath) -> str:
        """One word to the shell, whatever the service puts in."""
        if isinstance(value, ConfigPath):
            return self.configs[value.name]
        text, end, parts = self.bound.word(value), 0, []
        for match in EXPRESSION.finditer(text):
            if match[2] in self.bound.section(match[1]):
                parts += [_data(text[end : match.start()]), expression(match[1], match[2])]
                end = match.end()
        parts.append(_data(text[end:]))
        return "".join(part for part in parts if part != "''") or "''"

    def _find(self, resume: Resume) -> str:
        """Return what finds the last whole checkpoint, and makes the words that name it."""
        folder = f"{self._word(resume.folder)}/{_data(resume.prefix)}"
        return (
            f'last=-1; for file in {folder}*/{_data(resume.complete)}; do step="${{file%/*}}"; step="${{step##*-}}"; '
            'if [ "$step" -gt "$last" ] 2>/dev/null && ! [ -e "${file%/*}/checkpoint-is-incomplete.txt" ] && '
            'tail -c 2 "$file" 2>/dev/null | grep -q "}"; then last="$step"; fi; done; '
            f'set --; if [ "$last" -ge 0 ]; then set -- {_data(resume.option)} {folder}"$last"; fi; '
        )


def expression(section: str, name: str) -> str:
    """An expression that the service replaces, as a part of a shell word: in quotes, for it may be a path or a URL."""
    return f'"${{{{{section}.{name}}}}}"'


def _data(text: str) -> str:
    """A shell word for text, with nothing in it that the service replaces: the quotes are left between its marks."""
    return _LIVE.sub(lambda match: f"{match[0]}''", shell_word(text))
