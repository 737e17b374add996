"""The Python client of a service: `Client`, and `JobHandle` for each job.

The methods have the names of the commands of `reshape`, and raise the errors that these print.
"""

from __future__ import annotations

import getpass
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.access import read_access
from reshape.wire.connection import is_access_file
from reshape.wire.messages import MessageBase
from scheduler.client.api import keywords, operations
from scheduler.client.api.operations import HistoryOptions, Operation, ServiceRequest
from scheduler.client.job_options import Changes, JobOptions
from scheduler.client.submission import check_places
from scheduler.forecasts.answers import JobForecast, Quote
from scheduler.protocol import client as protocol
from scheduler.protocol import messages as m

T = TypeVar("T")

#: Directory of the service if neither an argument nor a variable names one.
DIRECTORY = "~/.reshape"
#: Seconds between two looks at a job that is watched.
WATCH_S = 0.5


def service_of(directory: Path | str | None, access: Path | str | None) -> Path:
    """Path that names a service: of its directory, or of an access file.

    Without arguments the variables RESHAPE_ACCESS and RESHAPE_DIR name it, as for the commands.

    Raises
    ------
    ReshapeError : both are given, one is empty, or there is no such access file.
    """
    if directory is not None and access is not None:
        raise ReshapeError("access and directory both name a service; leave one out")
    if "" in (directory, access):
        raise ReshapeError("the name of the service is empty: give one, or leave it out")
    if directory is None and access is None:
        access = os.environ.get("RESHAPE_ACCESS") or None
    if access is None:
        return Path(directory or os.environ.get("RESHAPE_DIR") or DIRECTORY).expanduser()
    path = Path(access).expanduser()
    if not path.is_file():
        raise ReshapeError(f"there is no access file {path}")
    return path


def user_of(service: Path) -> str:
    """Return the name that the jobs have which this account submits to a service."""
    return read_access(service).user if is_access_file(service) else getpass.getuser()


