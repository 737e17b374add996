"""The Python client of a service: `Client`, and `JobHandle` for each job.

The methods have the names of the commands of `reshape`, and raise the errors that these print. The
functions are requests that the commands need besides.
"""

from __future__ import annotations

import getpass
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict, TypeVar, Unpack

import msgspec

from reshape.errors import RequestRefused, ReshapeError, ServerUnproven, ServiceUnavailable
from reshape.wire.access import read_access
from reshape.wire.connection import is_access_file, service_in
from reshape.wire.messages import MessageBase
from scheduler.client.options import parse_walltime
from scheduler.client.requests.job_options import Changes, JobOptions, keyword_fields
from scheduler.client.requests.script_file import read_script, script_submission
from scheduler.client.requests.submission import check_places, prepare
from scheduler.forecasts.answers import JobForecast, Quote, Starts
from scheduler.model.arrays import LAST, JobName, TaskArray, positions_of
from scheduler.model.procset import ProcSet
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import A, ServiceConnection, connect, expect

T = TypeVar("T")

#: Directory of the service if neither an argument nor a variable names one.
DIRECTORY = "~/.reshape"
#: Time limits of an answer, seconds: in general, of a listing, a story or many cancellations,
#: of a forecast (the service gives up earlier).
ANSWER_S, LISTING_S, FORECAST_S = 10.0, 70.0, 130.0
#: Seconds of them to wait for a connection, perhaps while the service is restarted.
CONNECT_S = 10.0
#: Ended jobs that a listing has unless it says otherwise, and that one has at most.
MOST_ENDED, PAGE = 500, 1000
#: Interval in seconds after which a wait is requested again, in case the service was restarted.
ASK_AGAIN_S = 5.0
#: Seconds between two looks at a job that is watched.
WATCH_S = 0.5
#: Seconds for which waits and watches go on while no service runs, which may be restarted.
RESTART_S = 60.0


class HistoryOptions(TypedDict, total=False):
    """Which ended jobs a listing has: at most the `limit` (1 to 1000) that ended last.

    `since` and `until` are times within which they ended, Unix seconds; `user`, `state` (such as
    "FAILED" or "F") and `name` are theirs. Those that ended before the job `before` are listed.
    """

    since: float
    until: float
    user: str
    state: str
    name: str
    limit: int
    before: int


