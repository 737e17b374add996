"""What a core does if no further job is submitted, kept for several questions on the same state.

Under FCFS and EASY the last job of the queue does not change what the others do before it starts.
Its forecast may therefore begin shortly before its start, with a state that is recorded on the way.
It is still the core that decides when the job starts: what is recorded of each instant only
excludes instants at which it cannot.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import inf

import numpy as np

from scheduler.core.core import Core
from scheduler.forecasts.forecast import forecast
from scheduler.forecasts.recorded_state import RecordedState
from scheduler.model.events import Event, JobSpec, Wakeup
from scheduler.model.orders import Order, WakeAt
from scheduler.policies.queue_orders.basic import Fcfs
from scheduler.predictions.estimates import UserEstimates
from scheduler.state.records import decode_core

#: States that are recorded on the way, each after the same number of starts.
STATES = 8


class Trajectory:
    """The instants of a forecast, and states on the way.

    Parameters
    ----------
    state : state from which it begins; `last_job_changes_nothing` holds for it.
    limit_s : seconds that the forecast may take; then it is known up to the time that it reached.

    Attributes
    ----------
    limit_s : see above.
    forecast : the forecast of all jobs.
    """

    def __init__(self, state: RecordedState, limit_s: float = inf) -> None:
        self._begin, self.limit_s = state, limit_s
        self._queued = 0  # at the beginning; set at the first instant
        self._changes_at = inf
        self._states: list[RecordedState] = []
        self._instants = array("d")  # in groups of four, see `_observe`
        self.forecast = forecast(state, limit_s=limit_s, observe=self._observe)
        table = np.frombuffer(self._instants).reshape(-1, 4)
        self._at, self._free, self._shadow, self._extra = table.T

    def _observe(
        self, core: Core, now: float, events: Sequence[Event], orders: Sequence[Order]
    ) -> None:
        """Record an instant: free processors, and the reservation of the head."""
        partition = core.partitions[0]
        waiting = len(partition.queue)
        if not self._instants:
            self._queued = waiting
        if self._changes_at == inf and (
            any(type(order) is not WakeAt for order in orders)
            or any(type(event) is not Wakeup for event in events)
        ):
            self._changes_at = now
        free = partition.view.free
        reservation = None if partition.state.placing else partition.view.reservation()
        at, extra = (inf, free) if reservation is None else (reservation.at, reservation.spare)
        self._instants.extend((now, free, at, extra))
        kept = len(self._states)
        if kept < STATES and STATES * waiting <= self._queued * (STATES - kept - 1):
            self._states.append(self._begin.later(core))

    def holds_at(self, now: float) -> bool:
        """Whether the same happens if the state of the beginning still exists at a time, s."""
        return now == self._begin.now or self._begin.now < now < self._changes_at

    def state_before_start(self, spec: JobSpec, until: float) -> RecordedState | None:
        """Return the latest state before the start of a job that is submitted last.

        Parameters
        ----------
        spec : its request.
        until : the state is not later than this time, s.

        Returns
        -------
        None : no state is known to be before the start, except that of the beginning.
        """
        if spec.resizable:
            return None
        in_time = spec.walltime_s <= self._shadow - self._at
        fits = (spec.processors <= self._free) & (in_time | (spec.processors <= self._extra))
        first = float(self._at[np.argmax(fits)]) if fits.any() else inf
        before = [state for state in self._states if state.now < first and state.now <= until]
        return before[-1] if before else None


def last_job_changes_nothing(state: RecordedState) -> bool:
    """Whether a rigid job at the end of the queue has no effect on others before it starts.

    With a limited depth it may have one: whether a pass is limited depends on the queue's length.
    """
    scenario, backfill = state.scenario, state.scenario.backfill
    is_plain = (
        type(scenario.order) is Fcfs
        and type(scenario.estimates) is UserEstimates
        and scenario.scheduling is None
        and scenario.backfill_order is None
        and scenario.redirection is None
        and not scenario.partitions
        and not scenario.queues
        and backfill.reservations in (0, 1)
        and backfill.pick == "first"
        and backfill.moments == "always"
        and backfill.max_jobs is None
        and not backfill.kill_at_reservation
    )
    if not is_plain or any(job.resizable or job.spec.is_placed for job in state.jobs):
        return False
    if any(job.to_come is not None for job in state.jobs):  # it would run to the last of all tasks
        return False
    recorded = decode_core(state.record).partitions[0]
    return recorded.depth is None and not recorded.exclusions
