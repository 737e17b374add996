"""The Python client of a service for asyncio: `AsyncClient` and `AsyncJobHandle`.

The methods are those of `Client` and `JobHandle`, as coroutines. All requests go over one
connection, so that any number of jobs can be awaited at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self, TypeVar, Unpack

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.messages import Failure, MessageBase
from scheduler.client.api import keywords, operations
from scheduler.client.api.client import WATCH_S, read_output, service_of
from scheduler.client.api.operations import HistoryOptions, Operation, ServiceRequest
from scheduler.client.job_options import Changes, JobOptions
from scheduler.client.submission import check_places
from scheduler.forecasts.answers import JobForecast, Quote
from scheduler.protocol import client as protocol
from scheduler.protocol import messages as m

T = TypeVar("T")

#: Seconds between two attempts to send a message before there is a connection.
_CONNECT_S = 0.005


class _AsyncConnection:
    """A connection whose answers are received by the running event loop."""

    def __init__(self, service: Path) -> None:
        self._connection = protocol.connect(service)
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[m.Message]] = {}
        self._loop.add_reader(self._connection.descriptor, self._receive)

    def close(self) -> None:
        """Close the connection; requests that have no answer fail."""
        self._loop.remove_reader(self._connection.descriptor)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(self._connection.unavailable(0.0))
        self._connection.close()

    async def request(self, request: ServiceRequest) -> m.Message:
        """Send a message and wait for its answer; errors are those of `Connection.request`."""
        until = self._loop.time() + request.timeout
        number = await self._send(request.message, until)
        future = self._waiting[number] = self._loop.create_future()
        self._receive()  # the descriptor does not tell what came with the message
        try:
            answer: m.Message = await asyncio.wait_for(future, max(0.0, until - self._loop.time()))
        except TimeoutError:
            raise self._connection.unavailable(request.timeout) from None
        finally:
            del self._waiting[number]
        if isinstance(answer, Failure):
            raise ReshapeError(answer.message)
        return answer

    async def _send(self, message: MessageBase, until: float) -> int:
        while True:
            try:
                return self._connection.send(message)
            except ServiceUnavailable:
                if self._loop.time() >= until:
                    raise
            await asyncio.sleep(_CONNECT_S)

    def _receive(self) -> None:
        try:
            while (answer := self._connection.receive(0.0)) is not None:
                future = self._waiting.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
        except ReshapeError as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)


class AsyncClient:
    """A client of a scheduler service for one event loop; parameters and errors as of `Client`."""

    def __init__(
        self, directory: Path | str | None = None, *, access: Path | str | None = None
    ) -> None:
        self.service = service_of(directory, access)
        self._connection: _AsyncConnection | None = None

    async def __aenter__(self) -> Self:
        """Return the client; it is closed at the end of the block."""
        return self

    async def __aexit__(
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

    async def submit(
        self, argv: Sequence[str], processors: int = 1, **options: Unpack[JobOptions]
    ) -> AsyncJobHandle:
        """Submit a job; see `Client.submit`."""
        return await self._submit(keywords.submission(argv, processors, options))

    async def batch(
        self,
        script: Path | str,
        *arguments: str,
        processors: int | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncJobHandle:
        """Submit a job script; see `Client.batch`."""
        return await self._submit(keywords.batch_submission(script, arguments, processors, options))

    async def _submit(self, submission: m.Submission) -> AsyncJobHandle:
        check_places(submission, self.service)
        answer = await self.run(operations.ask(m.Submit(submission=submission), m.Submitted))
        return AsyncJobHandle(self, m.JobTasks(answer.job))

    async def quote(
        self, argv: Sequence[str] = ("true",), processors: int = 1, **options: Unpack[JobOptions]
    ) -> Quote:
        """Forecast when a job would start and end; see `Client.quote`."""
        return await self.run(operations.quote(keywords.submission(argv, processors, options)))

    async def job(self, job: int | str) -> AsyncJobHandle:
        """Return a job by its name; see `Client.job`."""
        return AsyncJobHandle(self, await self.run(operations.tasks_of(keywords.job_name(job))))

    async def cancel(self, jobs: Iterable[AsyncJobHandle]) -> dict[AsyncJobHandle, str]:
        """Cancel jobs at one moment; see `Client.cancel`."""
        handles = {m.JobTasks(job.id, job.tasks): job for job in jobs}
        refused = await self.run(operations.change_jobs(list(handles), m.CancelJob()))
        return {handles[named]: why for named, why in refused.items()}

    async def queue(self, *, ended: bool = False, steps: bool = False) -> list[m.JobInfo]:
        """Return all queued and running jobs; see `Client.queue`."""
        return (await self.run(operations.list_jobs(ended=ended, steps=steps))).jobs

    async def expected_starts(self) -> list[JobForecast]:
        """Forecast all queued jobs; see `Client.expected_starts`."""
        return (await self.run(operations.expected_starts())).jobs

    async def history(self, **chosen: Unpack[HistoryOptions]) -> list[m.JobInfo]:
        """Return ended jobs; see `HistoryOptions`."""
        return (await self.run(operations.history(chosen))).jobs

    async def info(self) -> m.Info:
        """Return the state of the service."""
        return await self.run(operations.ask(m.ServerInfo(), m.Info))

    async def nodes(self) -> list[m.NodeInfo]:
        """Return the nodes of the service."""
        return (await self.run(operations.ask(m.ListMachine(part="nodes"), m.Nodes))).nodes

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation of `scheduler.client.api.operations`, and return its result."""
        try:
            request = next(operation)
            while True:
                try:
                    answer = await self._answer(request)
                except ReshapeError as error:
                    request = operation.throw(error)
                else:
                    request = operation.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    async def _answer(self, request: ServiceRequest) -> m.Message | None:
        if self._connection is None:
            self._connection = _AsyncConnection(self.service)
        used = self._connection
        try:
            return await used.request(request)
        except ServiceUnavailable:
            if used is self._connection:
                if request.may_be_late:
                    return None
                self.close()
            raise


