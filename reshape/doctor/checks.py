"""The checks of this machine, and of a service directory (`reshape doctor --dir`).

Each tries one thing and states the consequence. No check draws conclusions from version numbers.
Besides its files, a service needs room, open files, its listener, and ports of MPI.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import pwd
import re
import resource
import socket
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import psutil

from redistribution.copies import kernel
from reshape.data.mapped_files import HUGE_PAGE, new_memory
from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.files import cgroup
from reshape.files.private_folder import own_folder
from reshape.user_modules import hiding
from reshape.wire.access import AccessFile, key_fault, read_private
from reshape.wire.connection import SERVER_FILE, service_in

_SHARED = Path("/dev/shm")
_SCARCE_BYTES = 1 << 30
_SCARCE_FILES = 4096
_READER = "import sys; sys.stdout.write(open(sys.argv[1], 'rb').read(16).hex())"
_READER_LIMIT_S = 10
_PACKAGES = ("redistribution", "reshape", "scheduler", "simulator", "apps")
_COMPILER = "install a C compiler (cc, or name it in CC), then install reshape again with pip"

Status = Literal["ok", "note", "fault", "skipped"]


class Check(msgspec.Struct, frozen=True, rename={"fix": "mend"}):
    """The outcome of one check.

    Attributes
    ----------
    result : what was found.
    meaning : its consequence for jobs.
    fix : what the user can do; "mend" in JSON.
    """

    name: str
    status: Status
    result: str
    meaning: str = ""
    fix: str = ""


# ---------------------------------------------------------------- the machine


def check_python() -> Check:
    """Report the interpreter. Its version was checked at the installation."""
    return Check("python", "ok", f"{platform.python_version()}, {sys.executable}")


def check_names() -> Check:
    """Look for files in the current directory or on the path that hide packages of reshape."""
    files = [hiding(package, [os.getcwd(), *sys.path]) for package in _PACKAGES]
    if hiding_files := [file for file in files if file]:
        meaning = "Python finds them in place of packages of reshape of the same names"
        fix = "rename them, or start programs and commands from another folder"
        return Check("names", "fault", ", ".join(hiding_files), meaning, fix)
    return Check("names", "ok", "no file here hides a package of reshape")


def check_cores() -> Check:
    """Count the cores that this process may use."""
    cores = len(os.sched_getaffinity(0))
    return Check("cores", "ok", str(cores), f"more than {cores} processors share cores")


def check_files() -> Check:
    """Read the limits of open files, soft and hard."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    result = f"{_limit(soft)} (hard limit {_limit(hard)})"
    if soft == resource.RLIM_INFINITY or soft >= _SCARCE_FILES:
        return Check("open files", "ok", result, "enough for hundreds of jobs per node")
    meaning = "a service with many jobs may run out"
    return Check("open files", "note", result, meaning, f"ulimit -n {_SCARCE_FILES}")


def check_cgroup() -> Check:
    """Check whether an agent that is started like this process can hold a job together."""
    fault = cgroup.probe()
    if not fault:
        meaning = "all processes of a job are ended with it"
        return Check("control groups", "ok", "can be made", meaning)
    meaning = "a process with a session of its own and no environment may outlive its job"
    fix = "start the service in a control group of its account (systemd-run --user -p Delegate=yes)"
    return Check("control groups", "note", fault, meaning, fix)


def check_copy_kernel() -> Check:
    """Check that the compiled copy kernel is installed, which moves arrays."""
    if kernel.compiled is not None:
        return Check("copy kernel", "ok", "compiled", "arrays move at memory bandwidth")
    meaning = "arrays move correctly, but several times as slowly"
    return Check("copy kernel", "note", "none", meaning, _COMPILER)


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def check_shared_memory(directory: Path = _SHARED) -> Check:
    """Write to a mapped file in /dev/shm and read it in another process."""
    word = uuid.uuid4().bytes
    path = directory / f"reshape-doctor-{word.hex()}"
    fix = f"mount a tmpfs on {directory} that you can write to"
    try:
        with path.open("x+b") as file:
            file.truncate(mmap.PAGESIZE)
            with mmap.mmap(file.fileno(), mmap.PAGESIZE) as view:
                view[:16] = word
                command = [sys.executable, "-c", _READER, str(path)]
                read = subprocess.check_output(command, text=True, timeout=_READER_LIMIT_S)
    except (OSError, subprocess.SubprocessError) as error:
        meaning = "data moves by messages; jobs cannot restart after a failed resize"
        return Check("shared memory", "fault", str(error), meaning, fix)
    finally:
        path.unlink(missing_ok=True)
    if read != word.hex():
        meaning = "processes do not see each other's writes"
        return Check("shared memory", "fault", f"read {read or 'nothing'}", meaning, fix)
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    result = f"{free / 2**30:.1f} GiB free in {directory}"
    fix = f"mount -o remount,size=50% {directory} (containers: --shm-size)"
    return check_free_memory("shared memory", free, result, fix)


