"""The Python client of a service for asyncio: `AsyncClient` and `AsyncJobHandle`.

The methods are those of `Client` and `JobHandle`, as coroutines. All requests go over one
connection, so that any number of jobs can be awaited at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.messages import Failure, MessageBase
from scheduler.client.api import operations
from scheduler.client.api.client import WATCH_S, ForEventLoop, JobMethods, ServiceMethods
from scheduler.client.api.operations import Operation, ServiceRequest
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


class AsyncJobHandle(JobMethods, ForEventLoop):
    """A job of a service; see `JobHandle`."""

    async def watch(self) -> AsyncIterator[m.Story]:
        """Yield what happens to the job and why, from its submission to its end."""
        delivered: Counter[str] = Counter()
        while True:
            look = operations.watch(self._service, self._one, delivered)
            lines, has_ended = await self.run(look)
            for line in lines:
                yield line
            if has_ended:
                return
            await asyncio.sleep(WATCH_S)


class AsyncClient(ServiceMethods[AsyncJobHandle], ForEventLoop):
    """A client of a scheduler service for one event loop; parameters and errors as of `Client`."""

    _handle = AsyncJobHandle
    _connection: _AsyncConnection | None

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
