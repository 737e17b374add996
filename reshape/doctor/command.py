"""`reshape doctor`: check whether jobs can run and be resized with the installed MPI."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reshape.cli.options import Seconds, example
from reshape.doctor import checks
from reshape.doctor.checks import Check
from reshape.doctor.hosts import examine_hosts, read_hosts
from reshape.doctor.launcher import Launcher
from reshape.doctor.service_checks import check_service_directory

LIMIT_S = 6.0  # of one check; on an idle machine each takes well below 1 s
COLORS = {"ok": "green", "note": "yellow", "fault": "bold red", "skipped": "dim"}

Growth = Literal["joined groups", "spawn", "none"]


class Diagnosis(msgspec.Struct, frozen=True):
    """The checks and the conclusion.

    Attributes
    ----------
    growth : the way in which jobs expand.
    reason : why it is this one.
    ready : whether jobs can be run and resized.
    """

    checks: tuple[Check, ...]
    growth: Growth
    reason: str
    ready: bool


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
    "mpiexec": ("", checks.check_mpiexec),
    "library": ("mpiexec", checks.check_library),
    "two ranks": ("library", checks.check_world),
    "connect": ("two ranks", checks.check_connect),
    "regrow": ("connect", checks.check_regrow),
    "spawn": ("two ranks", checks.check_spawn),
}


def diagnose(mpiexec: Path | None = None, limit_s: float = LIMIT_S) -> Diagnosis:
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
    growth, reason = choose_growth({name for name, check in checks.items() if check.status == "ok"})
    return Diagnosis(tuple(checks.values()), growth, reason, growth != "none")


def choose_growth(passed: set[str]) -> tuple[Growth, str]:
    """Choose the way in which jobs expand by the checks that passed; return it with the reason."""
    if "regrow" in passed:
        return (
            "joined groups",
            "mpiexec worlds join repeatedly, so any group can leave",
        )
    if "two ranks" not in passed:
        return "none", "MPI programs do not run here"
    broken = "join once but not repeatedly" if "connect" in passed else "cannot be joined"
    if "spawn" in passed:
        return "spawn", f"mpiexec worlds {broken}, but spawn works (last in, first out)"
    return "none", f"mpiexec worlds {broken} and spawn fails, so jobs keep their size"


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print the checks, the fixes, and the conclusion."""
    print_checks(diagnosis.checks, console)
    console.print(f"Jobs expand by: [bold]{diagnosis.growth}[/] ({diagnosis.reason}).")
    verdict = "can" if diagnosis.ready else "cannot"
    console.print(f"Jobs {verdict} be run and resized here.")


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
    diagnosis = diagnose(mpiexec and mpiexec.absolute(), limit_s)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(diagnosis), indent=2))
    else:
        print_diagnosis(diagnosis, Console())
    ctx.exit(0 if diagnosis.ready else 1)


def _conclude(ctx: click.Context, checks: Sequence[Check], as_json: bool) -> NoReturn:
    """Print checks and exit, with code 1 if one of them found a fault."""
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"checks": checks}), indent=2))
    else:
        print_checks(checks, Console())
    ctx.exit(int(any(check.status == "fault" for check in checks)))
