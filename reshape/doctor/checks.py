"""The checks of `reshape doctor`: each tries one thing and states the consequence.

No check draws conclusions from version numbers.
"""

from __future__ import annotations

import mmap
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Literal

import msgspec

from redistribution.copies import kernel
from reshape.data.mapped_files import HUGE_PAGE, new_memory
from reshape.doctor.launcher import Launcher
from reshape.errors import ReshapeError
from reshape.files import cgroup
from reshape.user_modules import hiding

_SHARED = Path("/dev/shm")
_SCARCE_BYTES = 1 << 30
_SCARCE_FILES = 4096
_READER = "import sys; sys.stdout.write(open(sys.argv[1], 'rb').read(16).hex())"
_READER_LIMIT_S = 10
_SAME_MPI = (
    "install both from one place, as 'pip install mpich mpi4py', or build mpi4py with the mpicc "
    "beside this mpiexec"
)
_PACKAGES = ("redistribution", "reshape", "scheduler", "simulator", "apps")
_COMPILER = "install a C compiler (cc, or name it in CC), then install reshape again with pip"
_OTHER_MPI = "use MPICH 4.1 or newer (pip install mpich)"

Status = Literal["ok", "note", "fault", "skipped"]


class Check(msgspec.Struct, frozen=True, rename={"fix": "mend"}):
    """The outcome of one check.

    Attributes
    ----------
    result : what was found.
    meaning : its consequence for jobs.
    fix : what the user can do; "mend" in JSON.
    seconds : time that the check took.
    """

    name: str
    status: Status
    result: str
    meaning: str = ""
    fix: str = ""
    seconds: float = 0.0


# Checks of the machine, which need no MPI.


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


# Checks of the MPI installation; all but the first one start worlds.


def check_mpiexec(launcher: Launcher) -> Check:
    """Look for the mpiexec."""
    try:
        return Check("mpiexec", "ok", str(launcher.mpiexec), "starts every job")
    except ReshapeError as error:
        return Check("mpiexec", "fault", "none", "no MPI program starts", str(error))


def check_library(launcher: Launcher) -> Check:
    """Find the library that mpi4py is bound to under this mpiexec."""
    run = launcher.run((1, ["library"]))
    if run.fault or not run.facts:
        meaning = "no MPI program starts"
        return Check("library", "fault", run.fault or "no answer", meaning, _SAME_MPI)
    fact = run.facts[0]
    return Check("library", "ok", f"{fact['library']}; mpi4py {fact['mpi4py']}")


def check_world(launcher: Launcher) -> Check:
    """Start two ranks and check that they form one world of size 2, not two of size 1."""
    run = launcher.run((2, ["world"]))
    sizes = [fact["size"] for fact in run.facts]
    if sizes == [2] and not run.fault:
        return Check("two ranks", "ok", "one communicator of size 2", "MPI programs run")
    if sizes == [1, 1]:
        result = "two communicators of size 1"
        meaning = "mpiexec and mpi4py belong to different MPIs"
        return Check("two ranks", "fault", result, meaning, _SAME_MPI)
    result = run.fault or f"communicators of sizes {sizes}"
    return Check("two ranks", "fault", result, "MPI programs do not run", _SAME_MPI)


def check_connect(launcher: Launcher) -> Check:
    """Join two worlds by accept and connect; the joined one leaves again."""
    fault = _run_groups(launcher, leavers=[1])
    if not fault:
        return Check("connect", "ok", "two mpiexec worlds joined", "jobs can expand by groups")
    return Check("connect", "fault", fault, "worlds cannot be joined", _OTHER_MPI)


def check_regrow(launcher: Launcher) -> Check:
    """Join three times; after each join another group leaves, the original one included."""
    fault = _run_groups(launcher, leavers=[1, 0, 2])
    if not fault:
        meaning = "any group can leave, the original one included"
        return Check("regrow", "ok", "3 joins, 3 leaves", meaning)
    meaning = "jobs cannot be resized repeatedly"
    return Check("regrow", "fault", fault, meaning, _OTHER_MPI)


def _run_groups(launcher: Launcher, leavers: list[int]) -> str:
    """Run the joins; return what went wrong, empty if the last group reports all of them."""
    groups = range(len(leavers) + 1)
    series = ",".join(map(str, leavers))
    with tempfile.TemporaryDirectory(prefix="reshape-doctor-") as directory:
        worlds = [(1 + group % 2, ["groups", directory, str(group), series]) for group in groups]
        run = launcher.run(*worlds)
    if run.fault:
        return run.fault
    joins = [fact["joined"] for fact in run.facts]
    return "" if joins == [list(groups)] else f"expected joins of {list(groups)}, got {joins}"


def check_spawn(launcher: Launcher) -> Check:
    """Spawn a process and disconnect from it, twice."""
    run = launcher.run((1, ["spawn"]))
    if not run.fault and run.facts == [{"sizes": [2, 2]}]:
        return Check("spawn", "ok", "spawned and disconnected twice", "jobs can expand by spawn")
    result = run.fault or f"reported {run.facts}"
    return Check("spawn", "note", result, "no other way to expand", "not needed if regrow works")
