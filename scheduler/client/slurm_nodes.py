"""``reshape serve`` in a Slurm allocation: its nodes become those of the service."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from reshape.errors import ConfigError, ReshapeError
from reshape.wire.access import read_access
from scheduler.batch_systems.slurm_allocation import SlurmAllocation, own_allocation
from scheduler.config.settings import ServeConfig
from scheduler.node.host_place import own_address


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
    there = allocation.processors.get(name)
    if there is None:
        raise ConfigError(
            f"node {name} has the launcher slurm and is not in Slurm allocation {allocation.job},"
            f" which has {', '.join(allocation.processors)}",
            field="nodes",
        )
    if processors > there:
        raise ConfigError(
            f"node {name} has {processors} processors here and {there} in Slurm allocation"
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
