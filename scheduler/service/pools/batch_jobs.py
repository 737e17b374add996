"""The batch jobs of all pools: submissions, cancellations and look-ups.

Each call of Slurm takes a while, so a thread makes them: the loop of the service puts requests in
and is handed their answers, and neither waits. `Slurm` itself keeps the interval between two of its
commands. Whatever a call raises becomes its result, because no error may end the thread.

Submissions and cancellations are made one tick after they were asked for, when the transaction that
notes them is written. A submission whose outcome is not known (the service ended meanwhile, or
Slurm did not answer, or answered with an error) is in doubt: its batch job is looked for by its
name, so that it is neither forgotten nor submitted again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from reshape.errors import ReshapeError
from scheduler.node.slurm import BatchRequest, BatchStatus, Slurm

log = logging.getLogger(__name__)


#: Seconds between two look-ups, each of all batch jobs.
LOOK_UP_S = 5.0
#: Seconds for which a submission is in doubt: after a refusal, and after a restart of the service,
#: whose predecessor may have left a command that still runs.
REFUSED_S, INTERRUPTED_S = 10.0, 120.0


T = TypeVar("T")


class BatchJobs:
    """Batch jobs of all pools.

    Parameters
    ----------
    slurm : takes them; only the thread of this object uses it.
    on_submission : called with the name of a batch job that was submitted, its id, and "". Without
        an id there is no such batch job; the last argument says why it was refused, if it was.
    on_statuses : called with states of batch jobs, by id, as they were at a time (monotonic
        seconds) or later; there are none if Slurm has not answered.

    Attributes
    ----------
    fault : why Slurm does not answer look-ups; empty if it does.
    """

    def __init__(
        self,
        slurm: Slurm,
        on_submission: Callable[[str, str, str], None],
        on_statuses: Callable[[Mapping[str, BatchStatus], float], None],
    ) -> None:
        self._slurm = slurm
        self._requests: queue.SimpleQueue[
            tuple[Callable[[Slurm], Any], Callable[[Any, str], None]] | None
        ] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # A daemon: a call that hangs must not keep the service from ending.
        self._thread = threading.Thread(target=self._run, name="batch-calls", daemon=True)
        self._on_submission, self._on_statuses = on_submission, on_statuses
        self._later: deque[BatchRequest | str] = deque()  # to submit, and ids of those to cancel
        self._is_looking = False  # whether the last look-up has not been answered
        # By name of the batch job: until when it is looked for, monotonic seconds, and why.
        self._doubts: dict[str, tuple[float, str]] = {}
        self._looked_up_at = 0.0  # monotonic seconds
        self.fault = ""

    def try_out(self, request: BatchRequest, then: Callable[[str | None, str], None]) -> None:
        """Ask whether a batch job would be accepted.

        Parameters
        ----------
        then : called with the answer of Slurm, or with None and why it refuses.
        """
        self._ask(lambda slurm: slurm.check(request), then)

    def submit(self, request: BatchRequest) -> None:
        """Submit a batch job; `on_submission` is called."""
        self._later.append(request)

    def cancel(self, batch_id: str) -> None:
        """Cancel a batch job, unless that is due already; its end is seen by look-ups."""
        if batch_id not in self._later:
            self._later.appendleft(batch_id)

    def doubt(self, name: str, for_s: float = INTERRUPTED_S, why: str = "") -> None:
        """Look for a batch job of this name; `on_submission` is called."""
        self._doubts[name] = time.monotonic() + for_s, why

    def on_tick(self, ids: Callable[[], Sequence[str]]) -> None:
        """Make the calls that were asked for before, look batch jobs up, and hand over answers.

        Parameters
        ----------
        ids : returns the ids of the batch jobs to look up.
        """
        # The calls that do not begin at once wait here, so that a look-up overtakes them.
        for _ in range(len(self._later)):
            if self._requests.qsize():
                break
            self._call(self._later.popleft())
        if time.monotonic() - self._looked_up_at > LOOK_UP_S:
            self._looked_up_at = time.monotonic()
            self._look_up(ids())
        while not self._results.empty():
            self._results.get()()

    def close(self, wait_s: float) -> None:
        """Make the cancellations that are due, for `wait_s` at most, and no further calls."""
        for due in self._later:
            if isinstance(due, str):
                self._call(due)
        self._requests.put(None)
        if self._thread.ident:
            self._thread.join(wait_s)

    def _ask(self, ask: Callable[[Slurm], T], then: Callable[[T | None, str], None]) -> None:
        """Let the thread ask Slurm; `then` gets the answer, or None and why there is none."""
        if not self._thread.ident:
            self._thread.start()
        self._requests.put((ask, then))

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            ask, then = request
            try:
                result = partial(then, ask(self._slurm), "")
            except Exception as error:
                result = partial(then, None, _why(error))
            self._results.put(result)

    def _call(self, due: BatchRequest | str) -> None:
        """Let a batch job be submitted, or cancelled by its id."""
        if isinstance(due, str):
            self._ask(partial(_cancel, batch_id=due), lambda *_: None)
        else:
            self._ask(lambda slurm: slurm.submit(due), partial(self._submitted, due.name))

    def _submitted(self, name: str, batch_id: str | None, why: str) -> None:
        if batch_id is None:
            self.doubt(name, REFUSED_S, why)
        else:
            self._on_submission(name, batch_id, "")

    def _look_up(self, ids: Sequence[str]) -> None:
        if ids and not self._is_looking:
            self._is_looking = True
            self._ask(partial(_statuses, ids=ids), self._seen)
        if names := [*self._doubts]:
            self._ask(lambda slurm: slurm.find(names), partial(self._found, names))

    def _seen(self, seen: tuple[Mapping[str, BatchStatus], float] | None, why: str) -> None:
        self._is_looking, self.fault = False, why
        self._on_statuses(*(seen or ({}, time.monotonic())))

    def _found(self, names: Sequence[str], ids: Mapping[str, str] | None, why: str) -> None:
        """Decide on the submissions in doubt that were looked for."""
        self.fault = why
        if ids is None:
            return
        for name in names:
            doubt = self._doubts.get(name)
            if name in ids:
                self._doubts.pop(name, None)
                self._on_submission(name, ids[name], "")
            elif doubt is not None and doubt[0] < time.monotonic():
                del self._doubts[name]
                self._on_submission(name, "", doubt[1])


def _why(error: Exception) -> str:
    """Return the message of an error; of an unexpected one also its type, and log it."""
    if isinstance(error, ReshapeError):
        return str(error)
    log.error("a call of Slurm raised an exception", exc_info=error)
    return repr(error)


def _cancel(slurm: Slurm, batch_id: str) -> None:
    """Cancel a batch job, and log an error; nothing waits for it, because look-ups show the end."""
    try:
        slurm.cancel([batch_id])
    except Exception as error:
        log.error("cannot cancel batch job %s: %s", batch_id, _why(error))


def _statuses(slurm: Slurm, ids: Sequence[str]) -> tuple[Mapping[str, BatchStatus], float]:
    """States of batch jobs, and since when they hold, monotonic seconds."""
    begun = time.monotonic()
    return slurm.statuses(ids), begun
