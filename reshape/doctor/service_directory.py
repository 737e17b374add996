"""The checks of `reshape doctor --dir`: the files of a service directory, and what it needs."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from reshape.doctor.checks import Check, check_files
from reshape.doctor.service_resources import (
    check_listener,
    check_mpi_ports,
    check_open_files,
    check_room,
)
from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.access import AccessFile, key_fault, read_private
from reshape.wire.connection import SERVER_FILE, ServerFile, endpoint_of

#: Files that hold a secret, if they exist.
SECRETS = ("secret", "journal.db", "journal.db-wal", "journal.db-shm", "journal.mark")
#: Files with names that were drawn once.
NAMES = ("memory-folder", "socket-folder")
#: Files that a disk without room may have left empty.
NEVER_EMPTY = ("secret", *NAMES, "journal.mark")
_SHARED_MEMORY = Path("/dev/shm")


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
    checks.append(_check_service(directory))
    pid = _pid(directory)
    checks.append(check_room(directory))
    checks.append(check_open_files(pid) if pid else check_files())
    with contextlib.suppress(ReshapeError):  # reported with the access files
        keys = read_private(access / "server.json", dict[str, object])
        checks.append(check_listener(str(keys.get("endpoint")), pid))
    checks.append(check_mpi_ports(os.environ))
    return checks


def _pid(directory: Path) -> int:
    """Return the process of the service of a directory, 0 if it does not run."""
    try:
        endpoint_of(directory)
        file = msgspec.json.decode((directory / SERVER_FILE).read_bytes(), type=ServerFile)
    except (ReshapeError, OSError, msgspec.DecodeError):
        return 0
    return file.pid


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
        folder = _SHARED_MEMORY / (directory / "memory-folder").read_text().strip()
    except OSError:
        return
    if folder.exists():
        yield _private("shared memory", folder, 0o700)


def _check_service(directory: Path) -> Check:
    if not (directory / SERVER_FILE).exists():
        return Check("service", "note", "does not run", "", f"reshape serve --dir {directory}")
    try:
        return Check("service", "ok", f"runs at {endpoint_of(directory)}")
    except ServiceUnavailable:
        meaning = "its jobs continue under their agents"
        return Check("service", "note", "is gone", meaning, f"reshape serve --dir {directory}")
    except ReshapeError as error:
        return Check("service", "fault", str(error), "commands do not find the service")
