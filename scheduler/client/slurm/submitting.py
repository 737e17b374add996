"""`sbatch` and `srun`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reshape.errors import ReshapeError
from reshape.wire.identity import identity_of_script
from scheduler.client.api.client import Client
from scheduler.client.scripts.run_command import run_as_step
from scheduler.client.scripts.script_file import JobScript, read_script, script_of_text, wrapped
from scheduler.client.scripts.script_submission import fields_of, options_of, script_submission
from scheduler.client.scripts.slurm_options import SBATCH, Known, count, tasks, translated
from scheduler.client.slurm import variables
from scheduler.client.submission import prepare
from scheduler.client.tables import exit_status
from scheduler.protocol import messages as m

#: Options of sbatch about the command itself.
_OF_COMMAND = ("parsable", "wait", "wrap", "quiet", "verbose", "export")
#: What is left of an environment with ``--export=NONE``.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "RESHAPE_DIR", "RESHAPE_ACCESS")
#: Options of srun beside those of sbatch.
SRUN = Known(
    "srun",
    SBATCH.plain | {"unbuffered", "label", "exact", "overlap", "pty", "kill-on-bad-exit"},
    SBATCH.valued | {"cpu-bind", "mpi", "mem-bind", "het-group", "kill-on-bad-exit", "jobid"},
    {**SBATCH.short, "u": "unbuffered", "l": "label", "K": "kill-on-bad-exit"},
)


def sbatch(words: Sequence[str]) -> int:
    """Submit a job script, as sbatch(1) does, and return the exit code of the command."""
    try:
        given, rest = SBATCH.split(words)
        named, found = dict(SBATCH.read(given)), translated(given)
    except ValueError as error:
        raise ReshapeError(str(error)) from None
    if "test-only" in named:
        raise ReshapeError("--test-only is not there: see reshape quote")
    script = _script(named.get("wrap"), rest)
    sizes = script.sizes | found.sizes
    ignored = [text for name, text in found.ignored.items() if name not in _OF_COMMAND]
    script = script._replace(sizes=sizes, ignored=[*script.ignored, *ignored])
    fields = options_of(script) | fields_of(found.words, "sbatch")
    fields.setdefault("output", "slurm-%A_%a.out" if fields.get("array") else "slurm-%j.out")
    if named.get("export") == "NONE":
        fields["environment"] = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with Client() as service:
        submission = script_submission(script, rest[1:], _with_queue(service, fields))
    submission.argv = variables.command(
        submission.argv, tasks(sizes), sizes.get("cpus-per-task", 0), submission.name
    )
    with Client() as service:
        answer = service.request(m.Submit(submission=submission))
        assert isinstance(answer, m.Submitted)
        if "parsable" in named:
            print(answer.job, flush=True)
        elif "quiet" not in named:
            print(f"Submitted batch job {answer.job}", flush=True)
        return exit_status(service.job(answer.job).wait()) if "wait" in named else 0


def _with_queue(service: Client, fields: dict[str, Any]) -> dict[str, Any]:
    """Name the queue in place of the partition, if the service has no partitions."""
    if fields.get("partition") and not service.info().partitions:
        return {**fields, "partition": "", "queue": fields["partition"]}
    return fields


def _script(command: str | None, rest: Sequence[str]) -> JobScript:
    """Read the script of a command line: a command, a file or standard input."""
    if command is not None:
        if rest:
            raise ReshapeError(f"--wrap has the command, and {rest[0]!r} follows: leave one out")
        return wrapped(command)
    if not rest or rest[0] in ("-", "/dev/stdin"):
        return script_of_text("", sys.stdin.read())
    return read_script(Path(rest[0]))


def srun(words: Sequence[str]) -> int:
    """Run a program as a step of the job of this script, or as a job; return its exit code."""
    try:
        given, argv = SRUN.split(words)
        named = dict(SRUN.read(given))
        sizes = {
            name: count(name, value or "")
            for name, value in named.items()
            if name in ("ntasks", "nodes", "ntasks-per-node", "cpus-per-task")
        }
    except ValueError as error:
        raise ReshapeError(str(error)) from None
    if not argv:
        raise ReshapeError("name a program to run")
    if "pty" in named or "input" in named:
        raise ReshapeError("--pty and --input are not there: the input of a step is empty")
    is_step = identity_of_script() is not None
    per_task = sizes.get("cpus-per-task", int(os.environ.get("SLURM_CPUS_PER_TASK", "0")))
    asks = "ntasks" in sizes or "ntasks-per-node" in sizes
    processes = int(os.environ.get("SLURM_NTASKS", "1")) if is_step and not asks else tasks(sizes)
    name = named.get("job-name") or Path(argv[0]).name
    files = (named.get("output") or "", named.get("error") or "")
    command = variables.command(argv, processes, per_task, name, *files)
    own = {each: value for each, value in named.items() if each in SBATCH.plain | SBATCH.valued}
    words = [f"--{each}" + ("" if value is None else f"={value}") for each, value in own.items()]
    fields = fields_of(translated(words).words, "srun") | {"name": name}
    if is_step:
        return run_as_step(command, processes, name=name, cwd=fields.get("cwd"))
    return _run_as_job(command, processes * max(1, per_task), fields)


def _run_as_job(command: list[str], processors: int, fields: dict[str, Any]) -> int:
    """Submit a job, wait for it, and print its output."""
    folder = tempfile.mkdtemp(prefix="srun-")
    files = {"output": f"{folder}/out", "error": f"{folder}/err"}
    try:
        with Client() as service:
            fields = _with_queue(service, fields) | files
            submission = prepare(command, processors, **fields)
            answer = service.request(m.Submit(submission=submission))
            assert isinstance(answer, m.Submitted)
            ended = service.job(answer.job).wait()
        for path, stream in zip(files.values(), (sys.stdout, sys.stderr), strict=True):
            if Path(path).exists():
                with Path(path).open("rb") as file:
                    shutil.copyfileobj(file, stream.buffer)
                stream.flush()
        return exit_status(ended)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
