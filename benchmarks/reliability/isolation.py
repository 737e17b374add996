"""A round in namespaces of its own: no other process, and a /dev/shm of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path


def is_isolated() -> bool:
    """Whether this process runs in namespaces of its own."""
    return os.environ.get("CAMPAIGN_ISOLATED") == "1"


def isolated(command: list[str]) -> list[str]:
    """Return the command, run in namespaces of its own if the system allows it."""
    space = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.getuid() or shutil.which("unshare") is None:
        return command
    if subprocess.run([*space, "true"], capture_output=True, check=False).returncode:
        return command
    script = 'mount -t tmpfs -o size=256m tmpfs /dev/shm && CAMPAIGN_ISOLATED=1 "$@"; exit $?'
    return [*space, "sh", "-c", script, "sh", *command]


def collect_journal(folder: Path) -> None:
    """Copy the service directory out of the file system that ends with this process."""
    with contextlib.suppress(OSError, sqlite3.Error):
        shutil.copytree(folder / "service", folder / "service-end", ignore=_sockets)


def _sockets(where: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(where) / name).is_socket() or name == "filler"}
