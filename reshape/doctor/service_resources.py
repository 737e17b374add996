"""What a service needs besides its files: room, open files, its listener, and ports of MPI."""

from __future__ import annotations

import os
import re
import resource
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from reshape.doctor.checks import Check

#: Free space below which submissions are refused, and below which they soon may be; bytes.
_NEEDED_BYTES, _SCARCE_BYTES = 1 << 20, 1 << 28
#: Free ports that a few MPI jobs need.
_FEW_PORTS = 100
#: Share of the open files above which a service is about to run out.
_MANY = 0.9
_CONNECT_S = 3.0
#: Variables that bound the ports on which MPICH and hydra listen.
_RANGES = ("MPICH_PORT_RANGE", "MPIR_CVAR_CH3_PORT_RANGE", "MPIEXEC_PORT_RANGE", "HYDRA_PORT_RANGE")
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def check_room(directory: Path) -> Check:
    """Read the free space and the free inodes of the file system of a directory."""
    space = os.statvfs(directory)
    free, inodes = space.f_bavail * space.f_frsize, space.f_favail
    result = f"{free >> 20} MiB free"
    fix = f"remove files from the file system of {directory}, or compact the journal"
    if space.f_files and inodes < 10:
        return Check("room", "fault", f"{inodes} files can be created", "the disk is full", fix)
    if free < _NEEDED_BYTES:
        return Check("room", "fault", result, "submissions are refused", fix)
    if free < _SCARCE_BYTES:
        return Check("room", "note", result, "submissions are refused below 1 MiB", fix)
    return Check("room", "ok", result, "enough for thousands of jobs")


def check_open_files(pid: int) -> Check:
    """Compare the open files of the service with its limit.

    Parameters
    ----------
    pid : process of the service.
    """
    try:
        opened = len(os.listdir(f"/proc/{pid}/fd"))
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except OSError as error:
        return Check("open files", "note", f"of process {pid}: {error.strerror}", "not known")
    result = f"{opened} of {soft} (hard limit {hard})"
    if soft != resource.RLIM_INFINITY and opened > _MANY * soft:
        meaning = "the service refuses connections when it has none left"
        return Check("open files", "fault", result, meaning, "ulimit -n, then serve again")
    return Check("open files", "ok", result, "each connection takes one or two")


def check_listener(endpoint: str, pid: int) -> Check:
    """Connect to the TCP port of a service, and end the connection at once.

    Parameters
    ----------
    endpoint : "tcp://HOST:PORT".
    pid : process of the service; 0 if it does not run.
    """
    parts = urlsplit(endpoint)
    where, port = parts.netloc, parts.port or 0
    fault = ""
    try:
        with socket.create_connection((parts.hostname, port), _CONNECT_S):
            pass
    except OSError as error:
        fault = error.strerror or str(error)
    if pid and port not in _listening(pid):
        meaning = "agents and users on other hosts do not reach the service"
        return Check("listener", "note", f"the service does not listen on {where}", meaning)
    if pid and fault:
        meaning = "agents and users on other hosts may not reach the service"
        fix = f"check the firewall, and that the name in {endpoint} leads to this host"
        return Check("listener", "fault", f"{where}: {fault}", meaning, fix)
    if pid:
        return Check("listener", "ok", f"{where} accepts connections")
    if fault:
        return Check("listener", "ok", f"{where} is free", "the service does not run")
    meaning = "another program listens there: the service cannot start with this port"
    return Check("listener", "fault", f"{where} is taken", meaning, "choose another --listen")


def _listening(pid: int) -> set[int]:
    """TCP ports on which a process listens."""
    try:
        connections = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return set()
    return {
        connection.laddr.port
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    }


def check_mpi_ports(environment: Mapping[str, str]) -> Check:
    """Check that MPI programs of this host can listen, and be reached by the name of the host."""
    bounds = {name: environment[name] for name in _RANGES if environment.get(name)}
    for name, text in bounds.items() or {"the ports of the system": _system_range()}.items():
        match = re.fullmatch(r"(\d+)[:,\s]+(\d+)", text.strip())
        if match is None or not 0 < int(match[1]) <= int(match[2]) < 1 << 16:
            fix = f"{name}=LOW:HIGH" if bounds else ""
            return Check("MPI ports", "fault", f"{name} is {text!r}", "no range of ports", fix)
        low, high = int(match[1]), int(match[2])
        free = high - low + 1 - len(_used_ports(low, high))
        result = f"{free} of {low} to {high} free"
        if free < _FEW_PORTS:
            meaning = "groups cannot start or join when all are in use"
            return Check("MPI ports", "fault", result, meaning, f"widen {name}")
    name = socket.gethostname()
    try:
        with socket.create_server(("", 0)) as listener:
            address = (socket.gethostbyname(name), listener.getsockname()[1])
            with socket.create_connection(address, _CONNECT_S):
                pass
    except OSError as error:
        meaning = "mpiexec and joining groups connect to the name of the host"
        fix = f"give {name} an address of this host in /etc/hosts, and let it through the firewall"
        return Check("MPI ports", "fault", f"{name}: {error}", meaning, fix)
    return Check("MPI ports", "ok", result, "on all interfaces: use a private network")


def _system_range() -> str:
    return _EPHEMERAL.read_text()


def _used_ports(low: int, high: int) -> set[int]:
    """Local ports in a range that have a socket."""
    used = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        used |= {int(line.split()[1].rpartition(":")[2], 16) for line in lines}
    return {port for port in used if low <= port <= high}
