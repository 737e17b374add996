"""``reshape serve``; in a Slurm allocation the nodes of the service are those of the allocation."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from reshape.cli.options import WholeRange, completed, example
from reshape.errors import ConfigError, ReshapeError
from reshape.wire.access import read_access
from reshape.wire.connection import own_address
from scheduler.client.options import directory_option
from scheduler.config.settings import ServeConfig
from scheduler.config.sources import load_config
from scheduler.node.directory import ServiceDirectory
from scheduler.node.logs import FORMAT, log_to_file
from scheduler.node.slurm import SlurmAllocation, own_allocation
from scheduler.policies.registry import known


@click.command()
@directory_option
@click.option(
    "--processors",
    type=WholeRange(min=0),
    help="Processors of the node 'local'; 0: all nodes belong to pools.",
)
@click.option(
    "--machine",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Nodes, their resources and network; see docs/machines.md.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Configuration file (YAML); options override it.",
)
@click.option(
    "--scenario",
    help="Scheduling scenario, such as easy.  [default: malleable]",
    shell_complete=completed(lambda: known("scenario")),
)
@click.option(
    "--set",
    "parameters",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a field of the scenario, such as backfill.reservations=2.",
)
@click.option(
    "--verify", is_flag=True, help="Verify all registered data by checksums around every resize."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Listen also on TCP, for clients with an access file; see docs/security.md.",
)
@click.option(
    "--allow-root",
    is_flag=True,
    help="Listen as root, although every key then gives root; see docs/security.md.",
)
@click.option(
    "--kill-wait",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time from SIGTERM to SIGKILL, for jobs that are cancelled or exceed their walltime."
    "  [default: 30]",
)
@click.option(
    "--background",
    is_flag=True,
    help="Return as soon as the service answers; its log is DIR/serve.log.",
)
@click.option(
    "--slurm",
    is_flag=True,
    help="Use the nodes of the Slurm allocation of this process; see docs/cluster.md.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Start with a journal of which acknowledged records are missing; see docs/backup.md.",
)
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), hidden=True)
@example(
    "reshape serve --processors 8 --background",
    "reshape serve --machine tree.yaml --scenario easy --set selection=tree",
    "salloc -N 4 --exclusive reshape serve --slurm",
)
def serve(
    directory: Path,
    processors: int | None,
    machine: Path | None,
    config: Path | None,
    scenario: str | None,
    parameters: tuple[str, ...],
    verify: bool,
    listen: str | None,
    allow_root: bool,
    kill_wait: float | None,
    slurm: bool,
    background: bool,
    accept_loss: bool,
    log: Path | None,
) -> None:
    """Start the scheduler service.

    Without --background it runs until Ctrl-C or 'reshape stop'. Running jobs continue without it,
    and the next 'reshape serve' in the same directory finds them again. Options override --config.
    """
    from scheduler.service.server import serve as run  # late: it loads all of the service

    if processors is not None and machine is not None:
        raise click.UsageError("--machine defines the processors; remove --processors")
    if slurm and not (processors is None and machine is None):
        option = "--processors" if machine is None else "--machine"
        raise click.UsageError(f"--slurm defines the nodes; remove {option}")
    nodes = {"processors": processors, "machine": machine}
    options: dict[str, object] = {**nodes, "scenario": scenario, "listen": listen}
    options |= {"verify": verify or None, "kill_wait_s": kill_wait}
    options["allow_root"] = allow_root or None
    if slurm:
        options |= allocated_options(directory)
    settings = with_ends(load_config(config, {**options, "set": parameters}))
    check_account(settings, os.geteuid())
    if background:
        kept: dict[str, object] = {**nodes, "config": config, "scenario": scenario}
        kept |= {"listen": listen, "kill-wait": kill_wait}
        same = [str(word) for word in _serve_options(kept, parameters)]
        flags = {"--verify": verify, "--slurm": slurm, "--accept-loss": accept_loss}
        flags["--allow-root"] = allow_root
        same += [flag for flag, is_set in flags.items() if is_set]
        from scheduler.client.background import start  # late: only --background needs a client

        process = start(directory, same)
        click.echo(f"service of {directory} is up, process {process.pid}")
        return
    if log is not None:
        log_to_file(log)
    else:
        logging.basicConfig(level=logging.INFO, format=FORMAT, stream=sys.stderr)
    run(ServiceDirectory(directory), settings, accept_loss=accept_loss)


def check_account(config: ServeConfig, user: int) -> None:
    """Check that no key gives the rights of root, unless the configuration allows it.

    Parameters
    ----------
    user : number of the user whose rights the jobs will have.

    Raises
    ------
    ConfigError : root is to listen.
    """
    if config.listen is not None and user == 0 and not config.allow_root:
        raise ConfigError(
            f"a service of root that listens on {config.listen} gives root to every key, since jobs"
            " run as the account of the service: start it as another user, or allow it by"
            " --allow-root (allow_root: true in the configuration)",
            field="listen",
        )


def _serve_options(values: Mapping[str, object], parameters: Sequence[str]) -> list[object]:
    """Convert options back to arguments for the background process."""
    words: list[object] = [
        word for name, value in values.items() if value is not None for word in (f"--{name}", value)
    ]
    return words + [word for parameter in parameters for word in ("--set", parameter)]


def allocated_options(directory: Path) -> dict[str, Any]:
    """Return the nodes and the TCP address of a service in the allocation of this process.

    Parameters
    ----------
    directory : of the service. A service that is started again gets the address that its agents
        know.

    Raises
    ------
    ReshapeError : this process is in no Slurm allocation.
    """
    allocation = own_allocation(os.environ)
    nodes = [
        {"name": name, "processors": count, "launcher": "slurm"}
        for name, count in allocation.processors.items()
    ]
    return {"nodes": nodes, "own_address": _address(directory, allocation.addresses)}


def with_ends(config: ServeConfig) -> ServeConfig:
    """Set the time at which nodes with the launcher slurm are given back.

    Raises
    ------
    ReshapeError : there are such nodes, and this process is in no Slurm allocation, or in one
        without them.
    """
    if all(node.launcher != "slurm" for node in config.nodes):
        return config
    allocation = own_allocation(os.environ)
    nodes = []
    for node in config.nodes:
        if node.launcher == "slurm":
            _check(node.host or node.name, node.processors, allocation)
            node = msgspec.structs.replace(node, until=allocation.end)
        nodes.append(node)
    return msgspec.structs.replace(config, nodes=tuple(nodes))


def _check(name: str, processors: int, allocation: SlurmAllocation) -> None:
    installed = allocation.processors.get(name)
    if installed is None:
        raise ConfigError(
            f"node {name} has the launcher slurm and is not in Slurm allocation {allocation.job},"
            f" which has {', '.join(allocation.processors)}",
            field="nodes",
        )
    if processors > installed:
        raise ConfigError(
            f"node {name} has {processors} processors here and {installed} in Slurm allocation"
            f" {allocation.job}: reduce them, or allocate more, for example by --exclusive",
            field="nodes",
        )


def _address(directory: Path, addresses: Mapping[str, str]) -> str:
    """Return ``HOST:PORT`` on the network of the nodes; that of an earlier service if it fits."""
    own = socket.gethostname().partition(".")[0]
    # A host may know itself by an address that others cannot reach, such as 127.0.1.1.
    others = [address for name, address in addresses.items() if name.partition(".")[0] != own]
    host = own_address(f"tcp://{(others or [*addresses.values()])[0]}:1")
    with suppress(ReshapeError):
        earlier = urlsplit(read_access(directory / "access" / "agent.json").endpoint)
        if earlier.hostname == host and earlier.port is not None:
            return f"{host}:{earlier.port}"
    with socket.socket() as free:
        free.bind((host, 0))
        return f"{host}:{free.getsockname()[1]}"
