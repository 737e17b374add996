"""``reshape web``: the pages of a service, served by a process beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from scheduler.client.options import directory_option

PORT = 8484


@click.command()
@directory_option
@click.option(
    "--port",
    type=WholeRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port on the loopback interface; 0: any that is free.",
)
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(path_type=Path),
    help="Listen on this Unix socket, which only you can open, and on no port.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name by which browsers reach the page through a proxy; may be repeated.",
)
@click.option(
    "--administrator",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Access file of an administrator: pages may cancel, hold, release and requeue jobs.",
)
@example("reshape web", "reshape web --port 0 --allow-host ondemand.example.org")
def web(
    directory: Path,
    port: int,
    socket_path: Path | None,
    hosts: tuple[str, ...],
    administrator: Path | None,
) -> None:
    """Serve a page that shows the machine, the queue and each job, live, until Ctrl-C.

    It reads the journal of the service and never writes to it, so it can be started and ended at
    any time. It prints a link that is valid for one browser, and a new one after each use.
    """
    try:
        import uvicorn

        from scheduler.client.web.live_run import LiveRun
        from scheduler.client.web.server import Doors, Pages
    except ModuleNotFoundError as error:
        raise ReshapeError(f"the page needs {error.name}: pip install 'reshape-mpi[web]'") from None
    if not (directory / "journal.db").is_file():
        raise ReshapeError(f"there is no journal in {directory}: name the directory of a service")
    listener = _listener(port, socket_path)
    host = "localhost" if socket_path else f"127.0.0.1:{listener.getsockname()[1]}"
    os.nice(5)  # the service beside it comes first
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # as on Ctrl-C
    try:
        pages = Pages(LiveRun(directory), administrator).app()
        app = Doors(pages, hosts, lambda token: click.echo(f"http://{host}/?token={token}"))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
        if socket_path is not None:
            socket_path.unlink(missing_ok=True)


def _listener(port: int, path: Path | None) -> socket.socket:
    """Listen on the loopback interface, or on a Unix socket of this user alone."""
    before = os.umask(0o077)
    try:
        if path is None:
            return socket.create_server(("127.0.0.1", port), backlog=128)
        return socket.create_server(str(path), family=socket.AF_UNIX, backlog=128)
    except OSError as error:
        what = f"port {port}" if path is None else str(path)
        why = os.strerror(error.errno) if error.errno else "the path is too long"
        raise ReshapeError(f"cannot listen on {what}: {why}; choose another one") from None
    finally:
        os.umask(before)