def check_free_memory(name: str, free: int, result: str, fix: str) -> Check:
    """State what an amount of free shared memory, bytes, means for jobs."""
    if free >= _SCARCE_BYTES:
        return Check(name, "ok", result, "room for the registered data of jobs")
    meaning = "larger registered data stays in private memory and moves by messages"
    return Check(name, "note", result, meaning, fix)


def check_pages(directory: Path = _SHARED) -> Check:
    """Allocate a file in /dev/shm, as for new arrays, and read the size of its pages."""
    path = directory / f"reshape-doctor-{uuid.uuid4().hex}"
    try:
        with path.open("x+b") as file:
            memory = new_memory(file.fileno(), 2 * HUGE_PAGE)
            on_huge = _on_huge_pages(path)
            del memory
    except OSError as error:
        return Check("pages", "note", str(error), "the page size is unknown")
    finally:
        path.unlink(missing_ok=True)
    if on_huge:
        return Check("pages", "ok", f"of 2 MiB in {directory}", "new arrays are allocated quickly")
    meaning = "half of the pause of a resize is spent on mapping pages"
    fix = f"Linux 6.1 or later; before: mount -o remount,huge=within_size {directory} (by root)"
    return Check("pages", "note", f"of {mmap.PAGESIZE} bytes in {directory}", meaning, fix)


def _on_huge_pages(path: Path) -> bool:
    """Whether this process has mapped the file on huge pages, according to the kernel."""
    areas = Path("/proc/self/smaps").read_text().partition(str(path))[2]
    mapped = re.search(r"^ShmemPmdMapped: +(\d+) kB$", areas, re.MULTILINE)
    return mapped is not None and int(mapped[1]) > 0


OF_THE_MACHINE = (
    check_python,
    check_names,
    check_cores,
    check_files,
    check_cgroup,
    check_shared_memory,
    check_pages,
    check_copy_kernel,
)

# ---------------------------------------------------------------- a service directory

#: Files that hold a secret, if they exist.
SECRETS = ("secret", "journal.db", "journal.db-wal", "journal.db-shm", "journal.mark")
#: Files with names that were drawn once.
NAMES = ("memory-folder", "socket-folder")
#: Files that a disk without room may have left empty.
NEVER_EMPTY = ("secret", *NAMES, "journal.mark")
#: Free space below which submissions are refused, and below which they soon may be; bytes.
_NEEDED_BYTES, _SCARCE_ROOM = 1 << 20, 1 << 28
#: Free ports that a few MPI jobs need.
_FEW_PORTS = 100
#: Share of the open files above which a service is about to run out.
_MANY = 0.9
_CONNECT_S = 3.0
#: Variables that bound the ports on which MPICH and hydra listen.
_RANGES = ("MPICH_PORT_RANGE", "MPIR_CVAR_CH3_PORT_RANGE", "MPIEXEC_PORT_RANGE", "HYDRA_PORT_RANGE")
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def check_service_directory(directory: Path) -> list[Check]:
    """Check owners, modes and keys of a service directory, and what its service needs.

    Parameters
    ----------
    directory : the directory; it is not changed.
    """
    if not directory.is_dir():
        return [
            Check(
                "directory",
                "fault",
                f"there is no directory {directory}",
                "no service was started there",
                f"reshape serve --dir {directory}",
            )
        ]
    checks = [_private("directory", directory, 0o700)]
    files = [name for name in (*SECRETS, *NAMES) if (directory / name).exists()]
    checks += [_private(name, directory / name) for name in files]
    access = directory / "access"
    if access.is_dir():
        checks.append(_private("access", access, 0o700))
        checks += _check_keys(access)
    checks += _check_memory(directory)
    service, pid = _check_service(directory)
    checks += [service, check_room(directory)]
    checks.append(check_open_files(pid) if pid else check_files())
    with contextlib.suppress(ReshapeError):  # reported with the access files
        keys = read_private(access / "server.json", dict[str, object])
        checks.append(check_listener(str(keys.get("endpoint")), pid))
        checks.append(check_account(directory.stat().st_uid))
    checks.append(check_mpi_ports(os.environ))
    return checks


