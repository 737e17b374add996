"""`sbatch`, `srun` and `scancel`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reshape.errors import ReshapeError
from reshape.wire.identity import identity_of_script
from scheduler.client.api.client import (
    Client,
    JobHandle,
    ended_jobs,
    list_jobs,
    numbers_of,
    submitted,
)
from scheduler.client.columns import one_by_one
from scheduler.client.requests.script_file import (
    JobScript,
    ScriptOptions,
    count,
    read_script,
    script_of_text,
    script_submission,
    tasks,
    wrapped,
)
from scheduler.client.requests.slurm_manual import SBATCH, SCANCEL, SRUN
from scheduler.client.requests.submission import prepare
from scheduler.client.scripts.run_command import run_as_step
from scheduler.client.scripts.step_streams import StepOutput, files_of, own_input, own_outputs
from scheduler.client.slurm import variables
from scheduler.client.slurm.listings import all_as_slurm, chosen, states
from scheduler.client.tables import exit_status
from scheduler.model.arrays import TaskArray, names
from scheduler.model.procset import ProcSet
from scheduler.model.requests import signal_number
from scheduler.protocol import messages as m
from scheduler.protocol.messages import JobInfo

#: Options of sbatch about the command itself.
_OF_COMMAND = ("parsable", "wait", "quiet", "verbose", "export", "input")
#: What is left of an environment with ``--export=NONE``.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "RESHAPE_DIR", "RESHAPE_ACCESS")
#: Seconds between looks at the output of a job of srun.
COPY_EVERY_S = 0.3
#: Options of srun that are there for a job but not for a step.
_NOT_OF_STEP = ("time", "signal", "hold", "requeue", "begin", "dependency")
#: Options for which a variable stands also in a step.
_OF_STEP = ("export", "input", "output", "error")


def sbatch(words: Sequence[str]) -> int:
    """Submit a job script, as sbatch(1) does, and return the exit code of the command."""
    values, rest = SBATCH.split(words)
    script = _script(dict(values).get("wrap"), rest)
    values = [(name, value) for name, value in values if name != "wrap"]
    options = script.options
    for variable, name, value in SBATCH.of_variables():  # each overrides those before
        try:
            options.add([(name, value)])
        except ReshapeError as error:
            raise ReshapeError(f"{variable}: {error}") from None
    options.add(values)
    named = {name: options.ignored.pop(name) for name in _OF_COMMAND if name in options.ignored}
    output = "slurm-%A_%a.out" if options.fields.get("array") else "slurm-%j.out"
    _check_input(named)
    fields = {"output": output, **options.fields, **_environment(named.get("export"))}
    with Client() as service:
        submission = script_submission(script, rest[1:], _with_queue(service, fields))
        task = variables.SlurmTask(
            tasks(options.sizes),
            options.sizes.get("cpus-per-task", 0),
            submission.name,
            options.sizes.get("ntasks-per-node", 0),
            input=named.get("input") or "",
        )
        submission.wrapper = variables.command([], task)
        job = submitted(service, submission)
        if "parsable" in named:
            print(job.id, flush=True)
        elif "quiet" not in named:
            print(f"Submitted batch job {job.id}", flush=True)
        return _waited(service, job) if "wait" in named else 0


def _waited(service: Client, named: JobHandle) -> int:
    """Wait for a job; return its exit code, of an array the highest one of its tasks."""
    job = named.wait()
    ended = ended_jobs(service, {"since": job.submitted_at, "name": job.name})
    tasks = [task for task in ended if task.label.startswith(f"{named.id}_")]
    return max(map(exit_status, tasks or [job]))


def _check_input(named: Mapping[str, str | None]) -> None:
    """Refuse the empty name of a variable that is not set; the others are options of submit."""
    if named.get("input") == "":
        raise ReshapeError("--input is empty: name a file, or leave it out")


def _with_queue(service: Client, fields: dict[str, Any]) -> dict[str, Any]:
    """Name the queue in place of the partition, if the service has no partitions."""
    if fields.get("partition") and not service.info().partitions:
        return {**fields, "partition": "", "queue": fields["partition"]}
    return fields


def _environment(text: str | None) -> dict[str, Any]:
    """Return the environment that ``--export`` asks for, unless it is all of this one."""
    try:
        lexer = shlex.shlex(text or "ALL", posix=True)
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = ",", True, ""
        words = [*lexer]
    except ValueError as error:
        raise ReshapeError(f"--export={text}: {error}") from None
    if words == ["ALL"]:
        return {}
    inherited = os.environ if "ALL" in words else _KEPT
    environment = {name: os.environ[name] for name in inherited if name in os.environ}
    for word in words:
        name, equals, value = word.partition("=")
        if not name:
            raise ReshapeError(f"--export={text}: {word!r} has no name of a variable")
        if equals:
            environment[name] = value
        elif name in os.environ:
            environment[name] = os.environ[name]
    return {"environment": environment}


def _script(command: str | None, rest: Sequence[str]) -> JobScript:
    """Read the script of a command line: a command, a file or standard input."""
    if command is not None:
        if rest:
            raise ReshapeError(f"--wrap has the command, and {rest[0]!r} follows: leave one out")
        return wrapped(command)
    if not rest or rest[0] in ("-", "/dev/stdin"):
        text = sys.stdin.read()
        if not text:
            raise ReshapeError("name a script: the standard input has none")
        return script_of_text("", text)
    return read_script(Path(rest[0]))


def srun(words: Sequence[str]) -> int:
    """Run a program as a step of the job of this script, or as a job; return its exit code."""
    values, argv = SRUN.split(words)
    named = dict(values)
    of_script = {
        name: count(name, os.environ[name])
        for name in ("SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_NTASKS_PER_NODE")
        if os.environ.get(name)
    }
    if not argv:
        raise ReshapeError("name a program to run")
    _check_input(named)
    is_step = identity_of_script() is not None
    for name in _NOT_OF_STEP if is_step else ():
        if name in named:
            raise ReshapeError(f"--{name} has no effect on a step: give it to sbatch")
    for _, name, value in SRUN.of_variables():
        if not is_step or name in _OF_STEP:
            named.setdefault(name, value)
    options = ScriptOptions()
    options.add(named.items())
    fields, sizes = options.fields, options.sizes
    per_task = sizes.get("cpus-per-task", of_script.get("SLURM_CPUS_PER_TASK", 0))
    asks = "ntasks" in sizes or "ntasks-per-node" in sizes
    processes = of_script.get("SLURM_NTASKS", 1) if is_step and not asks else tasks(sizes)
    name = named.get("job-name") or Path(argv[0]).name
    fields |= {"name": name, "per_process": max(1, per_task)}
    fields |= _environment(named.get("export"))
    processors = processes * max(1, per_task)
    files: dict[str, Any] = {name: named.get(name) or "" for name in ("output", "error")}
    with _input(named.get("input") or "all") as read:
        per_node = sizes.get("ntasks-per-node", of_script.get("SLURM_NTASKS_PER_NODE", 0))
        files["inherited"] = variables.of_script() if is_step else {}
        task = variables.SlurmTask(processes, per_task, name, per_node, **files | read)
        command = variables.command(argv, task)
        if is_step:
            own_fields = ("name", "cwd", "environment", "per_process")
            fields = {field: fields[field] for field in own_fields if field in fields}
            return run_as_step(command, processors, reads_itself=True, **fields)
        return _run_as_job(command, processors, fields)


@contextmanager
def _input(mode: str) -> Iterator[dict[str, str]]:
    """Yield the fields of `SlurmTask` for a value of ``--input``.

    It is the standard input of this process for all tasks (``all``), or the task of this number;
    ``none``; or the file of this name for all tasks.
    """
    if mode != "all" and not mode.isdecimal():
        yield {} if mode == "none" else {"input": mode}
        return
    with own_input() as source:
        yield {"source": source, "reader": mode if mode.isdecimal() else ""}


def _run_as_job(command: list[str], processors: int, fields: dict[str, Any]) -> int:
    """Submit a job, wait for it, and print its output; a signal cancels the job."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    with own_outputs(error=True) as outputs, Client() as service:
        fields = _with_queue(service, fields) | files_of(outputs)
        job = submitted(service, prepare(command, processors, **fields))
        ended = _end_of(job, outputs)
        with suppress(BrokenPipeError):
            for output in outputs:
                output.copy()
        return exit_status(ended)


