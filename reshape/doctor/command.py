"""`reshape doctor`: check whether jobs can run and be resized with the installed MPI."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec
import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reshape.cli.options import Seconds, example
from reshape.doctor import checks
from reshape.doctor.checks import Check, check_service_directory
from reshape.doctor.hosts import examine_hosts, program_command, read_hosts
from reshape.errors import ReshapeError
from reshape.mpi import clean_environment, mpiexec_path

LIMIT_S = 6.0  # of one check; on an idle machine each takes well below 1 s
COLORS = {"ok": "green", "note": "yellow", "fault": "bold red", "skipped": "dim"}
_SAME_MPI = (
    "install both from one place, as 'pip install mpich mpi4py', or build mpi4py with the mpicc "
    "beside this mpiexec"
)
_OTHER_MPI = "use MPICH 4.1 or newer (pip install mpich)"
_MARK = "RESHAPE_PROBE"  # environment variable that identifies the processes of one run
_SHARED = Path("/dev/shm")
_LOOKS, _PAUSE_S = 200, 0.02  # searches for remaining processes, and seconds between them


class Launcher:
    """Starts test programs under one mpiexec.

    Parameters
    ----------
    mpiexec : the mpiexec to examine; None: that of `mpiexec_path`.
    limit_s : seconds after which a run is ended and counts as failed.
    """

    def __init__(self, mpiexec: Path | None, limit_s: float) -> None:
        self._mpiexec, self.limit_s = mpiexec, limit_s

    @property
    def mpiexec(self) -> Path:
        """The mpiexec.

        Raises
        ------
        ReshapeError : there is none.
        """
        return self._mpiexec or mpiexec_path()

    def run(self, *worlds: tuple[int, Sequence[str]]) -> tuple[list[dict[str, Any]], str]:
        """Start all worlds (ranks, program and its arguments) together and wait for their ends.

        Returns
        -------
        facts that the ranks have printed, and what went wrong (empty: nothing).
        """
        mark = uuid.uuid4().hex
        started: list[subprocess.Popen[str]] = []
        try:
            for ranks, program in worlds:
                started.append(self._start(ranks, program, mark))
            outputs = self._outputs(started)
        except subprocess.TimeoutExpired:
            outputs = []
        except OSError as error:
            return [], str(error)
        finally:
            end_marked(mark)
            for process in started:
                process.communicate()  # waits for it and closes its pipes
        if len(outputs) < len(worlds):
            fix = "--limit allows a slow machine more"
            return [], f"not finished after {self.limit_s:g} s ({fix})"
        facts = [fact for out, _ in outputs for fact in _facts(out)]
        codes = [process.returncode for process in started]
        if not any(codes):
            return facts, ""
        errors = "\n".join(err for _, err in outputs)
        return facts, f"exit code {max(codes, key=abs)}: {_error_line(errors)}"

    def _start(self, ranks: int, program: Sequence[str], mark: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.mpiexec), "-n", str(ranks), *program_command(program)],
            env=clean_environment(os.environ) | {_MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def _outputs(self, started: list[subprocess.Popen[str]]) -> list[tuple[str, str]]:
        """Wait for all; raise subprocess.TimeoutExpired if one takes longer than the limit."""
        deadline = time.monotonic() + self.limit_s
        return [
            process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            for process in started
        ]


def _facts(output: str) -> list[dict[str, Any]]:
    """Decode the lines that are JSON objects; an mpiexec may print other lines."""
    return [
        json.loads(line) for line in output.splitlines() if line[:1] == "{" and line[-1:] == "}"
    ]


def _error_line(errors: str) -> str:
    """Return the first line about an error or exception, else the first line."""
    lines = [line for line in errors.splitlines() if line and not line[0].isspace()]
    about_errors = [
        line for line in lines if "error" in line.lower() or "exception" in line.lower()
    ]
    return (about_errors or lines or ["nothing on stderr"])[0]


def end_marked(mark: str) -> None:
    """Kill every process whose environment contains the mark, and remove its shared memory.

    All are stopped before the first is killed. Otherwise a launcher would kill ranks when the first
    one ends, before their shared memory was listed here.
    """
    ours: dict[int, psutil.Process] = {}
    for _ in range(_LOOKS):  # new ones may be forked meanwhile
        new = [p for p in psutil.process_iter() if p.pid not in ours and _has_mark(p, mark)]
        if not new:
            break
        for process in new:
            ours[process.pid] = process
            _signal(process, signal.SIGSTOP)
    segments = {path for process in ours.values() for path in _shared_files(process)}
    for process in ours.values():
        _signal(process, signal.SIGKILL)
    for _ in range(_LOOKS):
        if not any(_has_mark(process, mark) for process in ours.values()):
            break
        time.sleep(_PAUSE_S)
    for segment in segments:
        segment.unlink(missing_ok=True)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):  # it has ended
        process.send_signal(number)


def _shared_files(process: psutil.Process) -> set[Path]:
    """Files in /dev/shm that the process has mapped or opened."""
    paths: set[str] = set()
    with suppress(psutil.Error):
        paths |= {area.path for area in process.memory_maps()}
        paths |= {file.path for file in process.open_files()}
    return {Path(path) for path in paths if Path(path).parent == _SHARED}


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.Error, OSError):  # it has ended, or belongs to another user
        return False


# ---------------------------------------------------------------- the checks of MPI
# All but the first one start worlds.


def check_mpiexec(launcher: Launcher) -> Check:
    """Look for the mpiexec."""
    try:
        return Check("mpiexec", "ok", str(launcher.mpiexec), "starts every job")
    except ReshapeError as error:
        return Check("mpiexec", "fault", "none", "no MPI program starts", str(error))


def check_library(launcher: Launcher) -> Check:
    """Find the library that mpi4py is bound to under this mpiexec."""
    facts, fault = launcher.run((1, ["library"]))
    if fault or not facts:
        meaning = "no MPI program starts"
        return Check("library", "fault", fault or "no answer", meaning, _SAME_MPI)
    fact = facts[0]
    return Check("library", "ok", f"{fact['library']}; mpi4py {fact['mpi4py']}")


def check_world(launcher: Launcher) -> Check:
    """Start two ranks and check that they form one world of size 2, not two of size 1."""
    facts, fault = launcher.run((2, ["world"]))
    sizes = [fact["size"] for fact in facts]
    if sizes == [2] and not fault:
        return Check("two ranks", "ok", "one communicator of size 2", "MPI programs run")
    if sizes == [1, 1]:
        result = "two communicators of size 1"
        meaning = "mpiexec and mpi4py belong to different MPIs"
        return Check("two ranks", "fault", result, meaning, _SAME_MPI)
    result = fault or f"communicators of sizes {sizes}"
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
        facts, fault = launcher.run(*worlds)
    if fault:
        return fault
    joins = [fact["joined"] for fact in facts]
    return "" if joins == [list(groups)] else f"expected joins of {list(groups)}, got {joins}"


# ---------------------------------------------------------------- all checks, and the command

#: Name of a check -> the check that it depends on, "" if there is none, and the function.
CHECKS: dict[str, tuple[str, Callable[[Launcher], Check]]] = {
    "python": ("", lambda _: checks.check_python()),
    "names": ("", lambda _: checks.check_names()),
    "cores": ("", lambda _: checks.check_cores()),
    "open files": ("", lambda _: checks.check_files()),
    "control groups": ("", lambda _: checks.check_cgroup()),
    "shared memory": ("", lambda _: checks.check_shared_memory()),
    "pages": ("", lambda _: checks.check_pages()),
    "copy kernel": ("", lambda _: checks.check_copy_kernel()),
    "mpiexec": ("", check_mpiexec),
    "library": ("mpiexec", check_library),
    "two ranks": ("library", check_world),
    "connect": ("two ranks", check_connect),
    "regrow": ("connect", check_regrow),
}


def diagnose(mpiexec: Path | None = None, limit_s: float = LIMIT_S) -> list[Check]:
    """Run all checks, except those that depend on a failed one.

    Parameters
    ----------
    mpiexec : the mpiexec to examine; found by `mpiexec_path` if None.
    limit_s : time limit of each check that starts MPI programs, seconds.
    """
    launcher = Launcher(mpiexec, limit_s)
    checks: dict[str, Check] = {}
    for name, (needed, check) in CHECKS.items():
        if needed and checks[needed].status != "ok":
            checks[name] = Check(name, "skipped", f"needs {needed!r}")
            continue
        began = time.monotonic()
        result = check(launcher)
        took_s = round(time.monotonic() - began, 3)
        checks[name] = msgspec.structs.replace(result, seconds=took_s)
    return list(checks.values())


def conclusion(passed: set[str]) -> tuple[bool, str]:
    """Conclude from the checks that passed whether jobs can be run and resized, and why."""
    if "regrow" in passed:
        return True, "mpiexec worlds join repeatedly, so any group can leave"
    if "two ranks" not in passed:
        return False, "MPI programs do not run here"
    broken = "join once but not repeatedly" if "connect" in passed else "cannot be joined"
    return False, f"mpiexec worlds {broken}, so jobs keep their size"


def print_checks(checks: Sequence[Check], console: Console) -> None:
    """Print the table of checks, and the fixes in lines that can be copied."""
    table = Table()
    for heading in ("check", "result", "what it means"):
        table.add_column(heading, overflow="fold")  # a path is folded, never cut
    for check in checks:
        color = COLORS[check.status]
        label = check.name if check.status == "ok" else f"{check.name}: {check.status}"
        table.add_row(f"[{color}]{label}[/]", escape(check.result), escape(check.meaning))
    console.print(table)
    for check in checks:
        if check.fix:
            console.print(f"Fix of {check.name}: {escape(check.fix)}", soft_wrap=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis as JSON.")
@click.option(
    "--mpiexec",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The mpiexec to check.  [default: beside this Python, else on PATH]",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(),
    default=LIMIT_S,
    show_default=True,
    help="Time limit of each check, in seconds or such as 2min; a slow machine needs more.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Check this service directory instead: files, keys, room, open files, listener, ports.",
)
@click.option(
    "--hosts",
    "hosts_file",
    type=click.Path(path_type=Path),
    help="Check the hosts of this machine file or configuration file instead, and MPI on them.",
)
@click.option(
    "--ssh",
    metavar="COMMAND",
    help="Command that reaches the hosts.  [default: as the file says, or ssh]",
)
@click.option(
    "--shared",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder that all hosts have to share.  [default: the working directory]",
)
@click.pass_context
@example("reshape doctor", "reshape doctor --dir ~/.reshape", "reshape doctor --hosts cluster.yaml")
def doctor(
    ctx: click.Context,
    as_json: bool,
    mpiexec: Path | None,
    limit_s: float,
    directory: Path | None,
    hosts_file: Path | None,
    ssh: str | None,
    shared: Path,
) -> None:
    """Check whether jobs can run and be resized with the MPI of this machine.

    The checks start small MPI programs, and end all of them. The exit code is 0 if jobs can be run
    and resized, otherwise 1. With --dir no MPI program is started, and the exit code is 0 if
    nothing is wrong with the directory. With --hosts small MPI programs run on the hosts, and the
    exit code is 0 if jobs can span and join them.
    """
    if directory is not None:
        _conclude(ctx, check_service_directory(directory.expanduser().absolute()), as_json)
    if hosts_file is not None:
        hosts, ssh_of_file = read_hosts(hosts_file)
        of_hosts = examine_hosts(hosts, ssh or ssh_of_file, shared.absolute(), limit_s)
        _conclude(ctx, of_hosts, as_json)
    checks = diagnose(mpiexec and mpiexec.absolute(), limit_s)
    passed = {check.name for check in checks if check.status == "ok"}
    ready, why = conclusion(passed)
    if as_json:
        diagnosis = {"checks": checks, "ready": ready, "reason": why}
        click.echo(msgspec.json.format(msgspec.json.encode(diagnosis), indent=2))
    else:
        print_checks(checks, Console())
        verdict = "cannot be run"
        if "two ranks" in passed:
            verdict = "can be run and resized" if ready else "can be run, but not resized"
        click.echo(f"Jobs {verdict} here: {why}.")
    ctx.exit(0 if ready else 1)


def _conclude(ctx: click.Context, checks: Sequence[Check], as_json: bool) -> NoReturn:
    """Print checks and exit, with code 1 if one of them found a fault."""
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"checks": checks}), indent=2))
    else:
        print_checks(checks, Console())
    ctx.exit(int(any(check.status == "fault" for check in checks)))