def _private(name: str, path: Path, mode: int = 0o600) -> Check:
    """Check that a file or folder belongs to this user, and that other users have no access."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return Check(name, "fault", "a symbolic link", "another user may own its target")
    if status.st_uid != os.geteuid():
        fix = f"sudo chown -R {os.geteuid()} {path}, or run as user {status.st_uid}"
        return Check(name, "fault", f"belongs to user {status.st_uid}", "is not yours", fix)
    if status.st_mode & 0o077:
        result = f"mode {stat.S_IMODE(status.st_mode):04o}"
        meaning = "other users have access; replace its secrets if they had it before"
        return Check(name, "fault", result, meaning, f"chmod {mode:o} {path}")
    if name in NEVER_EMPTY and not status.st_size:
        fix = f"end the service, remove {path}, and start the service again"
        return Check(name, "fault", "is empty", "agents and jobs cannot be served", fix)
    return Check(name, "ok", f"mode {stat.S_IMODE(status.st_mode):04o}", "only you have access")


def _check_keys(access: Path) -> Iterator[Check]:
    for path in sorted(access.iterdir()):
        name = f"access/{path.name}"
        private = _private(name, path)
        if private.status != "ok" or path.suffix != ".json" or path.name == "keys.json":
            yield private
            continue
        fix = f"remove {path} and start the service again"
        try:
            keys = read_private(path, dict[str, object])
        except ReshapeError as error:
            yield Check(name, "fault", str(error), "no connection is possible with it", fix)
            continue
        fault = key_fault(str(keys.get("public_key")), str(keys.get("secret_key")))
        if not fault and path.name != "server.json":
            fault = _difference(path, access / "server.json")
        if fault:
            yield Check(name, "fault", fault, "no connection is possible with it", fix)
        else:
            yield Check(name, "ok", f"{private.result}, a key pair", "only you have access")


def _difference(path: Path, server: Path) -> str:
    """Describe how an access file differs from the keys of its service; empty if it does not."""
    try:
        access = read_private(path, AccessFile)
        keys = read_private(server, dict[str, object])
    except ReshapeError as error:
        return str(error)
    if access.server_key != keys.get("public_key"):
        return "it names another key of the service"
    if access.endpoint != keys.get("endpoint"):
        return f"it names {access.endpoint}, the service listens on {keys.get('endpoint')}"
    return ""


def _check_memory(directory: Path) -> Iterator[Check]:
    try:
        name = (directory / "memory-folder").read_text().strip()
    except OSError:
        return
    if not name:  # reported with the files
        return
    folder = _SHARED / name
    own = own_folder(folder)
    with contextlib.suppress(FileNotFoundError):
        user = folder.lstat().st_uid
        if user not in (os.geteuid(), directory.stat().st_uid):
            result = f"{folder} belongs to user {user}, who has taken its name"
            yield Check("shared memory", "note", result, "agents use a folder with another name")
    if own.exists():
        yield _private("shared memory", own, 0o700)


def _check_service(directory: Path) -> tuple[Check, int]:
    """Check whether the service runs, and return its process; 0 if it does not."""
    fix = f"reshape serve --dir {directory}"
    if not (directory / SERVER_FILE).exists():
        return Check("service", "note", "does not run", "", fix), 0
    try:
        service = service_in(directory)
    except ServiceUnavailable:
        return Check("service", "note", "is gone", "its jobs continue under their agents", fix), 0
    except ReshapeError as error:
        return Check("service", "fault", str(error), "commands do not find the service"), 0
    return Check("service", "ok", f"runs at {service.endpoint}"), service.pid


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
    if free < _SCARCE_ROOM:
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


def check_account(owner: int) -> Check:
    """Check the account under which the jobs of users with a key run.

    Parameters
    ----------
    owner : user of the directory of a service that has keys.
    """
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    if owner:
        return Check("account", "ok", f"jobs run as {name}", "every key gives the rights of it")
    fix = "serve in a directory of another user, and create its keys anew"
    return Check("account", "note", "jobs run as root", "every key gives root on all nodes", fix)


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
    for name, text in bounds.items() or {"the ports of the system": _EPHEMERAL.read_text()}.items():
        match = re.fullmatch(r"(\d+)[:,\s]+(\d+)", text.strip())
        if match is None or not 0 < int(match[1]) <= int(match[2]) < 1 << 16:
            fix = f"{name}=LOW:HIGH" if bounds else ""
            return Check("MPI ports", "fault", f"{name} is {text!r}", "no range of ports", fix)
        low, high = int(match[1]), int(match[2])
        used = {each.laddr.port for each in psutil.net_connections("tcp") if each.laddr}
        free = sum(port not in used for port in range(low, high + 1))
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