def _end_of(job: JobHandle, outputs: Sequence[StepOutput]) -> JobInfo:
    """Wait for the end of a job; a signal to this process, or a closed pipe, cancels it."""
    try:
        while True:
            with suppress(TimeoutError):
                return job.wait(COPY_EVERY_S)
            for output in outputs:
                output.copy()
    except (KeyboardInterrupt, BrokenPipeError):
        with Client() as service:  # the connection of the job may wait for an answer
            own = service.job(job.id)
            own.cancel()
            return own.wait()


def scancel(words: Sequence[str]) -> int:
    """Cancel jobs, or send them a signal, as scancel(1) does."""
    jobs: list[str] = []
    options = SCANCEL.parse(words, arguments=jobs)
    number = _signal(options["signal"]) if "signal" in options else 0
    with Client() as service:
        handles = _named(service, options, jobs)
        refused = [] if number else [*service.cancel(handles).values()]
        for job in handles if number else ():
            try:
                job.signal(number, to_script="batch" in options)
            except ReshapeError as error:
                refused.append(str(error))
    refused = [why for why in refused if jobs or "ended already" not in why]
    for why in refused:
        print(f"scancel: error: {why}", file=sys.stderr)
    return int(bool(refused))


def _signal(text: str) -> int:
    try:
        return signal_number(text)
    except ValueError as error:
        raise ReshapeError(f"--signal: {error}") from None


