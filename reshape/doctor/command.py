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
from typing import Any

import click
import msgspec
import psutil
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reshape.cli.options import SECONDS, example
from reshape.doctor.checks import OF_THE_MACHINE, Check, check_service_directory
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


def run_worlds(
    mpiexec: Path | None, limit_s: float, *worlds: tuple[int, Sequence[str]]
) -> tuple[list[dict[str, Any]], str]:
    """Start all worlds (ranks, test program and its arguments) together and wait for their ends.

    Parameters
    ----------
    mpiexec : None: that of `mpiexec_path`.
    limit_s : seconds after which they are ended, and have failed.

    Returns
    -------
    facts that the ranks have printed, and what went wrong (empty: nothing).

    Raises
    ------
    ReshapeError : there is no mpiexec.
    """
    mark, started, outputs = uuid.uuid4().hex, list[subprocess.Popen[str]](), list[Any]()
    command, environment = str(mpiexec or mpiexec_path()), clean_environment(os.environ)
    deadline = time.monotonic() + limit_s
    try:
        for ranks, program in worlds:
            process = subprocess.Popen(
                [command, "-n", str(ranks), *program_command(program)],
                env=environment | {_MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            started.append(process)
        for process in started:
            left_s = max(0.0, deadline - time.monotonic())
            outputs.append(process.communicate(timeout=left_s))
    except subprocess.TimeoutExpired:
        return [], f"not finished after {limit_s:g} s (--limit allows a slow machine more)"
    except OSError as error:
        return [], str(error)
    finally:
        end_marked(mark)
        for process in started:
            process.communicate()  # waits for it and closes its pipes
    facts = [fact for out, _ in outputs for fact in _facts(out)]
    codes = [process.returncode for process in started]
    if not any(codes):
        return facts, ""
    errors = "\n".join(err for _, err in outputs)
    return facts, f"exit code {max(codes, key=abs)}: {_error_line(errors)}"


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


def check_mpiexec(mpiexec: Path | None) -> Check:
    """Look for the mpiexec."""
    try:
        return Check("mpiexec", "ok", str(mpiexec or mpiexec_path()), "starts every job")
    except ReshapeError as error:
        return Check("mpiexec", "fault", "none", "no MPI program starts", str(error))


def check_library(mpiexec: Path | None, limit_s: float) -> Check:
    """Find the library that mpi4py is bound to under this mpiexec."""
    facts, fault = run_worlds(mpiexec, limit_s, (1, ["library"]))
    if fault or not facts:
        meaning = "no MPI program starts"
        return Check("library", "fault", fault or "no answer", meaning, _SAME_MPI)
    fact = facts[0]
    return Check("library", "ok", f"{fact['library']}; mpi4py {fact['mpi4py']}")


def check_world(mpiexec: Path | None, limit_s: float) -> Check:
    """Start two ranks and check that they form one world of size 2, not two of size 1."""
    facts, fault = run_worlds(mpiexec, limit_s, (2, ["world"]))
    sizes = [fact["size"] for fact in facts]
    if sizes == [2] and not fault:
        return Check("two ranks", "ok", "one communicator of size 2", "MPI programs run")
    if sizes == [1, 1]:
        result = "two communicators of size 1"
        meaning = "mpiexec and mpi4py belong to different MPIs"
        return Check("two ranks", "fault", result, meaning, _SAME_MPI)
    result = fault or f"communicators of sizes {sizes}"
    return Check("two ranks", "fault", result, "MPI programs do not run", _SAME_MPI)


def check_connect(mpiexec: Path | None, limit_s: float) -> Check:
    """Join two worlds by accept and connect; the joined one leaves again."""
    works = Check("connect", "ok", "two mpiexec worlds joined", "jobs can expand by groups")
    return _check_groups(mpiexec, limit_s, [1], works, "worlds cannot be joined")


def check_regrow(mpiexec: Path | None, limit_s: float) -> Check:
    """Join three times; after each join another group leaves, the original one included."""
    meaning = "any group can leave, the original one included"
    works = Check("regrow", "ok", "3 joins, 3 leaves", meaning)
    return _check_groups(mpiexec, limit_s, [1, 0, 2], works, "jobs cannot be resized repeatedly")


def _check_groups(
    mpiexec: Path | None, limit_s: float, leavers: list[int], works: Check, meaning: str
) -> Check:
    """Run the joins: a check that works if the last group reports all of them, or a fault."""
    groups = range(len(leavers) + 1)
    series = ",".join(map(str, leavers))
    with tempfile.TemporaryDirectory(prefix="reshape-doctor-") as directory:
        worlds = [(1 + group % 2, ["groups", directory, str(group), series]) for group in groups]
        facts, fault = run_worlds(mpiexec, limit_s, *worlds)
    joins = [fact["joined"] for fact in facts]
    if not fault and joins != [list(groups)]:
        fault = f"expected joins of {list(groups)}, got {joins}"
    return Check(works.name, "fault", fault, meaning, _OTHER_MPI) if fault else works


# ---------------------------------------------------------------- all checks, and the command

#: The checks that start worlds, each of which needs the one before it.
OF_MPI: dict[str, Callable[[Path | None, float], Check]] = {
    "library": check_library,
    "two ranks": check_world,
    "connect": check_connect,
    "regrow": check_regrow,
}


def diagnose(mpiexec: Path | None = None, limit_s: float = LIMIT_S) -> list[Check]:
    """Run all checks, except those that depend on a failed one.

    Parameters
    ----------
    mpiexec : the mpiexec to examine; found by `mpiexec_path` if None.
    limit_s : time limit of each check that starts MPI programs, seconds.
    """
    checks = [check() for check in OF_THE_MACHINE]
    checks.append(check_mpiexec(mpiexec))
    for name, check in OF_MPI.items():  # each depends on the one before
        if checks[-1].status == "ok":
            checks.append(check(mpiexec, limit_s))
        else:
            checks.append(Check(name, "skipped", f"needs {checks[-1].name!r}"))
    return checks


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
    type=SECONDS,
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
        checks = check_service_directory(directory.expanduser().absolute())
    elif hosts_file is not None:
        hosts, ssh_of_file = read_hosts(hosts_file)
        checks = examine_hosts(hosts, ssh or ssh_of_file, shared.absolute(), limit_s)
    else:
        checks = diagnose(mpiexec and mpiexec.absolute(), limit_s)
        passed = {check.name for check in checks if check.status == "ok"}
        ready, why = conclusion(passed)
        _print(checks, as_json, ready=ready, reason=why)
        if not as_json:
            verdict = "cannot be run"
            if "two ranks" in passed:
                verdict = "can be run and resized" if ready else "can be run, but not resized"
            click.echo(f"Jobs {verdict} here: {why}.")
        ctx.exit(0 if ready else 1)
    _print(checks, as_json)
    ctx.exit(int(any(check.status == "fault" for check in checks)))


def _print(checks: Sequence[Check], as_json: bool, **more: object) -> None:
    if as_json:
        encoded = msgspec.json.encode({"checks": checks} | more)
        click.echo(msgspec.json.format(encoded, indent=2))
    else:
        print_checks(checks, Console())
