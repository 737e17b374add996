"""The Python client of a service: `Client`, and `JobHandle` for each job.

The methods have the names of the commands of `reshape`, and raise the errors that these print.
`AsyncClient` has the same methods: each is written once (`ClientMethod`).
"""

from __future__ import annotations

import getpass
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import update_wrapper
from inspect import signature
from pathlib import Path
from types import GenericAlias, MethodType, TracebackType
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    get_args,
    get_type_hints,
    overload,
)

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.access import read_access
from reshape.wire.connection import is_access_file
from reshape.wire.messages import MessageBase
from scheduler.client.api import operations
from scheduler.client.api.operations import HistoryOptions, Operation, ServiceRequest
from scheduler.client.requests import keywords
from scheduler.client.requests.job_options import Changes, JobOptions
from scheduler.client.requests.submission import check_places
from scheduler.forecasts.answers import JobForecast, Quote
from scheduler.protocol import client as protocol
from scheduler.protocol import messages as m

T = TypeVar("T")
P = ParamSpec("P")
J = TypeVar("J", bound="JobMethods")

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


class ForEventLoop:
    """A client whose methods are coroutines, or a job of one."""


class ClientMethod(Generic[P, T]):
    """A method of both clients, which is written once, as an operation.

    `Client` and its jobs return the result, `AsyncClient` and its jobs a coroutine for it.
    """

    def __init__(self, operation: Callable[Concatenate[Any, P], Operation[T]]) -> None:
        self._operation = operation
        self._methods: dict[type, Any] = {}

    @overload
    def __get__(self, owner: Client | JobHandle, kind: type) -> Callable[P, T]: ...

    @overload
    def __get__(self, owner: ForEventLoop, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, owner: None, kind: type) -> Callable[Concatenate[Any, P], Any]: ...

    def __get__(self, owner: Any, kind: type) -> Any:
        """Return the method of a client or of a job; without one the function for all of them."""
        if kind not in self._methods:
            self._methods[kind] = self._method_of(kind)
        return self._methods[kind] if owner is None else MethodType(self._methods[kind], owner)

    def _method_of(self, kind: type) -> Any:
        def blocking(own: Any, *args: P.args, **options: P.kwargs) -> Any:
            return own.run(self._operation(own, *args, **options))

        async def awaited(own: Any, *args: P.args, **options: P.kwargs) -> Any:
            return await blocking(own, *args, **options)

        def shown(hint: Any) -> Any:
            """Annotation for documentation: the class of the jobs in place of `J`."""
            generic = GenericAlias(list, (hint,))
            filled = generic[kind.__dict__["_handle"]] if generic.__parameters__ else generic
            return get_args(filled)[0]

        hints = get_type_hints(self._operation)
        hints["return"] = get_args(hints["return"])[-1]
        method: Any = awaited if issubclass(kind, ForEventLoop) else blocking
        update_wrapper(method, self._operation)
        method.__annotations__ = {name: shown(hint) for name, hint in hints.items()}
        written, returned = signature(self._operation), method.__annotations__["return"]
        method.__signature__ = written.replace(return_annotation=returned)
        return method


class JobMethods:
    """What a job of both clients can do, or some tasks of an array."""

    def __init__(self, client: Any, named: m.JobTasks) -> None:
        self._service, self.run = client.service, client.run
        self.id, self.tasks = named.job, named.tasks

    def __repr__(self) -> str:
        """Name the job."""
        return f"{type(self).__name__}({self.id})"

    @property
    def _one(self) -> int:
        """Number of the job; raises ReshapeError if several tasks are named."""
        return operations.one_job(self.id, self.tasks)

    @ClientMethod
    def info(self) -> Operation[m.JobInfo]:
        """Describe the job."""
        return (yield from operations.list_jobs(self._one)).jobs[0]

    @ClientMethod
    def wait(self, timeout: float | str | None = None) -> Operation[m.JobInfo]:
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
        ended = yield from operations.wait(self._service, self._one, until)
        if ended is None:
            raise TimeoutError(f"job {self.id} has not ended within {timeout} s")
        return ended

    @ClientMethod
    def explain(self) -> Operation[list[m.Story]]:
        """Return what has happened to the job and why, and what it waits for."""
        return (yield from operations.ask(m.Explain(job=self._one), m.Explanation)).lines

    @ClientMethod
    def output(self, *, error: bool = False) -> Operation[str]:
        """Read the output of the job, or its standard error, from a file that this host reaches."""
        job = (yield from operations.list_jobs(self._one)).jobs[0]
        return read_output(job, error).decode(errors="replace")

    @ClientMethod
    def cancel(self) -> Operation[None]:
        """Cancel the job."""
        return self._change(m.CancelJob())

    @ClientMethod
    def signal(self, number: int, *, to_script: bool = False) -> Operation[None]:
        """Send a signal to the processes of the job, or to its script alone."""
        return self._change(m.SignalJob(number, to_script))

    @ClientMethod
    def hold(self) -> Operation[None]:
        """Hold the queued job: it does not start until it is released."""
        return self._change(m.HoldJob())

    @ClientMethod
    def release(self) -> Operation[None]:
        """Release the held job."""
        return self._change(m.ReleaseJob())

    @ClientMethod
    def requeue(self) -> Operation[None]:
        """End the running job and queue it again."""
        return self._change(m.RequeueJob())

    @ClientMethod
    def update(self, **changes: Unpack[Changes]) -> Operation[None]:
        """Change the request of the job; see `Changes`."""
        return self._change(m.UpdateJob(**keywords.changes(changes)))

    def _change(self, change: m.JobChange) -> Operation[None]:
        message = m.ChangeJobs(jobs=[m.JobTasks(self.id, self.tasks)], change=change)
        yield from operations.ask(message, m.Done)


