"""``reshape slurm-commands``: write the commands of Slurm into a folder, and run one of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import click

from reshape.cli.options import example
from reshape.errors import ReshapeError
from reshape.times import in_local_time
from reshape.wire.connection import is_access_file
from scheduler.client.api.client import Client
from scheduler.client.api.service_option import service_option
from scheduler.client.requests.slurm_manual import MANUAL

#: Command -> module with the function of that name.
PROGRAMS = {
    "sbatch": "submitting",
    "srun": "submitting",
    "squeue": "listings",
    "sacct": "listings",
    "sinfo": "listings",
    "scancel": "submitting",
    "scontrol": "control",
    "salloc": "submitting",
}
#: A script of the shell and of Python: the path of an interpreter may be long or have spaces.
_PROGRAM = """#!/bin/sh
'''exec' "{python}" -P "$0" "$@"
' '''
import sys
from scheduler.client.slurm.programs import main
sys.exit(main({name!r}, {variable!r}, {service!r}, sys.argv[1:]))
"""


@click.command("slurm-commands")
@service_option
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@example("reshape slurm-commands ~/slurm-bin && export PATH=~/slurm-bin:$PATH")
def slurm_commands(service: Client, folder: Path) -> None:
    """Write sbatch, srun, squeue, scancel, sacct, scontrol, sinfo and salloc into DIR.

    They are Slurm's commands over this service, for people and programs that call them: put DIR
    first on PATH. They address the service of --dir or --access, unless RESHAPE_DIR or
    RESHAPE_ACCESS is set. See docs/coming-from-slurm.md.
    """
    try:
        _write_programs(folder, service.service)
    except OSError as error:
        raise ReshapeError(f"{str(folder)[:80]} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {', '.join(PROGRAMS)} to {folder}: put it first on PATH")


def _write_programs(folder: Path, service: Path) -> None:
    variable = "RESHAPE_ACCESS" if is_access_file(service) else "RESHAPE_DIR"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        path = folder / name
        if path.is_file() and __spec__.name.encode() not in path.read_bytes():
            raise ReshapeError(f"{path} is another program: choose a folder without it")
    for name in PROGRAMS:
        text = _PROGRAM.format(
            python=sys.executable,
            name=name,
            variable=variable,
            service=str(service.absolute()),
        )
        path = folder / name
        path.write_text(text)
        path.chmod(0o755)


def main(name: str, variable: str, service: str, words: Sequence[str]) -> int:
    """Run a command of Slurm, and return its exit code.

    Parameters
    ----------
    variable, service : variable that names the service, and its value, unless one is set.
    words : the arguments.
    """
    if not ("RESHAPE_DIR" in os.environ or "RESHAPE_ACCESS" in os.environ):
        os.environ[variable] = service
    if [*words] in (["--version"], ["-V"]):
        print("slurm 24.05.0 (reshape)")
        return 0
    if [*words] in (["--help"], ["--usage"]) and name in MANUAL:
        print(MANUAL[name].usage)
        return 0
    program: Callable[[Sequence[str]], int | None]
    program = getattr(import_module(f"scheduler.client.slurm.{PROGRAMS[name]}"), name)
    try:
        return program(words) or 0
    except ReshapeError as error:
        print(f"{name}: error: {in_local_time(str(error))}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
