"""Control groups of Linux, version 2 (cgroups(7)), as sets of processes that are ended together.

A process and all its descendants stay in their control group whatever they do with their parents,
sessions and environments. A process of the same user may move itself to another one, where it may
write; this is no barrier against intent.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MOUNTS, _OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")
#: File of a control group to which a process writes to be in it.
PROCESSES = "cgroup.procs"
#: Last parts of a path that tell two control groups apart.
_TELLING = 3
_KILL, _EVENTS = "cgroup.kill", "cgroup.events"


def own_cgroup() -> Path | None:
    """Return the folder of the control group of this process, None if it has none here."""
    try:
        paths = [line for line in _OWN.read_text().splitlines() if line.startswith("0::")]
        mounts = [line.split() for line in _MOUNTS.read_text().splitlines()]
    except OSError:
        return None
    for fields in mounts if paths else ():
        if fields[fields.index("-") + 1] == "cgroup2":  # proc_pid_mountinfo(5)
            own = os.path.relpath(paths[0].removeprefix("0::"), fields[3])
            folder = Path(os.path.normpath(os.path.join(fields[4], own)))
            return folder if (folder / PROCESSES).exists() else None
    return None


def make(folder: Path) -> bool:
    """Make a control group that can be ended, or find it; return whether there is one."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return False
    return os.access(folder / PROCESSES, os.W_OK) and os.access(folder / _KILL, os.W_OK)


def has_process(folder: str, pid: int) -> bool:
    """Whether a process is in a control group or one below it."""
    try:
        paths = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:  # it has ended
        return False
    # The system shows paths from another root than that of the mounted file system.
    own = next((f"{path}/" for path in paths if path.startswith("0::")), "")
    return "/".join(["", *folder.split("/")[-_TELLING:], ""]) in own


def end(folder: Path) -> bool:
    """Kill all processes of a control group, and remove it; return whether some are left."""
    try:
        if "populated 1" in (folder / _EVENTS).read_text():
            (folder / _KILL).write_text("1")
            return True
    except OSError:  # there is none
        return False
    for inner, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(inner)
    return False


def probe() -> str:
    """Return why this process can make no control group; empty if it can."""
    own = own_cgroup()
    if own is None:
        return "no control groups of version 2"
    folder = own / f"reshape-probe-{os.getpid()}"
    limit = make(folder)
    end(folder)
    return "" if limit else f"{own} cannot be written, or the system is older than Linux 5.14"
