"""The batch jobs of all pools: submissions, cancellations and look-ups.

Each call of a batch system takes a while, so a thread makes them: the loop of the service puts
requests in and takes results out, and neither waits. The batch system itself keeps the interval
between two of its commands. Whatever a call raises becomes its result, because no error may end the
thread.

Submissions and cancellations are made one tick after they were asked for, when the transaction that
notes them is written. A submission whose outcome is not known (the service ended meanwhile, or the
batch system did not answer, or answered with an error) is in doubt: its batch job is looked for by
its name, so that it is neither forgotten nor submitted again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

from reshape.errors import ReshapeError
from scheduler.node.batch_system import (
    BatchRequest,
    BatchStatus,
    BatchSystem,
    BatchSystemError,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SubmissionOutcome:
    """What became of the submission of a batch job of this name.

    `id` is the one that the batch system gave it. Without one, there is no such batch job as far as
    is known, and `why` says why it was refused, if it was.
    """

    name: str
    id: str
    why: str = ""


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


CallResult: TypeAlias = SubmissionOutcome | LookedUp | Found | Checked
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
        """Submit a batch job; the result is a `SubmissionOutcome`."""
        name = request.name
        self._put(
            lambda: SubmissionOutcome(name, self._batch.submit(request)),
            partial(SubmissionOutcome, name, ""),
        )

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


#: Seconds between two look-ups, each of all batch jobs of a batch system.
LOOK_UP_S = 5.0
#: Seconds for which a submission is in doubt: after a refusal, and after a restart of the service,
#: whose predecessor may have left a command that still runs.
REFUSED_S, INTERRUPTED_S = 10.0, 120.0
#: Seconds that a service that ends waits for cancellations.
CLOSE_S = 10.0


BatchResult: TypeAlias = SubmissionOutcome | LookedUp | Checked


@dataclass(frozen=True)
class _Doubt:
    """A submission that may have been made; `until` in monotonic seconds."""

    system: str
    until: float
    why: str


class BatchJobs:
    """Batch jobs of several batch systems.

    Parameters
    ----------
    makers : makes a batch system, by its name.

    Attributes
    ----------
    faults : why a batch system does not answer look-ups, by its name.
    """

    def __init__(self, makers: Mapping[str, Callable[[], BatchSystem]]) -> None:
        self._makers = makers
        self._calls: dict[str, BatchCalls] = {}
        self._later: deque[tuple[BatchCalls, partial[None]]] = deque()
        self._looking: set[str] = set()  # batch systems that have not answered the last look-up
        self._doubts: dict[str, _Doubt] = {}
        self._looked_up_at = 0.0  # monotonic seconds
        self.faults: dict[str, str] = {}

    def check_system(self, system: str) -> None:
        """Check that there is a batch system of this name.

        Raises
        ------
        ReshapeError : there is none.
        """
        if system not in self._makers:
            names = ", ".join(self._makers)
            raise ReshapeError(f"there is no batch system {system!r}; there is {names}")

    def try_out(self, system: str, request: BatchRequest) -> None:
        """Ask whether a batch job would be accepted; the result is `Checked`."""
        self._calls_of(system).check(request)

    def submit(self, system: str, request: BatchRequest) -> None:
        """Submit a batch job; the result is a `SubmissionOutcome`."""
        calls = self._calls_of(system)
        self._later.append((calls, partial(calls.submit, request)))

    def cancel(self, system: str, batch_id: str) -> None:
        """Cancel a batch job, unless that is due already; its end is seen by look-ups."""
        calls = self._calls_of(system)
        if any(call.func == calls.cancel and call.args == ([batch_id],) for _, call in self._later):
            return
        self._later.appendleft((calls, partial(calls.cancel, [batch_id])))

    def doubt(self, system: str, name: str, for_s: float = INTERRUPTED_S, why: str = "") -> None:
        """Look for a batch job of this name; the result is a `SubmissionOutcome`."""
        self._doubts[name] = _Doubt(system, time.monotonic() + for_s, why)

    def on_tick(self, ids: Callable[[str], Sequence[str]]) -> list[BatchResult]:
        """Make the calls that were asked for before, look batch jobs up, and return results.

        Parameters
        ----------
        ids : returns the ids of the batch jobs to look up, by the name of the batch system.
        """
        self._make_calls()
        if time.monotonic() - self._looked_up_at > LOOK_UP_S:
            self._looked_up_at = time.monotonic()
            self._look_up(ids)
        return [
            result
            for system, calls in self._calls.items()
            for called in calls.results()
            for result in self._results_of(system, called)
        ]

    def close(self) -> None:
        """Make the cancellations that are due, for `CLOSE_S` at most, and no further calls."""
        for calls, call in self._later:
            if call.func == calls.cancel:
                call()
        for calls in self._calls.values():
            calls.close(CLOSE_S)

    def _make_calls(self) -> None:
        """Hand over calls that were asked for before this tick, as many as are made at once.

        The others wait here, so that a look-up does not have to wait for all of them.
        """
        for _ in range(len(self._later)):
            calls, call = self._later[0]
            if calls.outstanding:
                return
            self._later.popleft()
            call()

    def _look_up(self, ids: Callable[[str], Sequence[str]]) -> None:
        for system in self._makers:
            batch_ids = ids(system)
            if batch_ids and system not in self._looking:
                self._looking.add(system)
                self._calls_of(system).look_up(batch_ids)
            names = [name for name, doubt in self._doubts.items() if doubt.system == system]
            if names:
                self._calls_of(system).find(names)

    def _results_of(self, system: str, result: CallResult) -> Iterable[BatchResult]:
        match result:
            case SubmissionOutcome(name, id="", why=why):
                self.doubt(system, name, REFUSED_S, why)
            case Found(names, ids, why):
                self._note_fault(system, why)
                if not why:
                    yield from self._settle(names, ids)
            case LookedUp(why=why):
                self._looking.discard(system)
                self._note_fault(system, why)
                yield result
            case _:
                yield result

    def _settle(self, names: Iterable[str], ids: Mapping[str, str]) -> Iterable[BatchResult]:
        """Decide on the submissions in doubt that were looked for."""
        for name in names:
            doubt = self._doubts.get(name)
            if name in ids:
                self._doubts.pop(name, None)
                yield SubmissionOutcome(name, ids[name])
            elif doubt is not None and doubt.until < time.monotonic():
                del self._doubts[name]
                yield SubmissionOutcome(name, "", doubt.why)

    def _note_fault(self, system: str, why: str) -> None:
        if why:
            self.faults[system] = why
        else:
            self.faults.pop(system, None)

    def _calls_of(self, system: str) -> BatchCalls:
        if system not in self._calls:
            self._calls[system] = BatchCalls(self._makers[system])
        return self._calls[system]
