"""Suggestions for unknown options and commands: what was probably meant, and nothing else.

A suggestion that does something else than what was meant is worse than none: ``--dir`` for
``--chdir`` names another service, ``--kill`` for ``--no-kill`` does the opposite. So a name is
suggested only for an abbreviation, a longer form or a slip of the fingers, all of which begin with
the same letter, or if another system has the word for the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

import click

#: Similarity (of difflib) of words that differ by a slip of the fingers.
SIMILAR = 0.75
#: Words of Slurm and of mpiexec for the same things.
SAME = {
    "sacct": "history",
    "sbatch": "submit",
    "scancel": "cancel",
    "sinfo": "info",
    "squeue": "queue",
    "--cwd": "--chdir",
    "--job-name": "--name",
    "--np": "-n",
    "--ntasks": "-n",
    "--partition": "--queue",
    "--time": "--walltime",
    "--workdir": "--chdir",
}


def unknown_word(error: click.NoSuchOption | click.NoSuchCommand) -> str:
    """Return the message about an unknown option or command, with a suggestion if there is one."""
    context = error.ctx
    assert context is not None
    command = context.command
    if isinstance(error, click.NoSuchCommand):
        assert isinstance(command, click.Group)
        word, known = error.command_name, command.list_commands(context)
    else:
        word = error.option_name
        known = [
            name
            for parameter in command.get_params(context)
            if isinstance(parameter, click.Option)
            for name in (*parameter.opts, *parameter.secondary_opts)
        ]
    meant = SAME.get(word)
    names = [meant] if meant in known else close_names(word, known)
    if not names:
        return error.message
    return f"{error.message} Did you mean {' or '.join(map(repr, names))}?"


def close_names(word: str, known: Iterable[str]) -> list[str]:
    """Return the names of which a word may be an abbreviation, a longer form or a slip."""
    return [name for name in known if _is_close(word.lstrip("-"), name.lstrip("-"))]


def _is_close(word: str, name: str) -> bool:
    if word[:1] != name[:1] or len(name) < 2:
        return False
    if name.startswith(word) or word.startswith(f"{name}-"):
        return True
    return SequenceMatcher(None, word, name).ratio() >= SIMILAR
