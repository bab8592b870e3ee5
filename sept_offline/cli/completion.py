"""`sept-offline completion`."""

from __future__ import annotations

import click

from sept_offline.cli.completers import Choice

SHELLS = ("bash", "zsh", "fish")
END = "    return 0\n"
NO_SPACE = "    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n\n"
"""Add no space after `latent.dim=`, because its value follows; fish does so by itself."""


@click.command()
@click.argument("shell", type=Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL (bash, zsh or fish) complete this command.

    It completes commands, options, families, methods, presets, settings and paths. To install it,
    once:

    \b
      bash (4.4 or newer), in ~/.bashrc:
        eval "$(sept-offline completion bash)"
      zsh, in ~/.zshrc, after compinit:
        eval "$(sept-offline completion zsh)"
      fish:
        sept-offline completion fish > ~/.config/fish/completions/sept-offline.fish

    \b
    Example:
      sept-offline completion bash
    """
    from click.shell_completion import get_completion_class

    program = "sept-offline"
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"This version of click cannot complete in {shell}.")
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    # source() would start bash to ask for its version, which may be a different bash
    script = made(ctx.find_root().command, {}, program, variable)
    template = script.source_template
    if shell == "bash":
        template = template.replace(END, NO_SPACE + END, 1)
    click.echo(template % script.source_vars())
