"""Batch systems that PSI/J reaches: Slurm, PBS, LSF, Flux, and processes of this machine.

PSI/J (``psij-python``, the extra ``psij``) submits a script and cancels batch jobs. The states of
batch jobs are looked up by its commands at once, and not by its polling thread, which takes a batch
job that a failed command did not name for one that has ended.

PSI/J cannot look for a batch job by its name; `scheduler.batch_systems.recorded` adds this.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from scheduler.batch_systems.commands import complete_command, shortened
from scheduler.batch_systems.interface import (
    BatchRequest,
    BatchState,
    BatchStatus,
    BatchSystemError,
)

#: Names of batch systems of this module begin with it.
PREFIX = "psij-"
#: Executor of PSI/J -> what a shell expands to the id of the batch job in which it runs. The batch
#: job of the executor "local" is the parent process, identified by its number and start time.
ID_EXPRESSIONS = MappingProxyType(
    {
        "slurm": "$SLURM_JOB_ID",
        "pbs": "$PBS_JOBID",
        "pbs_classic": "$PBS_JOBID",
        "lsf": "$LSB_JOBID",
        "flux": "$FLUX_JOB_ID",
        "local": "$PPID.$(cut -d ' ' -f 22 /proc/$PPID/stat)",
    }
)
#: Name in PSI/J -> state of a batch job.
STATES = MappingProxyType(
    {
        "NEW": BatchState.UNKNOWN,
        "QUEUED": BatchState.QUEUED,
        "ACTIVE": BatchState.RUNNING,
        "COMPLETED": BatchState.ENDED,
        "FAILED": BatchState.ENDED,
        "CANCELED": BatchState.ENDED,
    }
)
#: Seconds after which a command, or a change of state, counts as unanswered.
TIMEOUT_S = 60.0
#: Seconds to wait for the state of a batch job that PSI/J reports later.
_ATTACHED_S = 2.0
#: What batch systems say of a batch job that they do not know, in lower case.
_NOT_KNOWN = ("unknown job", "invalid job id", "not found")
#: Options that PSI/J has for all batch systems -> its attribute.
_ATTRIBUTES = MappingProxyType(
    {"queue": "queue_name", "account": "account", "reservation": "reservation_id"}
)


class Psij:
    """A batch system that PSI/J reaches.

    Options of a request are ``queue=NAME``, ``account=NAME``, ``reservation=NAME``, and those of
    the executor with its name, such as ``slurm.constraint=fast`` or ``pbs.m=n``; leading ``--`` may
    be present.

    Parameters
    ----------
    executor : one of `ID_EXPRESSIONS`.
    folder : for the scripts of PSI/J; the nodes must share it.
    timeout_s : seconds after which a command counts as unanswered.

    Raises
    ------
    BatchSystemError : PSI/J is not installed, or has no such executor.
    """

    def __init__(self, executor: str, folder: Path, timeout_s: float = TIMEOUT_S) -> None:
        if executor not in ID_EXPRESSIONS:
            known = ", ".join(ID_EXPRESSIONS)
            raise BatchSystemError(f"PSI/J has no executor {executor!r}; use one of {known}")
        self.name = PREFIX + executor
        self.id_expression = ID_EXPRESSIONS[executor]
        self._executor_name, self._timeout_s = executor, timeout_s
        self._is_local = executor == "local"
        self._folder = folder.absolute()
        self._psij = _import_psij()
        self._executor = self._new_executor()
        self._base = self._psij.executors.batch.batch_scheduler_executor.BatchSchedulerExecutor

    def submit(self, request: BatchRequest) -> str:
        """Submit a batch job and return its id; see `BatchSystem.submit`.

        What the script prints is appended to its output file, if there is one. PSI/J has its files
        beside the script: what it submits, output of that, and an exit code.
        """
        script = request.script_file or self._folder / f"{secrets.token_hex(8)}.sh"
        command = 'exec "$0" >> "$1" 2>&1'
        spec = self._psij.JobSpec(
            executable="/bin/sh",
            arguments=["-c", command, str(script), str(request.output)],
            directory=str(request.directory),
            resources=self._resources(request),
            attributes=self._attributes(request),
            launcher="single",
        )
        job = self._psij.Job(spec)
        job.name = request.name
        if request.script_file is not None and isinstance(self._executor, self._base):
            self._executor.work_directory = request.script_file.parent
        try:
            with open(os.open(script, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "w") as file:
                file.write(request.script)
            self._executor.submit(job)
        except (OSError, self._psij.SubmitException, self._psij.InvalidJobException) as error:
            script.unlink(missing_ok=True)
            raise BatchSystemError(f"{self.name}: {shortened(_message(error))}") from None
        end = time.monotonic() + self._timeout_s
        while job.native_id is None:  # Flux tells it later
            if time.monotonic() > end:
                raise BatchSystemError(f"{self.name}: no id within {self._timeout_s:g} s")
            time.sleep(0.05)
        return _process_id(job.native_id) if self._is_local else str(job.native_id)

    def check(self, request: BatchRequest) -> str:
        """Check the options of a request; PSI/J cannot ask whether it would be accepted."""
        self._resources(request)
        self._attributes(request)
        if isinstance(self._executor, self._base):
            program = self._executor.get_cancel_command("0")[0]
            if shutil.which(program) is None:
                raise BatchSystemError(f"{self.name}: there is no program {program!r} on PATH")
        return "PSI/J has no dry run; the options were checked"

    def statuses(self, ids: Iterable[str]) -> dict[str, BatchStatus]:
        """Look up batch jobs; see `BatchSystem.statuses`."""
        asked = list(dict.fromkeys(ids))
        if self._is_local:
            return {job: _process_status(job) for job in asked}
        if not isinstance(self._executor, self._base):
            return {job: _status(self._attached(job).status) for job in asked}
        try:
            statuses = self._look_up(asked)
        except BatchSystemError:  # a batch job that is not known fails the command for all
            statuses = {}
            for job in asked:
                try:
                    statuses |= self._look_up([job])
                except BatchSystemError as error:
                    if not any(words in str(error).lower() for words in _NOT_KNOWN):
                        raise
        return {job: statuses.get(job, BatchStatus(BatchState.UNKNOWN)) for job in asked}

    def find(self, names: Iterable[str]) -> dict[str, str]:
        """PSI/J cannot look for names; `RecordedBatchSystem` can.

        Raises
        ------
        BatchSystemError : always, if there are names.
        """
        listed = ", ".join(names)
        if listed:
            raise BatchSystemError(f"{self.name} cannot look for batch jobs by name: {listed}")
        return {}

    def cancel(self, ids: Iterable[str]) -> None:
        """Cancel batch jobs; see `BatchSystem.cancel`."""
        for job in ids:
            if self._is_local:
                _kill(job)
            elif isinstance(self._executor, self._base):
                self._cancel_by_command(job)
            else:
                self._executor.cancel(self._attached(job))

    def _look_up(self, ids: Sequence[str]) -> dict[str, BatchStatus]:
        """Look up batch jobs by the command of the batch system; unknown ones are missing."""
        if not ids:
            return {}
        command = self._executor.get_status_command(ids)
        done = complete_command(command, timeout_s=self._timeout_s)
        output = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        try:
            statuses: Mapping[str, Any] = self._executor.parse_status_output(
                done.returncode, output
            )
        except Exception as error:  # what the parsers raise is not documented
            why = shortened(f"{type(error).__name__}: {error}")
            raise BatchSystemError(f"{command[0]}: {why}") from None
        return {job: _status(statuses[job]) for job in ids if job in statuses}

    def _cancel_by_command(self, batch_id: str) -> None:
        command = self._executor.get_cancel_command(batch_id)
        done = complete_command(command, timeout_s=self._timeout_s)
        if done.returncode == 0:
            return
        said = done.stdout + done.stderr
        try:
            self._executor.process_cancel_command_output(done.returncode, said)
        except self._psij.exceptions.SubmitException as error:
            state = self.statuses([batch_id])[batch_id].state
            if state not in (BatchState.ENDED, BatchState.UNKNOWN):
                raise BatchSystemError(f"{command[0]}: {shortened(_message(error))}") from None
        except Exception as error:  # it has ended; PSI/J does not export this exception
            if type(error).__name__ != "InvalidJobStateError":
                raise

    def _attached(self, batch_id: str) -> Any:
        """Attach PSI/J to a batch job that has no command, and wait for its state."""
        job = self._psij.Job()
        self._executor.attach(job, batch_id)
        end = time.monotonic() + _ATTACHED_S
        while job.status.state.name == "NEW" and time.monotonic() < end:
            time.sleep(0.02)
        return job

    def _new_executor(self) -> Any:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = self._psij.JobExecutorConfig(work_directory=self._folder)
        try:
            return self._psij.JobExecutor.get_instance(self._executor_name, config=config)
        except (ImportError, ValueError) as error:  # the executor "flux" imports Flux
            raise BatchSystemError(f"{self.name} cannot be used: {error}") from None

    def _resources(self, request: BatchRequest) -> Any:
        """Resources of a request in PSI/J.

        Processors are asked for as processes, since the scripts of PSI/J for PBS know no others;
        the launcher starts the script once nevertheless. Flux starts each process itself.
        """
        whole_nodes = request.processors == 0
        if self._executor_name == "flux":
            if request.nodes != 1:
                raise BatchSystemError(
                    f"{self.name}: PSI/J starts a process on each node under Flux, so that a batch"
                    f" job can have 1 node only, not {request.nodes}"
                )
            return self._psij.ResourceSpecV1(
                process_count=1, cpu_cores_per_process=max(1, request.processors)
            )
        return self._psij.ResourceSpecV1(
            node_count=request.nodes,
            processes_per_node=max(1, request.processors),
            exclusive_node_use=whole_nodes,
        )

    def _attributes(self, request: BatchRequest) -> Any:
        """Time limit and options of a request in PSI/J."""
        attributes = self._psij.JobAttributes(
            duration=timedelta(seconds=ceil(request.time_limit_s))
        )
        for option in request.options:
            key, _, value = option.removeprefix("--").partition("=")
            if not value or not (key in _ATTRIBUTES or key.startswith(f"{self._executor_name}.")):
                names = ", ".join(f"{name}=NAME" for name in _ATTRIBUTES)
                raise BatchSystemError(
                    f"{self.name} has no option {option!r}; use {names} or"
                    f" {self._executor_name}.OPTION=VALUE"
                )
            if key in _ATTRIBUTES:
                setattr(attributes, _ATTRIBUTES[key], value)
            else:
                attributes.set_custom_attribute(key, value)
        return attributes


def _import_psij() -> Any:
    """Import PSI/J, without its executor "local" changing the handling of SIGCHLD here."""
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGCHLD)
    # It warns in other threads, where it cannot change that.
    logging.getLogger("psij.executors.local").setLevel(logging.ERROR)
    try:
        import psij  # an optional dependency
        import psij.exceptions
        import psij.executors.batch.batch_scheduler_executor
        import psij.executors.local
    except ImportError:
        raise BatchSystemError(
            "PSI/J is not installed: pip install 'reshape-mpi[psij]', or psij-python"
        ) from None
    finally:
        if is_main:
            signal.signal(signal.SIGCHLD, handler)
    return psij


def _status(status: Any) -> BatchStatus:
    """Convert a status of PSI/J."""
    word, state = status.state.name, STATES[status.state.name]
    return BatchStatus(state, word, " ".join((status.message or "").split()))


def _message(error: Exception) -> str:
    """Write an error of PSI/J in one line."""
    cause = getattr(error, "exception", None)
    return " ".join(f"{error}{'' if cause is None else f': {cause}'}".split())


def _process_id(pid: int) -> str:
    """Id of a process that no later process of this machine has: its number and start time."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return f"{pid}.0"  # it has ended
    return f"{pid}.{stat.rpartition(')')[2].split()[19]}"


def _process(batch_id: str) -> psutil.Process | None:
    """Process of a batch job of the executor "local"; None if it has ended."""
    pid = batch_id.partition(".")[0]
    try:
        process = psutil.Process(int(pid))
        has_ended = process.status() == psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return None
    return None if has_ended or _process_id(process.pid) != batch_id else process


def _process_status(batch_id: str) -> BatchStatus:
    if _process(batch_id) is None:
        return BatchStatus(BatchState.ENDED)
    return BatchStatus(BatchState.RUNNING, "ACTIVE")


def _kill(batch_id: str) -> None:
    """Kill a process and its descendants.

    PSI/J would kill them again and again until it notices their ends, and write errors to its log.
    """
    process = _process(batch_id)
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [process, *process.children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(family, timeout=TIMEOUT_S)
