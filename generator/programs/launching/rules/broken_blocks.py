"""What is said of loops, conditions and other blocks of a script that don't fit together."""

from __future__ import annotations

from ....findings import Violation
from ....text.shell.blocks import Fault, is_mended, swallowed
from ....text.shell.records import ShellScript
from ....text.shell.tokens import Tokens
from ....text.wording import show


def broken_blocks(shell: ShellScript, fault: Fault) -> Violation:
    """The word that bash names as the syntax error, or the block that nothing ends."""
    content = shell.text.content
    tokens = Tokens(content).found
    taken = swallowed(tokens, content, fault)
    if taken is not None:
        at = content.rindex("\\", 0, taken.start)
        message = f"the backslash makes `{fault.lacks}` an argument of the command: it ends no "
        message += f"block, and {_block(shell, fault)} lacks its end"
        return Violation(shell.locate(at), message, "remove the backslash")
    if not fault.word:
        message = f"{line_from(shell, fault.at)} begins a block that no `{fault.lacks}` ends"
        hint = f"add {fault.lacks} behind its last command; bash -n FILE says where it is missing"
        return Violation(shell.locate(fault.at), f"{message}: a syntax error", hint)

    is_to_remove = is_mended(tokens, content, fault, by="removed")
    if not fault.block:
        message = f"`{fault.word}` belongs to no block that is open"
        hint = "remove it" if is_to_remove else "write what it belongs to above it"
    elif fault.word == fault.lacks:
        message = f"`{fault.word}` comes where {_block(shell, fault)} has no command before it"
        hint = "write a command there, such as :"
    else:
        message = f"`{fault.word}` comes where {_block(shell, fault)} lacks its `{fault.lacks}`"
        place = "behind its condition" if fault.lacks in ("then", "do") else "above it"
        hint = f"write {fault.lacks} {place}"
        if is_to_remove:
            is_closed = is_mended(tokens, content, fault, by="closed")
            hint = f"{hint}, or remove it" if is_closed else "remove it"
    return Violation(shell.locate(fault.at), f"{message}: a syntax error", hint)


def _block(shell: ShellScript, fault: Fault) -> str:
    """The innermost block, as a message names it: the `if` of line 3."""
    return f"`{fault.block}` of line {shell.locate(fault.begins).line}"


def line_from(shell: ShellScript, offset: int) -> str:
    """The rest of a line, as it is shown."""
    return show(shell.text.content[offset:].partition("\n")[0].rstrip("\\ "))
