"""What clients ask of a service, without any input or output.

An operation is a generator: it yields requests, and gets their answers. It raises the errors of its
requests, unless it handles them, and returns its result. A synchronous and an asynchronous client
run the same operations (`client`, `async_client`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec.structs import replace

from reshape.errors import RequestRefused, ReshapeError, ServiceUnavailable
from reshape.wire.connection import endpoint_of, is_access_file
from reshape.wire.messages import MessageBase
from scheduler.forecasts.answers import Starts
from scheduler.model.arrays import LAST, JobName, TaskArray
from scheduler.model.job import JobState
from scheduler.protocol import messages as m
from scheduler.protocol.client import expect

T = TypeVar("T")
A = TypeVar("A", bound=MessageBase)

#: Time limits of an answer, seconds: in general, of a listing or many cancellations, of a forecast
#: (the service gives up earlier).
ANSWER_S, LISTING_S, FORECAST_S = 10.0, 30.0, 130.0
#: Seconds that the forecaster may take for the expected starts of a listing, and that the listing
#: waits for them, because the forecaster may be starting, or busy with another question.
STARTS_S, STARTS_WAIT_S = 0.5, 1.0
#: Ended jobs that a listing has unless it says otherwise, and that one has at most.
MOST_ENDED, PAGE = 500, 1000
#: Interval in seconds after which a wait is requested again, in case the service was restarted.
ASK_AGAIN_S = 5.0


class ServiceRequest(NamedTuple):
    """A message to the service.

    Attributes
    ----------
    timeout : seconds to wait for its answer.
    may_be_late : whether None stands for an answer that did not come in time, in place of an error.
    """

    message: MessageBase
    timeout: float = ANSWER_S
    may_be_late: bool = False


Operation: TypeAlias = Generator[ServiceRequest, MessageBase | None, T]


def ask(message: MessageBase, answer: type[A], timeout: float = ANSWER_S) -> Operation[A]:
    """Send one message; its answer is of the type `answer`."""
    return expect(answer, (yield ServiceRequest(message, timeout)))


def list_jobs(
    job: int | None = None, *, ended: bool = False, steps: bool = False
) -> Operation[m.JobListing]:
    """Request one job, or all queued and running jobs.

    Parameters
    ----------
    job : number of the only job to list; None: all.
    ended : whether to include jobs that have ended.
    steps : whether to include steps of jobs that have not ended.
    """
    message = m.ListJobs(job=job, ended=ended, steps=steps)
    return (yield from ask(message, m.JobListing, LISTING_S))


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


def history(chosen: Mapping[str, Any]) -> Operation[m.JobListing]:
    """Request ended jobs; `chosen` are `HistoryOptions`."""
    fields = {"limit": MOST_ENDED, **chosen}
    message = m.ListJobs(ended=True, live=False, **fields)
    return (yield from ask(message, m.JobListing, LISTING_S))


def ended_jobs(chosen: HistoryOptions) -> Operation[list[m.JobInfo]]:
    """Request all ended jobs that match, by their numbers, `limit` of them at a time."""
    jobs: dict[int, m.JobInfo] = {}
    chosen = {"limit": PAGE, **chosen}
    while True:
        page = yield from history(chosen)
        jobs |= {job.job: job for job in page.jobs}
        if page.before is None:
            return [jobs[number] for number in sorted(jobs)]
        chosen["before"] = page.before


def number_of(name: JobName) -> Operation[int]:
    """Find the number of a job, a task or a step.

    Raises
    ------
    ReshapeError : no job was submitted yet, the array has no such task, or the job no such step;
        or the name stands for several tasks.
    """
    number = one_job(name.job, "" if name.is_one else str(name.tasks))
    if number == LAST:
        info = yield from ask(m.ServerInfo(), m.Info)
        number = info.last
        if number == 0:
            raise ReshapeError("there is no last job: no job was submitted yet")
    if name.tasks is not None:
        array = yield from array_of(number)
        index = name.tasks.smallest
        position = array.position(index)
        if position is None:
            raise ReshapeError(f"array {number} has no task {index}: it has {array}")
        number += 1 + position
    if name.step is None:
        return number
    listing = yield from list_jobs(number)
    steps = dict(listing.jobs[0].steps)
    if name.step not in steps:
        known = f"its steps are {min(steps)} to {max(steps)}" if steps else "it has had none"
        raise ReshapeError(f"job {number} has no step {name.step}: {known}")
    return steps[name.step]


def array_of(number: int) -> Operation[TaskArray]:
    """Find the tasks of an array.

    Raises
    ------
    ReshapeError : there is no such job, or it is no array.
    """
    listing = yield from list_jobs(number)
    if not listing.jobs[0].array:
        raise ReshapeError(f"job {number} is no array")
    return TaskArray.parse(listing.jobs[0].array)


def one_job(number: int, tasks: str) -> int:
    """Return the number of a job; several tasks are none.

    Raises
    ------
    ReshapeError : there are tasks.
    """
    if tasks:
        raise ReshapeError(f"{number}_[{tasks}] are several tasks: name one of them, or the array")
    return number


def tasks_of(name: JobName) -> Operation[m.JobTasks]:
    """Find the number of a job, task or step, or that of an array of which tasks are named.

    Raises
    ------
    ReshapeError : as of `number_of`.
    """
    if name.is_one:
        return m.JobTasks((yield from number_of(name)))
    return m.JobTasks((yield from number_of(JobName(name.job))), str(name.tasks))


def change_jobs(
    jobs: Sequence[m.JobTasks], change: m.JobChange
) -> Operation[dict[m.JobTasks, str]]:
    """Change jobs at one moment; return why some of them cannot be changed."""
    try:
        answer = yield ServiceRequest(m.ChangeJobs(jobs=list(jobs), change=change), LISTING_S)
    except RequestRefused as error:
        if len(jobs) != 1:
            raise
        return {jobs[0]: str(error)}
    if isinstance(answer, m.UnchangedJobs):
        return {jobs[place]: why for place, why in answer.refused}
    expect(m.Done, answer)
    return {}


def wait(service: Path, job: int, until: float | None) -> Operation[m.JobInfo | None]:
    """Wait for the end of a job, across restarts of the service.

    Parameters
    ----------
    service : directory of the service, or an access file.
    until : time of the monotonic clock at which to give up; None: never.

    Returns
    -------
    the job, or None if the time is over.

    Raises
    ------
    ServiceUnavailable : the service has ended.
    ReshapeError : there is no such job, or the key was revoked.
    """
    while True:
        try:
            answer = yield ServiceRequest(m.Wait(job=job), _left_s(until), may_be_late=True)
            if isinstance(answer, m.JobListing):
                return answer.jobs[0]
            if until is None or time.monotonic() < until:
                yield ServiceRequest(m.ServerInfo(), _left_s(until))
        except ServiceUnavailable:
            if not is_access_file(service):
                endpoint_of(service)  # raises if the service has ended
        if until is not None and time.monotonic() >= until:
            return None


def _left_s(until: float | None) -> float:
    """Seconds until a wait is requested again."""
    return ASK_AGAIN_S if until is None else max(0.0, min(ASK_AGAIN_S, until - time.monotonic()))


def forecast(message: MessageBase, kind: type[T], timeout: float = FORECAST_S) -> Operation[T]:
    """Request a forecast, which is a structure of the type `kind`."""
    result = yield from ask(message, m.ForecastResult, timeout)
    data: Any = result.found
    return msgspec.convert(data, kind)


def expected_starts(horizon_s: float | None = None) -> Operation[Starts]:
    """Request forecasts of all queued jobs, in order of their expected starts."""
    return (yield from forecast(m.RequestForecast(horizon_s=horizon_s), Starts))


def with_expected_starts(jobs: list[m.JobInfo]) -> Operation[list[m.JobInfo]]:
    """Give queued jobs of a listing their expected starts, as far as these are known soon."""
    if not any(job.state == JobState.PENDING.name for job in jobs):
        return jobs
    message = m.RequestForecast(limit_s=STARTS_S)
    try:
        forecasts = (yield from forecast(message, Starts, STARTS_WAIT_S)).jobs
    except ReshapeError:  # it is busy, or cannot forecast this state
        return jobs
    starts = {expected.job: expected.start for expected in forecasts}
    return [
        job if job.started_at is not None else replace(job, started_at=starts.get(job.job))
        for job in jobs
    ]


def watch(
    service: Path, job: int, delivered: Counter[str]
) -> Operation[tuple[list[m.Story], bool]]:
    """Request what has happened to a job since the last look; nothing while the service is away.

    Parameters
    ----------
    service : directory of the service, or an access file.
    delivered : texts of the story that earlier looks have returned; this one adds its own.

    Returns
    -------
    new lines of the story, of which one may have an earlier time than those before; and whether the
    job has ended, so that nothing follows.
    """
    try:
        listing = yield from list_jobs(job)
        told = yield from ask(m.Explain(job=job), m.Explanation)
    except ServiceUnavailable:
        if not is_access_file(service):
            endpoint_of(service)  # raises if the service has ended
        return [], False
    lines: list[m.Story] = []
    seen: Counter[str] = Counter()
    for line in told.lines[: len(told.lines) - told.present]:
        seen[line.text] += 1
        if seen[line.text] > delivered[line.text]:
            delivered[line.text] += 1
            lines.append(line)
    return lines, listing.jobs[0].ended_at is not None