class JobHandle:
    """A job of a service, or some tasks of an array.

    Several tasks are held, released, cancelled, requeued and get signals together. The other
    methods are for one job.

    Attributes
    ----------
    named : its number, and the tasks, in a message.
    id : its number.
    tasks : indices of several tasks of the array, such as "3-7"; "": it is one job.
    """

    def __init__(self, client: Client, named: m.JobTasks) -> None:
        self._client, self.named = client, named
        self.id, self.tasks = named.job, named.tasks

    def __repr__(self) -> str:
        """Name the job."""
        return f"{type(self).__name__}({self.id})"

    @property
    def number(self) -> int:
        """Number of the job; raises ReshapeError if several tasks are named."""
        if self.tasks:
            raise ReshapeError(f"{self.named} are several tasks: name one of them, or the array")
        return self.id

    def info(self) -> m.JobInfo:
        """Describe the job."""
        return list_jobs(self._client, self.number).jobs[0]

    def wait(self, timeout: float | str | None = None) -> m.JobInfo:
        """Wait for the end of the job, across restarts of the service, and describe it.

        Parameters
        ----------
        timeout : seconds, or a text such as "10:00"; None: no limit.

        Raises
        ------
        TimeoutError : the job has not ended in this time.
        ServiceUnavailable : no service has run in the directory for `RESTART_S`.
        """
        try:
            limit_s = parse_walltime(timeout) if isinstance(timeout, str) else timeout
        except ValueError as error:
            raise ReshapeError(str(error)) from None
        until = None if limit_s is None else time.monotonic() + limit_s
        while True:
            try:
                ended = self._client._await_end(self.number, _left_s(until))
                if ended is not None:
                    return ended
                if until is None or time.monotonic() < until:
                    self._client.info(_left_s(until))
            except ServiceUnavailable as error:
                self._client._await_restart(error, until)
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {self.id} has not ended within {timeout} s")

    def watch(self) -> Iterator[m.Story]:
        """Yield what happens to the job and why, from its submission to its end.

        A line may have an earlier time than those before it.

        Raises
        ------
        ServiceUnavailable : no service has run in the directory for `RESTART_S`.
        """
        delivered: Counter[str] = Counter()
        has_ended = False
        while not has_ended:
            try:
                has_ended = self.info().ended_at is not None
                told = explanation(self._client, self.number)
            except ServiceUnavailable as error:
                self._client._await_restart(error)
                has_ended = False
            else:
                seen: Counter[str] = Counter()
                for line in told.lines[: len(told.lines) - told.present]:
                    seen[line.text] += 1
                    if seen[line.text] > delivered[line.text]:
                        delivered[line.text] += 1
                        yield line
                if not has_ended:
                    time.sleep(WATCH_S)

    def explain(self) -> list[m.Story]:
        """Return what has happened to the job and why, and what it waits for."""
        return explanation(self._client, self.number).lines

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
        self._change(m.UpdateJob(**keyword_fields(changes, Changes)))

    def _change(self, change: m.JobChange) -> None:
        self._client.ask(m.ChangeJobs(jobs=[self.named], change=change), m.Done)


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
    ReshapeError : both are given, one is empty, or there is no such access file. All methods raise
        it if the service refuses a request, and `ServiceUnavailable`, one of its subclasses, if
        there is no service or if it does not answer.
    """

    def __init__(
        self, directory: Path | str | None = None, *, access: Path | str | None = None
    ) -> None:
        if directory is not None and access is not None:
            raise ReshapeError("access and directory both name a service; leave one out")
        if "" in (directory, access):
            raise ReshapeError("the name of the service is empty: give one, or leave it out")
        if directory is None and access is None:
            access = os.environ.get("RESHAPE_ACCESS") or None
        directory = directory or os.environ.get("RESHAPE_DIR") or DIRECTORY
        named = directory if access is None else access
        try:
            self.service = Path(named).expanduser()
        except RuntimeError:
            raise ReshapeError(f"there is no user of {str(named)!r}") from None
        if access is not None and not self.service.is_file():
            raise ReshapeError(f"there is no access file {self.service}")
        self._connection: ServiceConnection | None = None
        self._has_answered = False
        self._gone_since: float | None = None  # by the monotonic clock

    def __enter__(self) -> Self:
        """Return the client; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
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
        return submitted(self, submission_of(argv, processors, options))

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
        job_script = read_script(Path(script))
        own = keyword_fields({**options, "processors": processors}, JobOptions)
        words = [str(argument) for argument in arguments]
        return submitted(self, script_submission(job_script, words, own))

    def quote(
        self, argv: Sequence[str] = ("true",), processors: int = 1, **options: Unpack[JobOptions]
    ) -> Quote:
        """Forecast when a job would start and end; parameters as of `submit`."""
        message = m.RequestForecast(of=submission_of(argv, processors, options))
        return forecast(self, message, Quote)

    def job(self, job: int | str | JobName) -> JobHandle:
        """Return a job by its number, a task "17_4", a step "17.0", or the job submitted "last".

        "17_[3-7]" stands for several tasks of an array; see `JobHandle`.

        Raises
        ------
        ReshapeError : it names no job, no job was submitted yet, the array has no such task, or the
            job no such step.
        """
        try:
            name = job if isinstance(job, JobName) else JobName.parse(str(job))
        except ValueError as error:
            raise ReshapeError(str(error)) from None
        number = name.job
        if number == LAST:
            number = self.info().last
            if number == 0:
                raise ReshapeError("there is no last job: no job was submitted yet")
        if not name.is_one:
            return JobHandle(self, m.JobTasks(number, str(name.tasks)))
        if name.tasks is not None:
            array = array_of(self, number)
            index = name.tasks.smallest
            position = array.position(index)
            if position is None:
                raise ReshapeError(f"array {number} has no task {index}: it has {array}")
            number += 1 + position
        if name.step is not None:
            steps = dict(list_jobs(self, number).jobs[0].steps)
            if name.step not in steps:
                had = f"its steps are {min(steps)} to {max(steps)}" if steps else "it has had none"
                raise ReshapeError(f"job {number} has no step {name.step}: {had}")
            number = steps[name.step]
        return JobHandle(self, m.JobTasks(number))

    def cancel(self, jobs: Iterable[JobHandle]) -> dict[JobHandle, str]:
        """Cancel jobs at one moment, so that none starts in place of another.

        Returns
        -------
        jobs that cannot be cancelled -> why not
        """
        handles = {job.named: job for job in jobs}
        refused = change_jobs(self, list(handles), m.CancelJob())
        return {handles[named]: why for named, why in refused.items()}

    def queue(self, *, ended: bool = False, steps: bool = False) -> list[m.JobInfo]:
        """Return all queued and running jobs.

        Parameters
        ----------
        ended : include ended jobs, at most the last 1000.
        steps : include the steps of jobs.
        """
        return list_jobs(self, ended=ended, steps=steps).jobs

    def expected_starts(self) -> list[JobForecast]:
        """Forecast all queued jobs, in order of their expected starts."""
        return forecast(self, m.RequestForecast(), Starts).jobs

    def history(self, **options: Unpack[HistoryOptions]) -> list[m.JobInfo]:
        """Return ended jobs; see `HistoryOptions`."""
        return history(self, options).jobs

    def info(self, timeout: float = ANSWER_S) -> m.Info:
        """Return the state of the service."""
        return self.ask(m.ServerInfo(), m.Info, timeout)

    def nodes(self) -> list[m.NodeInfo]:
        """Return the nodes of the service."""
        return self.ask(m.ListMachine(part="nodes"), m.Nodes).nodes

    @property
    def user(self) -> str:
        """Name that the jobs have which this client submits."""
        if is_access_file(self.service):
            return read_access(self.service).user
        return getpass.getuser()

    def ask(self, message: MessageBase, answer: type[A], timeout: float = ANSWER_S) -> A:
        """Send a message of `scheduler.protocol.messages`; its answer is of the type `answer`."""
        try:
            answered = self._connected().request(message, timeout, CONNECT_S)
        except ServiceUnavailable:
            self.close()
            raise
        self._has_answered = True
        return expect(answer, answered)

    def _connected(self) -> ServiceConnection:
        if self._connection is None:
            self._connection = connect(self.service)
            self._gone_since = None
        return self._connection

    def _await_end(self, job: int, timeout: float) -> m.JobInfo | None:
        """Request the end of a job; None: it has not come so far, and may come later."""
        connection = self._connected()
        try:
            answer = connection.request(m.Wait(job=job), timeout)
        except ServiceUnavailable:
            return None
        return answer.jobs[0] if isinstance(answer, m.JobListing) else None

    def _await_restart(self, error: ServiceUnavailable, until: float | None = None) -> None:
        """Pause before the next request to a service that did not answer.

        It is an error if the service ended `RESTART_S` ago, or never ran here.
        From another host it cannot be told that a service has ended.
        A forwarded port accepts connections, and closes them, while the service restarts. So the
        server key is wrong only if the service has never answered.
        """
        if isinstance(error, ServerUnproven) and not self._has_answered:
            raise error
        if not is_access_file(self.service):
            self._gone_since = self._gone_since or time.monotonic()
            is_late = time.monotonic() - self._gone_since > RESTART_S
            if is_late or not ServiceDirectory(self.service).journal.exists():
                service_in(self.service)
        time.sleep(min(WATCH_S, _left_s(until)))


