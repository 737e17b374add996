"""Build a submission from the command line, and check it before it is sent."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reshape.checkpoints.directory import RESTART_VARIABLE, checkpoints_to_restart_from
from reshape.errors import ReshapeError
from reshape.wire.identity import IDENTITY_VARIABLES
from scheduler.node.directory import ServiceDirectory
from scheduler.node.launching.job_bounds import (
    folder_around,
    in_own_folder,
    is_of_kernel,
    own_limits,
    own_umask,
)
from scheduler.node.launching.job_command import check_arguments, check_sendable, interpreter_of
from scheduler.protocol.messages import OpenMode, Submission
from scheduler.text.plain import LONGEST_REASON, is_utf8, plain

OUTPUT = "reshape-%{JOB_ID}.out"


def prepare(
    argv: Sequence[str],
    processors: int,
    *,
    walltime_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output: str = OUTPUT,
    open_mode: OpenMode | None = None,
    restart_from: Path | None = None,
    ignored: str = "",
    **fields: Any,
) -> Submission:
    """Build a submission and check what concerns this host; the service checks the request.

    The umask and the resource limits are those of this process.

    Parameters
    ----------
    argv : program and arguments.
    walltime_s : run time limit, seconds, or `LONGEST_WALLTIME_S`; None: the default of the queue.
    environment : environment of the job; that of this process if None. The directory of the
        running interpreter is put first on its PATH, so that `python` is this interpreter.
    cwd : working directory of the job, relative to that of this process; the same if None.
    output : file for the standard output.
    open_mode : whether the start of the job empties outputs that exist, or appends to them. None:
        it appends to the default output, since several services number their jobs from 1 on, and
        empties another one, as in Slurm.
    restart_from : directory of checkpoints, or a checkpoint, from which the program restarts.
    ignored : options that have no meaning here.
    fields : other fields of `scheduler.protocol.messages.Submission`; None stands for the default.

    Raises
    ------
    ReshapeError : the program is invalid, or there is no checkpoint to restart from.
    """
    cwd = Path.cwd() / (cwd or "")
    environment = job_environment(os.environ if environment is None else environment)
    if restart_from is not None:
        source = (cwd / restart_from).absolute()
        checkpoints_to_restart_from(source)
        environment[RESTART_VARIABLE] = str(source)
    if not argv:
        raise ReshapeError("no program to run: give it after the options, as in -- python solve.py")
    options = {name: value for name, value in fields.items() if value is not None}
    submission = Submission(
        argv=list(argv),
        processors=processors,
        walltime_s=walltime_s or 0.0,
        cwd=str(cwd),
        environment=environment,
        output=output,
        open_mode=open_mode or ("append" if output == OUTPUT else "truncate"),
        ignored=plain(ignored)[:LONGEST_REASON],
        umask=own_umask(),
        limits=own_limits(),
        **options | {"name": options.get("name") or plain_name(argv)},
    )
    _check(submission)
    return submission


def _check(submission: Submission) -> None:
    """Check the program, and that the submission can be sent; the service checks its texts."""
    argv, cwd, environment = submission.argv, submission.cwd, submission.environment
    texts = {"output": submission.output, "error output": submission.error}
    texts |= {"working directory": cwd, "command of --hook-end": submission.hook_end}
    for what, text in texts.items():
        check_sendable(text, f"the {what} {text!r}")
    check_arguments([*argv, *texts.values()], environment)
    program, *_ = interpreter_of(submission.text) or argv
    check_program(program, Path(cwd), environment)


def check_outputs(submission: Submission) -> None:
    """Check that this process can write the output files of a submission.

    Raises
    ------
    ReshapeError : it cannot.
    """
    for path in filter(None, (submission.output, submission.error)):
        try:
            _check_output(Path(submission.cwd) / path)
        except OSError as error:
            raise ReshapeError(f"the output {path[:80]}: {error.strerror}") from None


def _check_output(path: Path) -> None:
    """Check that a file can be written, or created in its directory."""
    folder = path.parent
    if not folder.is_dir():
        raise ReshapeError(f"the output's directory {folder} does not exist: create it first")
    real = str(path.resolve())
    if path.exists() and real != os.devnull and (not path.is_file() or is_of_kernel(real)):
        raise ReshapeError(f"the output {path} is not a regular file: choose another one")
    if not os.access(path if path.exists() else folder, os.W_OK):
        what = f"output {path}" if path.exists() else f"output's directory {folder}"
        raise ReshapeError(f"the {what} is not writable: choose another one")


def check_places(submission: Submission, directory: Path) -> None:
    """Check outputs, and refuse places in the folders of a service, wherever their names lead.

    The account of the service opens the outputs, so that they can be checked as that user alone.
    Otherwise the job fails with the reason.

    Parameters
    ----------
    directory : the directory of the service; nothing is checked for an access file.

    Raises
    ------
    ReshapeError : an output cannot be written, or it, the working directory or the directory to
        restart from is among the files of the service.
    """
    try:
        memory, owner = ServiceDirectory(directory).memory, directory.stat().st_uid
    except (OSError, ReshapeError):  # there is no service, or it is on another host
        return
    if owner == os.geteuid():
        check_outputs(submission)
    own = [str(directory), str(memory)]
    paths = {
        "output": os.path.join(submission.cwd, submission.output),
        "error output": submission.error and os.path.join(submission.cwd, submission.error),
        "working directory": submission.cwd,
        "directory to restart from": submission.environment.get(RESTART_VARIABLE, ""),
    }
    for what, path in paths.items():
        if path and (folder := folder_around(path, own)):
            raise ReshapeError(in_own_folder(what, path, folder))


def earlier_outputs(submission: Submission) -> set[Path]:
    """Return the files that exist with default names, to which a job might append."""
    if submission.output != OUTPUT:
        return set()
    return {*Path(submission.cwd).glob(OUTPUT.replace("%{JOB_ID}", "*"))}


def job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Copy an environment, with the directory of this interpreter first on its PATH.

    Variables that are not UTF-8 text cannot be sent and are omitted. For a submission from within a
    job, so are those that identify its processes, one of which is its token, and the one that names
    the checkpoint it restarts from.
    """
    copy = {
        name: value
        for name, value in environment.items()
        if name not in (*IDENTITY_VARIABLES, RESTART_VARIABLE) and is_utf8(name + value)
    }
    here = str(Path(sys.executable).absolute().parent)
    rest = [part for part in copy.get("PATH", os.defpath).split(os.pathsep) if part != here]
    copy["PATH"] = os.pathsep.join([here, *rest])
    return copy


def check_program(program: str, cwd: Path, environment: Mapping[str, str]) -> None:
    """Check that there is a program that can be executed.

    Raises
    ------
    ReshapeError : there is none.
    """
    if "/" in program:
        path = cwd / program
        if path.is_dir():
            raise ReshapeError(f"{path} is a directory, not a program")
        if not path.is_file():
            raise ReshapeError(f"there is no program {path}")
        if not os.access(path, os.X_OK):
            raise ReshapeError(f"{path} is not executable: did you mean 'python {program}'?")
    elif shutil.which(program, path=environment["PATH"]) is None:
        raise ReshapeError(f"there is no program {program!r} on PATH")


def plain_name(argv: Sequence[str]) -> str:
    """Name a job after its program: ``apps.lu`` for ``python -m apps.lu``."""
    program = argv[0].rpartition("/")[2]
    if re.fullmatch(r"python[\d.]*", program):
        words = iter(argv[1:])
        for word in words:
            if word == "-m":
                return next(words, program)
            if word in ("-X", "-W"):  # options with a value
                next(words, None)
            elif word == "-c":
                break
            elif not word.startswith("-"):
                return word.rpartition("/")[2]
    return program
