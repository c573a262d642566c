"""Simple commands: what stands before them, their words, where they write, and the shells they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .assignments import CHANGING, DECLARING, Assignments
from .context import Context
from .nested import nested, note_here_documents, without_redirections
from .records import Command
from .tokens import ARRAY, REDIRECT, TEST, Token


class Commands:
    """Notes the commands of one shell; `read` reads the text that one of them gives to another shell."""

    def __init__(self, context: Context, read: Callable[[Context], None]) -> None:
        self._context = context
        self._assignments = Assignments(context)
        self._read = read

    def add(self, tokens: list[Token], conditional: bool) -> None:
        """A simple command's tokens; `conditional` behind `&&` and `||`, where it may not run."""
        if tokens[0].kind == TEST:
            self._assignments.arithmetic(tokens[0])
            return
        context = self._context
        redirects = any(token.kind == REDIRECT for token in tokens)
        tokens, redirections = without_redirections(tokens) if redirects else (tokens, [])
        head, count = 0, len(tokens)
        while head < count and context.assigns(tokens[head]):
            head += 1
        if head == count:
            for token in tokens:
                self._assignments.assign(token, exported=False, conditional=conditional)
            note_here_documents(context, redirections, ())
            return
        command = self._command(tokens, head, conditional)
        if command is not None:
            note_here_documents(context, redirections, command.words)
            inner = nested(context, command, tokens[head:])
            if inner is not None:
                self._read(inner)

    def _command(self, tokens: Sequence[Token], head: int, conditional: bool) -> Command | None:
        """Notes the command whose first word is the token at index `head`, and what it does to variables."""
        context, reading = self._context, self._context.reading
        raw = context.raw(tokens[head])
        if raw in DECLARING:
            self._assignments.declare(tokens[head + 1 :], raw, conditional)
        environment = tuple(map(self._assignments.before_command, tokens[:head]))
        words = tuple(context.words(token for token in tokens[head:] if token.kind != ARRAY))
        if not words:
            return None
        if raw in CHANGING:
            self._assignments.builtin(raw, words)
        command = Command(
            words=words,
            environment=environment,
            offset=context.source.place(tokens[0].start),
            index=len(reading.commands),
            shell=context.outer.text,
            single_quoted=context.outer.single_quoted,
            inside=context.outer.inside,
            guarded=conditional or context.state.guards > 0,
        )
        reading.commands.append(command)
        context.state.commands = len(reading.commands)
        return command