def await_job(client: Client, job: JobName, until: float | None) -> JobHandle:
    """Return a job as `Client.job` does, also if the service is down and starts again.

    Parameters
    ----------
    until : monotonic time in seconds of the last attempt; None: no limit.

    Raises
    ------
    TimeoutError : the service has not answered by then.
    ServiceUnavailable : no service has run in the directory for `RESTART_S`.
    """
    while True:
        try:
            return client.job(job)
        except ServiceUnavailable as error:
            client._await_restart(error, until)
        if until is not None and time.monotonic() >= until:
            raise TimeoutError(f"no service has said which job {job} is")


def _left_s(until: float | None) -> float:
    """Seconds until a wait is requested again."""
    return ASK_AGAIN_S if until is None else max(0.0, min(ASK_AGAIN_S, until - time.monotonic()))


def submission_of(argv: Sequence[str], processors: int, options: Mapping[str, Any]) -> m.Submission:
    """Build the submission of a program; `options` are `JobOptions`.

    Raises
    ------
    ReshapeError : an option is unknown, or its value is invalid.
    """
    if isinstance(argv, str) or not argv:
        raise ReshapeError(f"argv: expected a list of program and arguments, got {argv!r}")
    fields = keyword_fields({**options, "processors": processors}, JobOptions)
    return prepare([str(word) for word in argv], **fields)


def submitted(client: Client, submission: m.Submission) -> JobHandle:
    """Submit a job.

    Raises
    ------
    ReshapeError : it cannot write its output, or the service refuses it.
    """
    check_places(submission, client.service)
    answer = client.ask(m.Submit(submission=submission), m.Submitted)
    return JobHandle(client, m.JobTasks(answer.job))


