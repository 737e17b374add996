"""The `reshape` command: a table of subcommands, of which only the chosen one is imported.

Exit codes: 0 done, 1 an error the message explains, 2 wrong usage, 130 interrupted; a subcommand
may add codes of its own, told in its help.
"""

from __future__ import annotations

import errno
import os
from importlib import import_module
from typing import Any, NamedTuple

import click

from reshape.errors import ReshapeError

DISK_FULL = frozenset((errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
STDOUT = 1  # its descriptor
INTERRUPTED = 130  # what shells report for a command ended by SIGINT: 128 + 2


class Entry(NamedTuple):
    """Where a subcommand lives, and the line `reshape --help` prints without importing it."""

    target: str
    help: str
    hidden: bool = False


SUBCOMMANDS = {
    "demo": Entry("scheduler.demo.command:demo", "Run a mixed workload, static and resizable."),
    "doctor": Entry(
        "reshape.doctor.command:doctor", "Probe the MPI at hand: can jobs run and resize?"
    ),
    "serve": Entry("scheduler.client.commands:serve", "Start the scheduler service."),
    "submit": Entry("scheduler.client.commands:submit", "Submit a job."),
    "queue": Entry("scheduler.client.commands:queue", "List waiting and running jobs."),
    "info": Entry("scheduler.client.commands:info", "Show the service, its nodes and its policy."),
    "history": Entry("scheduler.client.commands:history", "List ended jobs and their sizes."),
    "explain": Entry("scheduler.client.commands:explain", "Tell why a job waits or was resized."),
    "wait": Entry("scheduler.client.commands:wait", "Wait for jobs to end."),
    "cancel": Entry("scheduler.client.commands:cancel", "Cancel jobs."),
    "stop": Entry("scheduler.client.commands:stop", "Stop the scheduler service."),
    "simulate": Entry("simulator.commands.simulate:simulate", "Simulate the jobs of a trace."),
    "study": Entry("simulator.commands.study:study", "Run a grid of simulations and report."),
    "replay": Entry(
        "simulator.commands.replay:replay", "Replay a live run, as it was or might be."
    ),
    "plot": Entry("simulator.commands.plot:plot", "Draw the results of a simulation."),
    "workload": Entry("simulator.commands.workload:workload", "Look at traces and convert them."),
    "agent": Entry("scheduler.node.agent:main", "Start and watch the processes of a node.", True),
}


class LazyGroup(click.Group):
    """A group that knows its subcommands by name and help alone, until one is chosen.

    Parameters
    ----------
    entries : subcommand name -> `Entry`, in the order of the help text.
    """

    def __init__(self, *args: Any, entries: dict[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries
        for name, entry in entries.items():  # what help, completion and suggestions look at
            self.add_command(click.Command(name, help=entry.help, hidden=entry.hidden))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the subcommands in the order of the table, not of the alphabet."""
        return list(self.entries)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the subcommand that was chosen, and no other."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in self.entries:
            module, _, attribute = self.entries[name].target.partition(":")
            command = getattr(import_module(module), attribute)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; what the user can mend is told in one line, without a traceback."""
        try:
            return super().invoke(ctx)
        except ReshapeError as error:
            click.echo(f"reshape: error: {error}", err=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            where = error.filename or "the output"
            click.echo(f"reshape: error: {where} cannot be written: {error.strerror}", err=True)
            with open(os.devnull, "wb") as nowhere:  # what is left of it, as the process ends
                os.dup2(nowhere.fileno(), STDOUT)
            ctx.exit(1)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(
    cls=LazyGroup,
    entries=SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="reshape-mpi", message="reshape %(version)s")
def main() -> None:
    """Run MPI jobs that grow and shrink, and the scheduler that resizes them."""


if __name__ == "__main__":
    main(prog_name="reshape")
