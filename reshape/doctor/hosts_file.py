"""The hosts that `reshape doctor --hosts` examines, from a machine file or a configuration file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reshape.errors import ReshapeError


class HostEntry(msgspec.Struct, frozen=True):
    """A host: the name of its node, where ssh reaches it, and the processors of the node.

    `processors` is 0 if the file does not say how many there are.
    """

    name: str
    destination: str
    processors: int = 0

    @property
    def address(self) -> str:
        """Name or address under which other hosts reach this one."""
        return self.destination.rpartition("@")[2]


class _Node(msgspec.Struct):
    """A node as a configuration file describes it."""

    name: str
    processors: int = 0
    host: str = ""
    launcher: str = ""


class _File(msgspec.Struct):
    """What is read of a file; other fields are ignored."""

    nodes: list[str | _Node]
    processors_per_node: int = 0
    launcher: str = "local"
    ssh: str = "ssh"


def read_hosts(path: Path) -> tuple[list[HostEntry], str]:
    """Read the nodes on other hosts, and the ssh command, from a file.

    Parameters
    ----------
    path : YAML with a list `nodes` of names, or of mappings with `name`, `processors` and `host`.
        Nodes with the launcher local are left out.

    Raises
    ------
    ReshapeError : the file cannot be read, or has no node on another host.
    """
    import yaml  # late: only this command reads YAML here

    try:
        read = msgspec.convert(yaml.safe_load(path.read_text()), _File)
    except OSError as error:
        raise ReshapeError(f"cannot read {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ReshapeError(f"{path} lists no hosts: {' '.join(str(error).split())}") from None
    nodes = [
        _Node(each, read.processors_per_node) if isinstance(each, str) else each
        for each in read.nodes
    ]
    remote = [node for node in nodes if (node.launcher or read.launcher) != "local"]
    if not remote:
        raise ReshapeError(
            f"{path} has no node on another host: give its nodes the launcher ssh, slurm or none"
        )
    hosts = [HostEntry(node.name, node.host or node.name, node.processors) for node in remote]
    return hosts, read.ssh
