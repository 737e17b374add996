"""A click group that imports a subcommand only when it is chosen, with suggestions for errors.

A suggestion that does something else than what was meant is worse than none: ``--dir`` for
``--chdir`` names another service, ``--kill`` for ``--no-kill`` does the opposite. So a name is
suggested only for an abbreviation, a longer form or a slip of the fingers, all of which begin with
the same letter, or if another system has the word for the same thing.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Iterable
from difflib import SequenceMatcher
from importlib import import_module
from typing import Any, NamedTuple

import click

from reshape.cli.options import refuse_empty
from reshape.collection import no_collection
from reshape.errors import ReshapeError
from reshape.times import in_local_time
from reshape.user_modules import check_found

#: Similarity (of difflib) of words that differ by a slip of the fingers.
SIMILAR = 0.75
#: Words of Slurm and of mpiexec -> our words for the same things, of which a command has one.
SAME = {
    "sacct": ("history",),
    "salloc": ("batch",),
    "sbatch": ("batch",),
    "scancel": ("cancel",),
    "scontrol": ("info", "update", "node"),
    "sinfo": ("info",),
    "squeue": ("queue",),
    "srun": ("run",),
    "-D": ("--chdir",),
    "-E": ("--until",),
    "-J": ("--name",),
    "-S": ("--since",),
    "-b": ("--begin",),
    "-i": ("--watch",),
    "-o": ("--output",),
    "-s": ("--state", "--steps"),
    "-t": ("--walltime",),
    "-u": ("--user",),
    "--cwd": ("--chdir",),
    "--endtime": ("--until",),
    "--iterate": ("--watch",),
    "--job-name": ("--name",),
    "--jobid": ("--jobs",),
    "--me": ("--user",),
    "--np": ("-n",),
    "--parsable": ("--json",),
    "--ntasks": ("-n",),
    "--qos": ("--queue",),
    "--starttime": ("--since",),
    "--states": ("--state",),
    "--step": ("--steps",),
    "--time": ("--walltime",),
    "--users": ("--user",),
    "--workdir": ("--chdir",),
}


def unknown_word(error: click.NoSuchOption | click.NoSuchCommand) -> str:
    """Return the message about an unknown option or command, with a suggestion if there is one."""
    context = error.ctx
    assert context is not None
    command = context.command
    if isinstance(error, click.NoSuchCommand):
        assert isinstance(command, click.Group)
        word, names = error.command_name, command.list_commands(context)
    else:
        word = error.option_name
        names = [
            name
            for parameter in command.get_params(context)
            if isinstance(parameter, click.Option)
            for name in (*parameter.opts, *parameter.secondary_opts)
        ]
    same = [name for name in SAME.get(word, ()) if name in names]
    suggestions = same or close_names(word, names)
    if not suggestions:
        return error.message
    return f"{error.message} Did you mean {' or '.join(map(repr, suggestions))}?"


def close_names(word: str, names: Iterable[str]) -> list[str]:
    """Return the names of which a word may be an abbreviation, a longer form or a slip."""
    return [name for name in names if _is_close(word.lstrip("-"), name.lstrip("-"))]


def _is_close(word: str, name: str) -> bool:
    if word[:1] != name[:1] or len(name) < 2:
        return False
    if name.startswith(word) or word.startswith(f"{name}-"):
        return True
    return SequenceMatcher(None, word, name).ratio() >= SIMILAR


FAILED = 1
INTERRUPTED = 130  # exit code of a command that SIGINT has ended, as in shells: 128 + 2
DISK_FULL = frozenset((errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
#: Errors of names that no file can have.
BAD_NAMES = frozenset((errno.ENAMETOOLONG, errno.ELOOP))
LONGEST_SHOWN = 80  # characters of a name in a message
STDOUT = 1  # file descriptor
_PACKAGES = ("redistribution", "scheduler", "simulator")  # that commands import


class Entry(NamedTuple):
    """Where a subcommand is defined, and the line of `reshape --help` for it.

    Attributes
    ----------
    target : "module:attribute" of the click command.
    help : its line in the list of subcommands.
    """

    target: str
    help: str


class LazyGroup(click.Group):
    """A group that has the names and help lines of its subcommands, and imports the chosen one.

    Parameters
    ----------
    entries : subcommand name -> `Entry`, in the order of the help text.
    """

    def __init__(self, *args: Any, entries: dict[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries
        for name, entry in entries.items():  # for help, completion and suggestions
            self.add_command(click.Command(name, help=entry.help))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the subcommands in the order of `entries`."""
        return list(self.entries)

    def loaded(self) -> click.Group:
        """Make a group of all subcommands, imported; the reference of the commands shows it."""
        commands = {name: _imported(entry.target) for name, entry in self.entries.items()}
        return click.Group(self.name, commands=commands, help=self.help, params=self.params)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the chosen subcommand."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in self.entries:
            check_found(_PACKAGES)
            command = _imported(self.entries[name].target)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; print an error that the user can fix in one line."""
        try:
            return super().invoke(ctx)
        except (click.NoSuchOption, click.NoSuchCommand) as error:
            raise click.UsageError(unknown_word(error), error.ctx) from None
        except ReshapeError as error:
            why = in_local_time(str(error))
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not _is_in_a_directory():
                why = "the current directory was deleted: change to another one"
            elif error.errno in BAD_NAMES:
                name = str(error.filename)
                shown = name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."
                why = f"{shown}: {error.strerror}"
            elif error.errno in DISK_FULL:
                why = f"{error.filename or 'the output'} cannot be written: {error.strerror}"
                with open(os.devnull, "wb") as devnull:  # for buffered output, flushed at the exit
                    os.dup2(devnull.fileno(), STDOUT)
            else:
                raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        click.echo(f"reshape: error: {why}", err=True)
        ctx.exit(FAILED)


def _is_in_a_directory() -> bool:
    """Whether the current directory exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _imported(target: str) -> click.Command:
    """Import a command; the garbage collector never examines the objects that this makes."""
    module, _, attribute = target.partition(":")
    if module not in sys.modules:
        with no_collection():
            import_module(module)
            gc.freeze()
    command: click.Command = getattr(sys.modules[module], attribute)
    return refuse_empty(command)