def _named(service: Client, options: dict[str, str], jobs: Sequence[str]) -> list[JobHandle]:
    """Jobs that a command line of scancel names; those of them that its other options choose."""
    handles = [service.job(word) for text in jobs for word in names(text) if word]
    if not options.keys() & {"me", "name", "user", "state", "partition"}:
        if not handles:
            raise ReshapeError("No job identification provided")
        return handles
    state = states(options["state"] or "all") if "state" in options else None
    user = service.user if "me" in options else options.get("user")
    queue = service.queue(steps=bool(handles))
    arrays = {job.job: job.array for job in queue}
    numbers = ProcSet.union(_numbers(service, handle, arrays) for handle in handles)
    found: list[JobHandle] = []
    listed = all_as_slurm(queue, steps=bool(handles))
    for job in chosen(listed, options, user=user, state=state):
        if job.pending_tasks and (not handles or job.job in numbers):
            if "signal" not in options:  # the tasks that run have lines of their own
                found.append(JobHandle(service, m.JobTasks(job.job, job.pending_tasks)))
        else:
            each = (task.job for task in one_by_one([job]))
            found += (service.job(number) for number in each if not handles or number in numbers)
    return found


def _numbers(service: Client, named: JobHandle, arrays: Mapping[int, str]) -> ProcSet:
    """Numbers of a job, and of the tasks for which the name of an array stands.

    `arrays` are the tasks of the arrays among the jobs of the queue, by number.
    """
    if named.tasks:
        return numbers_of(service, named)
    array = arrays[named.id] if named.id in arrays else list_jobs(service, named.id).jobs[0].array
    return ProcSet.span(named.id, 1 + (TaskArray.parse(array).count if array else 0))


def salloc(_words: Sequence[str]) -> None:
    """Say what there is in place of salloc(1)."""
    raise ReshapeError(
        "there is no salloc, since a job has no terminal: give commands to sbatch in a script, or"
        " start each by srun; srun bash takes them from its standard input"
    )
