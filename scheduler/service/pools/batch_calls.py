"""Calls of a batch system in a thread of their own, since each takes a while.

The loop of the service puts requests in and takes results out; neither waits. The batch system
itself keeps the interval between two of its commands. Whatever a call raises becomes its result,
because no error may end the thread.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

from scheduler.node.batch_system import (
    BatchRequest,
    BatchStatus,
    BatchSystem,
    BatchSystemError,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Accepted:
    """The batch system has accepted a batch job of this name and gave it an id."""

    name: str
    id: str


@dataclass(frozen=True)
class Refused:
    """The batch system has refused a batch job of this name, or did not answer."""

    name: str
    why: str


@dataclass(frozen=True)
class LookedUp:
    """States of batch jobs, by id, at `begun` (monotonic seconds) or later.

    `why` says why there are none.
    """

    statuses: Mapping[str, BatchStatus]
    begun: float
    why: str = ""


@dataclass(frozen=True)
class Found:
    """Ids of batch jobs by name, of those names that were looked for; `why` as in `LookedUp`."""

    names: tuple[str, ...]
    ids: Mapping[str, str]
    why: str = ""


@dataclass(frozen=True)
class Checked:
    """The answer to a dry run; `why` says why the batch job would be refused."""

    name: str
    answer: str
    why: str = ""


CallResult: TypeAlias = Accepted | Refused | LookedUp | Found | Checked
#: A call, and what makes its result from the reason for which it failed.
_Request: TypeAlias = tuple[Callable[[], CallResult | None], Callable[[str], CallResult | None]]


class BatchCalls:
    """Calls a batch system one request after the other, in their order.

    Parameters
    ----------
    make : makes the batch system, which only this object's thread uses. As long as that fails,
        the error is the result of each call.
    """

    def __init__(self, make: Callable[[], BatchSystem]) -> None:
        self._make = make
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[CallResult] = queue.SimpleQueue()
        # A daemon: a call that hangs must not keep the service from ending.
        self._thread = threading.Thread(target=self._run, name="batch-calls", daemon=True)
        self._thread.start()

    def submit(self, request: BatchRequest) -> None:
        """Submit a batch job; the result is `Accepted` or `Refused`."""
        name = request.name
        self._put(lambda: Accepted(name, self._batch.submit(request)), partial(Refused, name))

    def check(self, request: BatchRequest) -> None:
        """Ask whether a batch job would be accepted; the result is `Checked`."""
        name = request.name
        self._put(lambda: Checked(name, self._batch.check(request)), partial(Checked, name, ""))

    def look_up(self, ids: Sequence[str]) -> None:
        """Look up batch jobs; the result is `LookedUp`."""

        def call() -> LookedUp:
            begun = time.monotonic()
            return LookedUp(self._batch.statuses(ids), begun)

        self._put(call, lambda why: LookedUp({}, time.monotonic(), why))

    def find(self, names: Sequence[str]) -> None:
        """Find batch jobs by their names; the result is `Found`."""
        asked = tuple(names)
        self._put(lambda: Found(asked, self._batch.find(asked)), partial(Found, asked, {}))

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel batch jobs; there is no result, since a later look-up shows whether they ended."""
        listed = ", ".join(ids)
        self._put(
            lambda: self._batch.cancel(ids),
            lambda why: log.error("cannot cancel batch jobs %s: %s", listed, why),
        )

    def _put(
        self,
        call: Callable[[], CallResult | None],
        failed: Callable[[str], CallResult | None],
    ) -> None:
        """Let the thread make a call; `failed` makes its result if it raises, from the reason."""
        self._requests.put((call, failed))

    @property
    def outstanding(self) -> int:
        """Number of requests that wait for the one under way."""
        return self._requests.qsize()

    def results(self) -> list[CallResult]:
        """Take the results that have arrived."""
        results: list[CallResult] = []
        while True:
            try:
                results.append(self._results.get_nowait())
            except queue.Empty:
                return results

    def close(self, wait_s: float) -> None:
        """Accept no further calls, and wait for the requested ones for `wait_s` at most."""
        self._requests.put(None)
        self._thread.join(wait_s)

    @cached_property
    def _batch(self) -> BatchSystem:
        return self._make()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            call, failed = request
            try:
                result = call()
            except Exception as error:
                result = failed(_why(error))
            if result is not None:
                self._results.put(result)


def _why(error: Exception) -> str:
    """Return the message of an error; of an unexpected one also its type, and log it."""
    if isinstance(error, BatchSystemError):
        return str(error)
    log.error("a call of a batch system raised an exception", exc_info=error)
    return repr(error)
