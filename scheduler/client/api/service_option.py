"""The option of the commands that names a service, and shell completion of what the service has.

A shell completes jobs, partitions and nodes of the service: one that does not answer within a
second completes nothing, and prints nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from reshape.errors import ReshapeError
from scheduler.client.api.client import DIRECTORY, Client
from scheduler.protocol import messages as m

_Command = TypeVar("_Command", bound=Callable[..., Any])
_ACCESS, _CLIENTS = "reshape.access", "reshape.clients"  # keys of the context's further data
#: Seconds that a service may take for a completion.
_PATIENCE_S = 1.0


def _note_access(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    ctx.meta[_ACCESS] = value


def _service(ctx: click.Context, param: click.Parameter, directory: str | None) -> Client:
    """Return a client of the service that the options name, or else what `Client` finds."""
    access = ctx.meta.get(_ACCESS)
    if directory is not None and access is not None:
        raise click.UsageError("--access and --dir both name a service; remove one", ctx)
    try:
        client = Client(directory, access=access)
    except ReshapeError as error:
        raise click.UsageError(str(error), ctx) from None
    if directory is not None and client.service.is_file():
        raise click.BadParameter(
            f"{directory} is a file; an access file needs --access", ctx, param
        )
    return ctx.with_resource(client)


def opened(path: Path) -> Client:
    """Return the client of a site, which is closed at the end of the present command.

    Parameters
    ----------
    path : directory of a service, or an access file.
    """
    context = click.get_current_context()
    clients: dict[Path, Client] = context.meta.setdefault(_CLIENTS, {})
    if path not in clients:  # many jobs of a site share its connection
        clients[path] = context.with_resource(Client(path))
    return clients[path]


def service_option(command: _Command) -> _Command:
    """Add --dir and --access; `service` is a `Client` of the service."""
    command = click.option(
        "--dir",
        "service",
        metavar="DIR",
        callback=_service,
        help=f"Directory of the service.  [env var: RESHAPE_DIR; default: {DIRECTORY}]",
    )(command)
    return click.option(
        "--access",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_note_access,
        help="Access file of a service on TCP; in place of --dir.  [env var: RESHAPE_ACCESS]",
    )(command)


_Complete: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
#: Names that a service has, each with what is shown beside it.
_Names: TypeAlias = Iterable[tuple[str, str | None]]


def _completing(names: Callable[[Client], _Names]) -> _Complete:
    """Return what lets a shell complete names; if something goes wrong, there are none."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        with suppress(ReshapeError, OSError), context.params.get("service") or Client() as client:
            return [
                CompletionItem(name, help=beside)
                for name, beside in names(client)
                if name.startswith(incomplete)
            ]
        return []

    return complete


def _jobs(client: Client) -> _Names:
    """Queued and running jobs by number, with name and state."""
    for job in client.ask(m.ListJobs(), m.JobListing, _PATIENCE_S).jobs:
        yield job.label.partition("_[")[0] or str(job.job), f"{job.name} {job.state}"


def _partitions(client: Client) -> _Names:
    return [(part.name, None) for part in client.info(_PATIENCE_S).partitions]


def _nodes(client: Client) -> _Names:
    """Nodes with their states."""
    nodes = client.ask(m.ListMachine(part="nodes"), m.Nodes, _PATIENCE_S).nodes
    return [(node.name, node.state) for node in nodes]


complete_jobs = _completing(_jobs)
complete_partitions = _completing(_partitions)
complete_nodes = _completing(_nodes)