class Client:
    """A client of a scheduler service; it must not be shared between threads.

    It connects with the first request, and again after a service did not answer.

    Parameters
    ----------
    directory : directory of the service, or an access file. By default the variables RESHAPE_ACCESS
        and RESHAPE_DIR name the service, as for the commands; else it is ~/.reshape.
    access : an access file, in place of `directory`.

    Attributes
    ----------
    service : directory of the service, or its access file.

    Raises
    ------
    ReshapeError : both are given, or there is no such access file. All methods raise it if the
        service refuses a request, and `ServiceUnavailable`, one of its subclasses, if there is no
        service or if it does not answer.
    """

    def __init__(
        self, directory: Path | str | None = None, *, access: Path | str | None = None
    ) -> None:
        self.service = service_of(directory, access)
        self._connection: protocol.ServiceConnection | None = None

    def __enter__(self) -> Self:
        """Return the client; it is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; a later request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def submit(
        self, argv: Sequence[str], processors: int = 1, **options: Unpack[JobOptions]
    ) -> JobHandle:
        """Submit a job that runs a program under mpiexec, and return it.

        Parameters
        ----------
        argv : program and arguments.
        processors : number of processors to start with.
        options : those of ``reshape submit``; see `JobOptions`.
        """
        return self._submit(keywords.submission(argv, processors, options))

    def batch(
        self,
        script: Path | str,
        *arguments: str,
        processors: int | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle:
        """Submit a job script, which runs once, and return the job.

        Parameters
        ----------
        script : its file, whose lines #RESHAPE and #SBATCH have options, too.
        arguments : of the script.
        processors : number of processors; None: as the lines of the script say.
        options : those of ``reshape batch``; see `JobOptions`. They precede those of the script.
        """
        return self._submit(keywords.batch_submission(script, arguments, processors, options))

    def _submit(self, submission: m.Submission) -> JobHandle:
        check_places(submission, self.service)
        answer = self.run(operations.ask(m.Submit(submission=submission), m.Submitted))
        return JobHandle(self, m.JobTasks(answer.job))

    def quote(
        self, argv: Sequence[str] = ("true",), processors: int = 1, **options: Unpack[JobOptions]
    ) -> Quote:
        """Forecast when a job would start and end; parameters as of `submit`."""
        return self.run(operations.quote(keywords.submission(argv, processors, options)))

    def job(self, job: int | str) -> JobHandle:
        """Return a job by its number, a task "17_4", a step "17.0", or the job submitted "last".

        "17_[3-7]" stands for several tasks of an array; see `JobHandle`.
        """
        return JobHandle(self, self.run(operations.tasks_of(keywords.job_name(job))))

    def cancel(self, jobs: Iterable[JobHandle]) -> dict[JobHandle, str]:
        """Cancel jobs at one moment, so that none starts in place of another.

        Returns
        -------
        jobs that cannot be cancelled -> why not
        """
        handles = {m.JobTasks(job.id, job.tasks): job for job in jobs}
        refused = self.run(operations.change_jobs(list(handles), m.CancelJob()))
        return {handles[named]: why for named, why in refused.items()}

    def queue(self, *, ended: bool = False, steps: bool = False) -> list[m.JobInfo]:
        """Return all queued and running jobs.

        Parameters
        ----------
        ended : include ended jobs, at most the last 1000.
        steps : include the steps of jobs.
        """
        return self.run(operations.list_jobs(ended=ended, steps=steps)).jobs

    def expected_starts(self) -> list[JobForecast]:
        """Forecast all queued jobs, in order of their expected starts."""
        return self.run(operations.expected_starts()).jobs

    def history(self, **chosen: Unpack[HistoryOptions]) -> list[m.JobInfo]:
        """Return ended jobs; see `HistoryOptions`."""
        return self.run(operations.history(chosen)).jobs

    def info(self, timeout: float = operations.ANSWER_S) -> m.Info:
        """Return the state of the service."""
        return self.run(operations.ask(m.ServerInfo(), m.Info, timeout))

    def nodes(self) -> list[m.NodeInfo]:
        """Return the nodes of the service."""
        return self.run(operations.ask(m.ListMachine(part="nodes"), m.Nodes)).nodes

    @property
    def user(self) -> str:
        """Name that the jobs have which this client submits."""
        return user_of(self.service)

    def request(self, message: MessageBase, timeout: float = operations.ANSWER_S) -> m.Message:
        """Send a message of `scheduler.protocol.messages`, and return its answer."""
        answer = self._answer(ServiceRequest(message, timeout))
        assert answer is not None
        return answer

    def request_all(self, messages: Iterable[m.Message], timeout: float) -> Iterator[m.Message]:
        """Send messages, and yield their answers in their order; a refusal is a `Failure`.

        Parameters
        ----------
        timeout : seconds for each answer.
        """
        yield from self._connected().request_all(messages, timeout)

    def run(self, operation: Operation[T]) -> T:
        """Run an operation of `scheduler.client.api.operations`, and return its result."""
        try:
            request = next(operation)
            while True:
                try:
                    answer = self._answer(request)
                except ReshapeError as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def _answer(self, request: ServiceRequest) -> m.Message | None:
        try:
            return self._connected().request(request.message, request.timeout)
        except ServiceUnavailable:
            if request.may_be_late and self._connection is not None:
                return None
            self.close()
            raise

    def _connected(self) -> protocol.ServiceConnection:
        if self._connection is None:
            self._connection = protocol.connect(self.service)
        return self._connection


class JobHandle:
    """A job of a service, or some tasks of an array.

    Several tasks are held, released, cancelled, requeued and get signals together. The other
    methods are for one job.

    Attributes
    ----------
    id : its number.
    tasks : indices of several tasks of the array, such as "3-7"; "": it is one job.
    """

    def __init__(self, client: Client, named: m.JobTasks) -> None:
        self._client, self.id, self.tasks = client, named.job, named.tasks

    def __repr__(self) -> str:
        """Name the job."""
        return f"JobHandle({self.id})"

    @property
    def _one(self) -> int:
        """Number of the job; raises ReshapeError if several tasks are named."""
        return operations.one_job(self.id, self.tasks)

    def info(self) -> m.JobInfo:
        """Describe the job."""
        return self._run(operations.list_jobs(self._one)).jobs[0]

    def wait(self, timeout: float | str | None = None) -> m.JobInfo:
        """Wait for the end of the job, across restarts of the service, and describe it.

        Parameters
        ----------
        timeout : seconds, or a text such as "10:00"; None: no limit.

        Raises
        ------
        TimeoutError : the job has not ended in this time.
        """
        limit_s = keywords.seconds(timeout)
        until = None if limit_s is None else time.monotonic() + limit_s
        ended = self._run(operations.wait(self._client.service, self._one, until))
        if ended is None:
            raise TimeoutError(f"job {self.id} has not ended within {timeout} s")
        return ended

    def watch(self) -> Iterator[m.Story]:
        """Yield what happens to the job and why, from its submission to its end."""
        delivered: Counter[str] = Counter()
        while True:
            look = operations.watch(self._client.service, self._one, delivered)
            lines, has_ended = self._run(look)
            yield from lines
            if has_ended:
                return
            time.sleep(WATCH_S)

    def explain(self) -> list[m.Story]:
        """Return what has happened to the job and why, and what it waits for."""
        return self._run(operations.ask(m.Explain(job=self._one), m.Explanation)).lines

    def output(self, *, error: bool = False) -> str:
        """Read the output of the job, or its standard error, from a file that this host reaches."""
        return read_output(self.info(), error).decode(errors="replace")

    def cancel(self) -> None:
        """Cancel the job."""
        self._change(m.CancelJob())

    def signal(self, number: int, *, to_script: bool = False) -> None:
        """Send a signal to the processes of the job, or to its script alone."""
        self._change(m.SignalJob(number, to_script))

    def hold(self) -> None:
        """Hold the queued job: it does not start until it is released."""
        self._change(m.HoldJob())

    def release(self) -> None:
        """Release the held job."""
        self._change(m.ReleaseJob())

    def requeue(self) -> None:
        """End the running job and queue it again."""
        self._change(m.RequeueJob())

    def update(self, **changes: Unpack[Changes]) -> None:
        """Change the request of the job; see `Changes`."""
        given = keywords.changes(changes)
        self._change(m.UpdateJob(**given))

    def _change(self, change: m.JobChange) -> None:
        named = m.JobTasks(self.id, self.tasks)
        self._run(operations.change_job(named, change))

    def _run(self, operation: Operation[T]) -> T:
        return self._client.run(operation)


def read_output(job: m.JobInfo, is_error: bool = False, begin: int = 0) -> bytes:
    """Read the output of a job, or its standard error, from a file that this host reaches.

    Parameters
    ----------
    begin : bytes to leave out.

    Raises
    ------
    ReshapeError : the file cannot be read; a `FileNotFoundError` is its cause if it does not exist.
    """
    path = job.error if is_error and job.error else job.output
    try:
        with Path(path).open("rb") as file:
            file.seek(begin)
            return file.read()
    except OSError as error:
        raise ReshapeError(
            f"cannot read the output {path} of job {job.job} ({job.state}): {error.strerror}"
        ) from error
