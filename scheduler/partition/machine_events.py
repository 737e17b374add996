"""What changes the processors that jobs can get: nodes, exclusions and the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    Wakeup,
)
from scheduler.model.job import RESIZING, JobState
from scheduler.model.orders import Reason, Refuse
from scheduler.model.procset import ProcSet
from scheduler.partition import reservations
from scheduler.partition.alarms import Alarms
from scheduler.partition.passes import Passes
from scheduler.partition.queueing import Queueing
from scheduler.partition.resizing import Resizes
from scheduler.state.exclusions import Exclusion, expiry_of, hold_of
from scheduler.state.scheduler_state import SchedulerState


class MachineEvents:
    """The changes by events of nodes, exclusions and the clock.

    Parameters
    ----------
    state : scheduler state.
    alarms : wake-ups of the partition.
    resizes : knows which groups resizable jobs can leave.
    passes : selected again when exclusions have come or gone.
    queueing : the queued jobs.
    """

    def __init__(
        self,
        state: SchedulerState,
        alarms: Alarms,
        resizes: Resizes,
        passes: Passes,
        queueing: Queueing,
    ) -> None:
        self._state, self._alarms, self._resizes = state, alarms, resizes
        self._passes, self._queueing = passes, queueing

    def handlers(self) -> dict[type[Event], Callable[[Any], None]]:
        """Return the method for each type of event."""
        return {
            ClockSet: self.on_clock_set,
            DepthChanged: self.on_depth_changed,
            DrainChanged: self.on_drain_changed,
            NodeJoined: self.on_node_joined,
            NodeLost: self.on_node_lost,
            NodeRemoved: self.on_node_removed,
            ReservationCancelled: self.on_reservation_cancelled,
            ReservationRequested: self.on_reservation_requested,
            Wakeup: self.on_wakeup,
        }

    def on_node_joined(self, event: NodeJoined) -> None:
        """Add the processors and resources of a node."""
        state = self._state
        state.releases_changed()
        state.machine.join(event.node, event.processors, event.resources, event.features)
        if event.resources:
            self._queueing.count_resources()
        for job in state.live.values():
            state.expect(job)
        state.processors_released()
        self._set_expiry(event)

    def _set_expiry(self, event: NodeJoined) -> None:
        """Exclude the processors of a node from the time at which it expires."""
        name, until = expiry_of(event.node), event.until
        if until is None:
            self.include(name)
        else:
            self.exclude(Exclusion(name, self._state.machine.nodes[event.node].processors, until))

    def exclude(self, exclusion: Exclusion) -> None:
        """Exclude processors, and ask for a wake-up at the beginning."""
        self._state.exclude(exclusion)
        self._passes.exclusions_changed()

    def include(self, name: str) -> None:
        """Remove an exclusion, if there is one of this name."""
        if self._state.exclusions.get(name) is not None:
            self._state.include(name)
            self._passes.exclusions_changed()

    def on_node_lost(self, event: NodeLost) -> None:
        """End the jobs on a lost node, also if it was lost before.

        A job that had only its joining group there continues: its driver reports the failed
        expansion. So does a job that may have a restart point: its driver reports that it restarts,
        or the loss again.
        """
        state = self._state
        reason = Reason("node lost", "node {node} is gone", {"node": event.node})
        expiry = state.exclusions.get(expiry_of(event.node))
        if expiry is not None and expiry.begin <= state.now:
            reason = Reason("node expired", "node {node} is given back", {"node": event.node})
        self.include(expiry_of(event.node))
        state.machine.lose(event.node)
        node = state.machine.nodes.get(event.node)
        lost = ProcSet() if node is None else node.processors
        points = event.restart_points
        state.releases_changed()
        for job in list(state.live.values()) if lost else ():
            state.expect(job)
            joining = job.resize.joining if job.resize is not None else ()
            hit = any(held & lost for group, held in job.groups.items() if group not in joining)
            restarts = job.state in RESIZING and (points is None or job.id in points)
            if hit and job.state is not JobState.COMPLETING and not restarts:
                state.kill(job, JobState.NODE_FAIL, reason)

    def on_drain_changed(self, event: DrainChanged) -> None:
        """Withhold the processors of a node from new groups, or offer them again."""
        self._state.releases_changed()
        self._state.machine.set_drain(event.node, event.drains, event.why, event.by)
        if not event.drains:
            self.include(hold_of(event.node))
        self._offers_changed()

    def on_node_removed(self, event: NodeRemoved) -> None:
        """Remove a node from the machine."""
        self._state.releases_changed()
        self._state.machine.remove(event.node)
        self._offers_changed()

    def _offers_changed(self) -> None:
        """Take account of nodes that offer more or fewer processors to new groups."""
        for job in self._state.live.values():
            self._state.expect(job)
        self._state.processors_released()

    def on_reservation_requested(self, event: ReservationRequested) -> None:
        """Grant an advance reservation, or refuse it."""
        state = self._state
        decision = reservations.decide(state, self._resizes, event)
        if isinstance(decision, Refuse):
            state.orders.append(decision)
            return
        self.exclude(decision)
        state.orders.append(reservations.granted(decision))

    def on_reservation_cancelled(self, event: ReservationCancelled) -> None:
        """Make the processors of an advance reservation available to all jobs."""
        self.include(event.name)

    def on_clock_set(self, event: ClockSet) -> None:
        """Move the exclusions, whose times are those of the wall clock."""
        if self._state.exclusions.move(-event.by_s, self._state.now):
            self._state.exclusions_changed()
            self._passes.exclusions_changed()
        self._queueing.move_begins(-event.by_s)

    def advance_exclusions(self) -> None:
        """Schedule by the exclusions of the present time."""
        state = self._state
        if state.exclusions.advance(state.now) or not state.must_exclude():
            state.exclusions_changed()
            self._passes.exclusions_changed()

    def on_wakeup(self, event: Wakeup) -> None:
        """End overdue jobs, extend predictions, ask for the next wake-up."""
        if self._alarms.wake():
            self._state.request_pass()
        self._queueing.advance()

    def on_depth_changed(self, event: DepthChanged) -> None:
        """Limit the depth of passes; the next pass examines the queue to the new depth."""
        self._passes.limit_depth(event.jobs)
        self._state.request_pass()
