"""The script of the batch job that runs a job of a batch site."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from reshape.errors import ReshapeError
from reshape.wire.messages import Submission

#: Variables that describe the batch job in which a process runs; those of the client would mislead.
_OF_BATCH_JOB = re.compile(r"(SLURM|PBS|LSB|LS|FLUX|PMI|PMIX|PSIJ)_|HYDRA_|HOSTNAME$|PWD$")
#: Names of variables that a shell can export; it passes no others on.
_EXPORTABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Fields of a submission that only a service can honour, with the option that sets them.
_OF_SERVICE = {
    "priority": "--priority",
    "queue": "--queue",
    "resources": "--resources",
    "reservation": "--reservation",
    "requeue": "--requeue",
    "shared": "--demand",
}


def check_submission(submission: Submission, processors: int, system: str) -> None:
    """Check that a batch site can run a job.

    Parameters
    ----------
    processors : largest number of processors of a job.
    system : name of the batch system, for messages.

    Raises
    ------
    ReshapeError : it cannot; the message names the option.
    """
    if submission.processors > processors:
        raise ReshapeError(
            f"the job asks for {submission.processors} processors and {system} gives a job at most"
            f" {processors}"
        )
    if "%N" in submission.output.replace("%%", ""):
        raise ReshapeError(f"%N in --output needs a service; {system} chooses the host later")
    bare = Submission(argv=[], processors=1, walltime_s=1.0)
    for name, option in _OF_SERVICE.items():
        if getattr(submission, name) != getattr(bare, name):
            raise ReshapeError(f"{option} needs a service; a job of {system} runs without one")


def job_script(submission: Submission, output: Path) -> str:
    """Script that starts a program under mpiexec, on the processors with which it begins.

    The job is not resized: its program runs as without a service.
    """
    lines = ["#!/bin/sh"]
    if submission.open_mode == "truncate":
        lines.append(f": > {shlex.quote(str(output))}")
    # In the script, which only its user can read, and not in an argument list, which all can.
    lines += [
        f"export {name}={shlex.quote(value)}"
        for name, value in submission.environment.items()
        if _EXPORTABLE.fullmatch(name) and not _OF_BATCH_JOB.match(name)
    ]
    command = ["mpiexec", "-n", str(submission.processors), *submission.argv]
    lines.append(f"exec {shlex.join(command)}")
    return "\n".join(lines) + "\n"
