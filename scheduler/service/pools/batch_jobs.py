"""The batch jobs of all pools: submissions, cancellations and look-ups.

Each call of a batch system takes a while, so a thread makes them: the loop of the service puts
requests in and is handed their answers, and neither waits. The batch system itself keeps the
interval between two of its commands. Whatever a call raises becomes its result, because no error
may end the thread.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

from reshape.errors import ReshapeError
from scheduler.node.slurm import BatchRequest, BatchStatus, Slurm

log = logging.getLogger(__name__)


T = TypeVar("T")


class BatchCalls:
    """Calls a batch system one request after the other, in their order.

    Parameters
    ----------
    make : makes the batch system, which only this object's thread uses. As long as that fails,
        the error is the result of each call.
    """

    def __init__(self, make: Callable[[], Slurm]) -> None:
        self._make = make
        self._requests: queue.SimpleQueue[
            tuple[Callable[[Slurm], Any], Callable[[Any, str], None], bool] | None
        ] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # A daemon: a call that hangs must not keep the service from ending.
        self._thread = threading.Thread(target=self._run, name="batch-calls", daemon=True)
        self._thread.start()

    def call(self, ask: Callable[[Slurm], T], then: Callable[[T | None, str], None]) -> None:
        """Let the thread ask the batch system.

        Parameters
        ----------
        then : called by `deliver` with the answer, or with None and the reason why there is none.
        """
        self._requests.put((ask, then, True))

    def cancel(self, batch_id: str) -> None:
        """Let the thread cancel a batch job, and log it if that fails; a look-up shows its end."""

        def note(_answer: None, why: str) -> None:
            if why:
                log.error("cannot cancel batch job %s: %s", batch_id, why)

        self._requests.put((lambda batch: batch.cancel([batch_id]), note, False))

    @property
    def outstanding(self) -> int:
        """Number of requests that wait for the one under way."""
        return self._requests.qsize()

    def deliver(self) -> None:
        """Hand over the answers that have arrived."""
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                return
            result()

    def close(self, wait_s: float) -> None:
        """Accept no further calls, and wait for the requested ones for `wait_s` at most."""
        self._requests.put(None)
        self._thread.join(wait_s)

    @cached_property
    def _batch(self) -> Slurm:
        return self._make()

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            ask, then, is_awaited = request
            try:
                result = partial(then, ask(self._batch), "")
            except Exception as error:
                result = partial(then, None, _why(error))
            if is_awaited:
                self._results.put(result)
            else:
                result()


def _why(error: Exception) -> str:
    """Return the message of an error; of an unexpected one also its type, and log it."""
    if isinstance(error, ReshapeError):
        return str(error)
    log.error("a call of a batch system raised an exception", exc_info=error)
    return repr(error)


#: Seconds between two look-ups, each of all batch jobs of a batch system.
LOOK_UP_S = 5.0
#: Seconds for which a submission is in doubt: after a refusal, and after a restart of the service,
#: whose predecessor may have left a command that still runs.
REFUSED_S, INTERRUPTED_S = 10.0, 120.0


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
    on_submission : called with the name of a batch job that was submitted, its id, and "". Without
        an id there is no such batch job; the last argument says why it was refused, if it was.
    on_statuses : called with states of batch jobs, by id, as they were at a time (monotonic
        seconds) or later; there are none if the batch system has not answered.

    Attributes
    ----------
    faults : why a batch system does not answer look-ups, by its name.
    """

    def __init__(
        self,
        makers: Mapping[str, Callable[[], Slurm]],
        on_submission: Callable[[str, str, str], None],
        on_statuses: Callable[[Mapping[str, BatchStatus], float], None],
    ) -> None:
        self._makers = makers
        self._on_submission, self._on_statuses = on_submission, on_statuses
        self._calls: dict[str, BatchCalls] = {}
        # Batch systems with batch jobs to submit, and ids of those to cancel.
        self._later: deque[tuple[str, BatchRequest | str]] = deque()
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

    def try_out(
        self, system: str, request: BatchRequest, then: Callable[[str | None, str], None]
    ) -> None:
        """Ask whether a batch job would be accepted.

        Parameters
        ----------
        then : called with the answer of the batch system, or with None and why it refuses.
        """
        self._calls_of(system).call(lambda batch: batch.check(request), then)

    def submit(self, system: str, request: BatchRequest) -> None:
        """Submit a batch job; `on_submission` is called."""
        self._later.append((system, request))

    def cancel(self, system: str, batch_id: str) -> None:
        """Cancel a batch job, unless that is due already; its end is seen by look-ups."""
        if (system, batch_id) not in self._later:
            self._later.appendleft((system, batch_id))

    def doubt(self, system: str, name: str, for_s: float = INTERRUPTED_S, why: str = "") -> None:
        """Look for a batch job of this name; `on_submission` is called."""
        self._doubts[name] = _Doubt(system, time.monotonic() + for_s, why)

    def on_tick(self, ids: Callable[[str], Sequence[str]]) -> None:
        """Make the calls that were asked for before, look batch jobs up, and hand over answers.

        Parameters
        ----------
        ids : returns the ids of the batch jobs to look up, by the name of the batch system.
        """
        self._make_calls()
        if time.monotonic() - self._looked_up_at > LOOK_UP_S:
            self._looked_up_at = time.monotonic()
            for system in self._makers:
                self._look_up(system, ids(system))
        for calls in self._calls.values():
            calls.deliver()

    def close(self, wait_s: float) -> None:
        """Make the cancellations that are due, for `wait_s` at most, and no further calls."""
        for system, what in self._later:
            if isinstance(what, str):
                self._call(system, what)
        for calls in self._calls.values():
            calls.close(wait_s)

    def _make_calls(self) -> None:
        """Hand over calls that were asked for before this tick, as many as are made at once.

        The others wait here, so that a look-up does not have to wait for all of them.
        """
        for _ in range(len(self._later)):
            system, what = self._later[0]
            if self._calls_of(system).outstanding:
                return
            self._later.popleft()
            self._call(system, what)

    def _call(self, system: str, what: BatchRequest | str) -> None:
        """Let a batch job be submitted, or cancelled by its id."""
        calls = self._calls_of(system)
        if isinstance(what, str):
            calls.cancel(what)
        else:
            calls.call(
                lambda batch: batch.submit(what), partial(self._submitted, system, what.name)
            )

    def _submitted(self, system: str, name: str, batch_id: str | None, why: str) -> None:
        if batch_id is None:
            self.doubt(system, name, REFUSED_S, why)
        else:
            self._on_submission(name, batch_id, "")

    def _look_up(self, system: str, ids: Sequence[str]) -> None:
        if ids and system not in self._looking:
            self._looking.add(system)
            self._calls_of(system).call(partial(_statuses, ids=ids), partial(self._seen, system))
        names = [name for name, doubt in self._doubts.items() if doubt.system == system]
        if names:
            then = partial(self._found, system, names)
            self._calls_of(system).call(lambda batch: batch.find(names), then)

    def _seen(
        self, system: str, seen: tuple[Mapping[str, BatchStatus], float] | None, why: str
    ) -> None:
        self._looking.discard(system)
        self._note_fault(system, why)
        self._on_statuses(*(seen or ({}, time.monotonic())))

    def _found(
        self, system: str, names: Sequence[str], ids: Mapping[str, str] | None, why: str
    ) -> None:
        """Decide on the submissions in doubt that were looked for."""
        self._note_fault(system, why)
        for name in () if ids is None else names:
            doubt = self._doubts.get(name)
            if ids is not None and name in ids:
                self._doubts.pop(name, None)
                self._on_submission(name, ids[name], "")
            elif doubt is not None and doubt.until < time.monotonic():
                del self._doubts[name]
                self._on_submission(name, "", doubt.why)

    def _note_fault(self, system: str, why: str) -> None:
        if why:
            self.faults[system] = why
        else:
            self.faults.pop(system, None)

    def _calls_of(self, system: str) -> BatchCalls:
        if system not in self._calls:
            self._calls[system] = BatchCalls(self._makers[system])
        return self._calls[system]


def _statuses(batch: Slurm, ids: Sequence[str]) -> tuple[Mapping[str, BatchStatus], float]:
    """States of batch jobs, and since when they hold, monotonic seconds."""
    begun = time.monotonic()
    return batch.statuses(ids), begun
