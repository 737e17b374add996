"""`reshape agent`: the agent of one node, on the host of its service or on another one."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from reshape.cli.options import example
from reshape.errors import ReshapeError
from reshape.files.private_folder import make_private
from reshape.wire.access import AccessFile, read_access, write_private
from reshape.wire.identity import slurm_job
from scheduler.node.agent import Agent
from scheduler.node.directory import ServiceDirectory
from scheduler.node.host_place import arrive, own_address
from scheduler.node.launching.prctl import survive_hangup
from scheduler.node.logs import FORMAT, log_to_file

log = logging.getLogger(__name__)

#: Stands for the standard input instead of an access file.
STANDARD_INPUT = "-"


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), hidden=True)
@click.option(
    "--connect",
    "access",
    metavar="ACCESS-FILE",
    help="Access file of the role agent, such as DIR/access/agent.json; - reads standard input.",
)
@click.option("--node", required=True, help="Name of this node in the machine file.")
@click.option("--background", is_flag=True, help="Return when the service has accepted the agent.")
@click.option(
    "--log",
    "log_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Log file; default: standard error, or ~/.reshape/agent-NODE.log with --background.",
)
@example("reshape agent --connect agent.json --node n2")
def main(
    directory: Path | None,
    access: str | None,
    node: str,
    background: bool,
    log_file: Path | None,
) -> None:
    """Serve a node of a service on another host.

    The agent connects over TCP and reconnects without a limit of time. Jobs continue while the
    service is away. The service starts the agents of nodes with the launchers local and ssh by
    itself.
    """
    if (directory is None) == (access is None):
        raise click.UsageError("name the service by --connect ACCESS-FILE")
    survive_hangup()
    if directory is not None:
        _serve_local(ServiceDirectory(directory), node)
    else:
        assert access is not None
        _serve_remote(_read_agent_access(access), node, background, log_file)


def _serve_local(directory: ServiceDirectory, node: str) -> None:
    directory.read_secret()  # raises if it is not the directory of a service
    log_to_file(directory.log(f"agent-{node}"))
    with directory.agent_lock(node) as locked:
        if not locked:
            log.info("an agent of %s is already running", node)
            return
        log.info("agent of %s pid=%d", node, os.getpid())
        job_access, address = directory.path / "access" / "job.json", ""
        if job_access.exists():  # jobs may have processes on other hosts, too
            make_private(directory.memory)
            access = read_access(job_access)
            write_private(directory.job_access, access)
            address = own_address(access.endpoint)
        Agent(directory, node, address=address).run()


def _read_agent_access(name: str) -> AccessFile:
    """Read an access file, and check that it is one of an agent."""
    if name == STANDARD_INPUT:
        try:
            access = msgspec.json.decode(sys.stdin.buffer.read(), type=AccessFile)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ReshapeError(f"the access file on standard input is damaged: {error}") from None
    else:
        access = read_access(Path(name).expanduser())
    if access.role != "agent":
        raise ReshapeError(
            f"the access file has the role {access.role}: an agent needs one of the role agent,"
            " such as DIR/access/agent.json of the service"
        )
    return access


def _serve_remote(access: AccessFile, node: str, background: bool, log_file: Path | None) -> None:
    if log_file is None:
        logging.basicConfig(level=logging.INFO, format=FORMAT, stream=sys.stderr)
    host = arrive(access, node)
    with ExitStack() as stack:
        if not stack.enter_context(host.agent_lock(node)):
            raise ReshapeError(f"an agent of {node} already runs on this host")
        if background:
            log_file = (log_file or Path.home() / ".reshape" / f"agent-{node}.log").absolute()
            log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if child := os.fork():  # the child inherits the lock
                print(
                    f"agent of {node} serves {access.endpoint}, process {child}; its log is"
                    f" {log_file}",
                    flush=True,
                )
                os._exit(0)
            _detach(log_file)
        if log_file is not None:
            log_to_file(log_file)
        log.info("agent of %s pid=%d serves %s", node, os.getpid(), access.endpoint)
        # Slurm sends SIGTERM before it takes the node away.
        in_slurm = bool(slurm_job())
        address = own_address(access.endpoint)
        Agent(host, node, address=address, loses_host=in_slurm).run()


def _detach(log_file: Path) -> None:
    """Leave the session of the caller, which may be that of an ssh server."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.chdir("/")
    for handler in logging.getLogger().handlers[:]:
        logging.getLogger().removeHandler(handler)