class ServiceMethods(Generic[J]):
    """What both clients can do with a service."""

    _handle: Callable[[Any, m.JobTasks], J]
    _connection: Any = None

    def __init__(
        self, directory: Path | str | None = None, *, access: Path | str | None = None
    ) -> None:
        self.service = service_of(directory, access)

    def close(self) -> None:
        """Close the connection; a later request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @ClientMethod
    def submit(
        self, argv: Sequence[str], processors: int = 1, **options: Unpack[JobOptions]
    ) -> Operation[J]:
        """Submit a job that runs a program under mpiexec, and return it.

        Parameters
        ----------
        argv : program and arguments.
        processors : number of processors to start with.
        options : those of ``reshape submit``; see `JobOptions`.
        """
        return self._submit(keywords.submission(argv, processors, options))

    @ClientMethod
    def batch(
        self,
        script: Path | str,
        *arguments: str,
        processors: int | None = None,
        **options: Unpack[JobOptions],
    ) -> Operation[J]:
        """Submit a job script, which runs once, and return the job.

        Parameters
        ----------
        script : its file, whose lines #RESHAPE and #SBATCH have options, too.
        arguments : of the script.
        processors : number of processors; None: as the lines of the script say.
        options : those of ``reshape batch``; see `JobOptions`. They precede those of the script.
        """
        return self._submit(keywords.batch_submission(script, arguments, processors, options))

    def _submit(self, submission: m.Submission) -> Operation[J]:
        check_places(submission, self.service)
        answer = yield from operations.ask(m.Submit(submission=submission), m.Submitted)
        return self._handle(self, m.JobTasks(answer.job))

    @ClientMethod
    def quote(
        self, argv: Sequence[str] = ("true",), processors: int = 1, **options: Unpack[JobOptions]
    ) -> Operation[Quote]:
        """Forecast when a job would start and end; parameters as of `submit`."""
        message = m.RequestForecast(of=keywords.submission(argv, processors, options))
        return operations.forecast(message, Quote)

    @ClientMethod
    def job(self, job: int | str) -> Operation[J]:
        """Return a job by its number, a task "17_4", a step "17.0", or the job submitted "last".

        "17_[3-7]" stands for several tasks of an array; see `JobHandle`.
        """
        return self._handle(self, (yield from operations.tasks_of(keywords.job_name(job))))

    @ClientMethod
    def cancel(self, jobs: Iterable[J]) -> Operation[dict[J, str]]:
        """Cancel jobs at one moment, so that none starts in place of another.

        Returns
        -------
        jobs that cannot be cancelled -> why not
        """
        handles = {m.JobTasks(job.id, job.tasks): job for job in jobs}
        refused = yield from operations.change_jobs(list(handles), m.CancelJob())
        return {handles[named]: why for named, why in refused.items()}

    @ClientMethod
    def queue(self, *, ended: bool = False, steps: bool = False) -> Operation[list[m.JobInfo]]:
        """Return all queued and running jobs.

        Parameters
        ----------
        ended : include ended jobs, at most the last 1000.
        steps : include the steps of jobs.
        """
        return (yield from operations.list_jobs(ended=ended, steps=steps)).jobs

    @ClientMethod
    def expected_starts(self) -> Operation[list[JobForecast]]:
        """Forecast all queued jobs, in order of their expected starts."""
        return (yield from operations.expected_starts()).jobs

    @ClientMethod
    def history(self, **chosen: Unpack[HistoryOptions]) -> Operation[list[m.JobInfo]]:
        """Return ended jobs; see `HistoryOptions`."""
        return (yield from operations.history(chosen)).jobs

    @ClientMethod
    def info(self, timeout: float = operations.ANSWER_S) -> Operation[m.Info]:
        """Return the state of the service."""
        return operations.ask(m.ServerInfo(), m.Info, timeout)

    @ClientMethod
    def nodes(self) -> Operation[list[m.NodeInfo]]:
        """Return the nodes of the service."""
        return (yield from operations.ask(m.ListMachine(part="nodes"), m.Nodes)).nodes

    @property
    def user(self) -> str:
        """Name that the jobs have which this client submits."""
        return user_of(self.service)


class JobHandle(JobMethods):
    """A job of a service, or some tasks of an array.

    Several tasks are held, released, cancelled, requeued and get signals together. The other
    methods are for one job.

    Attributes
    ----------
    id : its number.
    tasks : indices of several tasks of the array, such as "3-7"; "": it is one job.
    """

    def watch(self) -> Iterator[m.Story]:
        """Yield what happens to the job and why, from its submission to its end."""
        delivered: Counter[str] = Counter()
        while True:
            look = operations.watch(self._service, self._one, delivered)
            lines, has_ended = self.run(look)
            yield from lines
            if has_ended:
                return
            time.sleep(WATCH_S)


class Client(ServiceMethods[JobHandle]):
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

    _handle = JobHandle
    _connection: protocol.ServiceConnection | None

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

    def request(self, message: MessageBase, timeout: float = operations.ANSWER_S) -> m.Message:
        """Send a message of `scheduler.protocol.messages`, and return its answer."""
        answer = self._answer(ServiceRequest(message, timeout))
        assert answer is not None
        return answer

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