def list_jobs(
    client: Client, job: int | None = None, *, ended: bool = False, steps: bool = False
) -> m.JobListing:
    """Request one job, or all queued and running jobs.

    Parameters
    ----------
    job : number of the only job to list; None: all.
    ended : whether to include jobs that have ended.
    steps : whether to include steps of jobs that have not ended.
    """
    message = m.ListJobs(job=job, ended=ended, steps=steps)
    return client.ask(message, m.JobListing, LISTING_S)


def explanation(client: Client, job: int) -> m.Explanation:
    """Request what has happened to a job and why."""
    return client.ask(m.Explain(job=job), m.Explanation, LISTING_S)


def history(client: Client, options: Mapping[str, Any]) -> m.JobListing:
    """Request ended jobs; `options` are `HistoryOptions`."""
    fields = {"limit": MOST_ENDED, **options}
    return client.ask(m.ListJobs(ended=True, live=False, **fields), m.JobListing, LISTING_S)


def ended_jobs(client: Client, options: HistoryOptions) -> list[m.JobInfo]:
    """Request all ended jobs that match, by their numbers, `limit` of them at a time."""
    jobs: dict[int, m.JobInfo] = {}
    options = {"limit": PAGE, **options}
    while True:
        page = history(client, options)
        jobs |= {job.job: job for job in page.jobs}
        if page.before is None:
            return [jobs[number] for number in sorted(jobs)]
        options["before"] = page.before


def array_of(client: Client, number: int) -> TaskArray:
    """Find the tasks of an array.

    Raises
    ------
    ReshapeError : there is no such job, or it is no array.
    """
    array = list_jobs(client, number).jobs[0].array
    if not array:
        raise ReshapeError(f"job {number} is no array")
    return TaskArray.parse(array)


def numbers_of(client: Client, job: JobHandle) -> ProcSet:
    """Find the numbers of the tasks of an array that are named, or of the one job.

    Raises
    ------
    ReshapeError : the array has no such task.
    """
    if not job.tasks:
        return ProcSet.span(job.id, 1)
    try:
        positions = positions_of(array_of(client, job.id), TaskArray.parse(job.tasks))
    except ValueError as error:
        raise ReshapeError(f"array {job.id}: {error}") from None
    first = job.id + 1  # the number of the task at position 0
    spans = positions.intervals
    return ProcSet.union(ProcSet.span(first + begin, end + 1 - begin) for begin, end in spans)


def change_jobs(
    client: Client, jobs: Sequence[m.JobTasks], change: m.JobChange
) -> dict[m.JobTasks, str]:
    """Change jobs, `MOST_CHANGED` of them at one moment; return why some are not changed."""
    refused: dict[m.JobTasks, str] = {}
    for begin in range(0, len(jobs), m.MOST_CHANGED):
        part = list(jobs[begin : begin + m.MOST_CHANGED])
        try:
            answer = client.ask(m.ChangeJobs(jobs=part, change=change), MessageBase, LISTING_S)
        except RequestRefused as error:
            if len(part) != 1:
                raise
            refused[part[0]] = str(error)
            continue
        if isinstance(answer, m.UnchangedJobs):
            refused |= {part[place]: why for place, why in answer.refused}
        else:
            expect(m.Done, answer)
    return refused


def forecast(client: Client, message: MessageBase, kind: type[T], timeout: float = FORECAST_S) -> T:
    """Request a forecast, which is a structure of the type `kind`."""
    data: Any = client.ask(message, m.ForecastResult, timeout).found
    return msgspec.convert(data, kind)


def read_output(job: m.JobInfo, is_error: bool = False, begin: int = 0) -> bytes:
    """Read the output of a job, or its standard error, from a file that this host reaches.

    Parameters
    ----------
    begin : bytes to leave out.

    Raises
    ------
    ReshapeError : the file cannot be read; a `FileNotFoundError` is its cause if it does not exist.
        The job is an array, whose tasks have files of their own.
    """
    if job.array:
        raise ReshapeError(
            f"job {job.job} is an array, whose tasks have outputs of their own: name a task, such"
            f" as {job.job}_{TaskArray.parse(job.array).smallest}"
        )
    path = job.error if is_error and job.error else job.output
    try:
        with Path(path).open("rb") as file:
            file.seek(begin)
            return file.read()
    except OSError as error:
        raise ReshapeError(
            f"cannot read the output {path} of job {job.job} ({job.state}): {error.strerror}"
        ) from error