class AsyncJobHandle:
    """A job of a service; see `JobHandle`."""

    def __init__(self, client: AsyncClient, named: m.JobTasks) -> None:
        self._client, self.id, self.tasks = client, named.job, named.tasks

    def __repr__(self) -> str:
        """Name the job."""
        return f"AsyncJobHandle({self.id})"

    @property
    def _one(self) -> int:
        """Number of the job; raises ReshapeError if several tasks are named."""
        return operations.one_job(self.id, self.tasks)

    async def info(self) -> m.JobInfo:
        """Describe the job."""
        return (await self._run(operations.list_jobs(self._one))).jobs[0]

    async def wait(self, timeout: float | str | None = None) -> m.JobInfo:
        """Wait for the end of the job; see `Job.wait`."""
        limit_s = keywords.seconds(timeout)
        until = None if limit_s is None else monotonic() + limit_s
        ended = await self._run(operations.wait(self._client.service, self._one, until))
        if ended is None:
            raise TimeoutError(f"job {self.id} has not ended within {timeout} s")
        return ended

    async def watch(self) -> AsyncIterator[m.Story]:
        """Yield what happens to the job and why, from its submission to its end."""
        delivered: Counter[str] = Counter()
        while True:
            look = operations.watch(self._client.service, self._one, delivered)
            lines, has_ended = await self._run(look)
            for line in lines:
                yield line
            if has_ended:
                return
            await asyncio.sleep(WATCH_S)

    async def explain(self) -> list[m.Story]:
        """Return what has happened to the job and why, and what it waits for."""
        return (await self._run(operations.ask(m.Explain(job=self._one), m.Explanation))).lines

    async def output(self, *, error: bool = False) -> str:
        """Read the output of the job; see `Job.output`."""
        return read_output(await self.info(), error).decode(errors="replace")

    async def cancel(self) -> None:
        """Cancel the job."""
        await self._change(m.CancelJob())

    async def signal(self, number: int, *, to_script: bool = False) -> None:
        """Send a signal to the processes of the job, or to its script alone."""
        await self._change(m.SignalJob(number, to_script))

    async def hold(self) -> None:
        """Hold the queued job: it does not start until it is released."""
        await self._change(m.HoldJob())

    async def release(self) -> None:
        """Release the held job."""
        await self._change(m.ReleaseJob())

    async def requeue(self) -> None:
        """End the running job and queue it again."""
        await self._change(m.RequeueJob())

    async def update(self, **changes: Unpack[Changes]) -> None:
        """Change the request of the job; see `Changes`."""
        given = keywords.changes(changes)
        await self._change(m.UpdateJob(**given))

    async def _change(self, change: m.JobChange) -> None:
        named = m.JobTasks(self.id, self.tasks)
        await self._run(operations.change_job(named, change))

    async def _run(self, operation: Operation[T]) -> T:
        return await self._client.run(operation)
