"""`dsgen completion`: what a shell sources to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print what completes commands in a shell.")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    bash  echo 'source <(dsgen completion bash)' >> ~/.bashrc
    zsh   echo 'source <(dsgen completion zsh)' >> ~/.zshrc, below compinit
    fish  dsgen completion fish > ~/.config/fish/completions/dsgen.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "dsgen", "_DSGEN_COMPLETE").source())
