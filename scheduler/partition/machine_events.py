"""What changes the processors that jobs can get: nodes, exclusions and the time.

An advance reservation gets processors that no other exclusion and, by the estimates, no running job
has at any time of its interval. Queued jobs have no claim: their reservations move. A running
resizable job counts only with the groups that it cannot leave.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import attrgetter
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
    SilenceChanged,
    Wakeup,
)
from scheduler.model.groups import leaving_groups
from scheduler.model.job import RESIZING, Job, JobState
from scheduler.model.orders import Facts, Reason, Refuse, Reserve
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.partition.alarms import Alarms
from scheduler.partition.passes import Passes
from scheduler.partition.queueing import Queueing
from scheduler.partition.resizing import Resizes
from scheduler.state.bitsets import bits_of, set_of
from scheduler.state.exclusions import Exclusion, expiry_of, hold_of, silent_agent_of
from scheduler.state.reservation_table import ReservationTable, Use
from scheduler.state.scheduler_state import SchedulerState

RULE = "advance reservation"


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
            SilenceChanged: self.on_silence_changed,
            Wakeup: self.on_wakeup,
        }

    def on_node_joined(self, event: NodeJoined) -> None:
        """Add the processors and resources of a node."""
        machine = self._state.machine
        machine.join(event.node, event.processors, event.resources, event.features)
        if event.resources:
            self._queueing.count_resources()
        self._offers_changed()
        self.include(silent_agent_of(event.node))
        self._set_expiry(event)

    def _set_expiry(self, event: NodeJoined) -> None:
        """Exclude the processors of a node from the time at which it expires."""
        name, until = expiry_of(event.node), event.until
        if until is None:
            self.include(name)
        else:
            self.exclude(Exclusion(name, self._state.machine.nodes[event.node].processors, until))

    def exclude(self, exclusion: Exclusion) -> None:
        """Add an exclusion, or replace the one of its name.

        Raises
        ------
        ValueError : the processors of the machine are counted, not distinguished.
        """
        if self._state.machine.counted:
            raise ValueError(
                f"exclusion {exclusion.name!r} needs a machine whose processors are distinguished"
            )
        self._state.exclusions.put(exclusion, self._state.now)
        self._exclusions_changed()

    def include(self, name: str) -> None:
        """Remove an exclusion, if there is one of this name."""
        if self._state.exclusions.remove(name, self._state.now):
            self._exclusions_changed()

    def _exclusions_changed(self) -> None:
        """Schedule by other exclusions, and ask for a wake-up at their next change."""
        self._state.exclusions_changed()
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
        self.include(silent_agent_of(event.node))
        state.machine.lose(event.node)
        node = state.machine.nodes.get(event.node)
        lost = ProcSet() if node is None else node.processors
        points = event.restart_points
        state.releases_changed()
        state.examine_all()
        for job in list(state.live.values()) if lost else ():
            state.expect(job)
            joining = job.resize.joining if job.resize is not None else ()
            hit = any(held & lost for group, held in job.groups.items() if group not in joining)
            restarts = job.state in RESIZING and (points is None or job.id in points)
            hit = hit and job.id not in event.ended
            if hit and job.state is not JobState.COMPLETING and not restarts:
                state.kill(job, JobState.NODE_FAIL, reason)

    def on_drain_changed(self, event: DrainChanged) -> None:
        """Withhold the processors of a node from new groups, or offer them again."""
        self._state.machine.set_drain(event.node, event.drains, event.why, event.by)
        if not event.drains:
            self.include(hold_of(event.node))
            silence = self._state.exclusions.get(silent_agent_of(event.node))
            if silence is not None:  # what it offers now was not free before
                self._exclude_silent(event.node, silence.end)
        self._offers_changed()

    def on_silence_changed(self, event: SilenceChanged) -> None:
        """Start nothing on the free processors of a silent node, or offer them again."""
        if event.until is None:
            self.include(silent_agent_of(event.node))
        elif event.until > self._state.now:
            self._exclude_silent(event.node, event.until)

    def _exclude_silent(self, node: str, until: float) -> None:
        free, now = self.free_of(node), self._state.now
        self.exclude(Exclusion(silent_agent_of(node), free, now, until))

    def free_of(self, name: str) -> ProcSet:
        """Free processors of a node."""
        node = self._state.machine.nodes.get(name)
        return ProcSet() if node is None else node.processors & self._state.machine.free

    def on_node_removed(self, event: NodeRemoved) -> None:
        """Remove a node from the machine."""
        self._state.machine.remove(event.node)
        self._offers_changed()

    def _offers_changed(self) -> None:
        """Take account of nodes that offer more or fewer processors to new groups."""
        state = self._state
        state.releases_changed()
        state.examine_all()
        for job in state.live.values():
            state.expect(job)
        state.processors_released()

    def on_reservation_requested(self, event: ReservationRequested) -> None:
        """Grant an advance reservation, or refuse it."""
        state = self._state
        decision = _reserved(state, self._resizes, event)
        if isinstance(decision, Refuse):
            state.orders.append(decision)
            return
        self.exclude(decision)
        place, begin, end = decision.processors, decision.begin, decision.end
        facts: Facts = {"needed": place.count(), "begin": begin, "end": end}
        text = "{needed} processors are available from {begin} to {end}"
        state.orders.append(Reserve(event.name, place, begin, end, Reason(RULE, text, facts)))

    def on_reservation_cancelled(self, event: ReservationCancelled) -> None:
        """Make the processors of an advance reservation available to all jobs."""
        self.include(event.name)

    def on_clock_set(self, event: ClockSet) -> None:
        """Move the exclusions, whose times are those of the wall clock."""
        if self._state.exclusions.move(-event.by_s, self._state.now):
            self._exclusions_changed()
        self._queueing.move_begins(-event.by_s)

    def advance_exclusions(self) -> None:
        """Schedule by the exclusions of the present time."""
        state = self._state
        if state.exclusions.advance(state.now) or not state.must_exclude():
            self._exclusions_changed()

    def on_wakeup(self, event: Wakeup) -> None:
        """End overdue jobs, extend predictions, ask for the next wake-up."""
        if self._alarms.wake():
            self._state.request_pass()
        self._queueing.advance()

    def on_depth_changed(self, event: DepthChanged) -> None:
        """Limit the depth of passes; the next pass examines the queue to the new depth."""
        self._passes.limit_depth(event.jobs)
        self._state.request_pass()


def _reserved(
    state: SchedulerState, resizes: Resizes, request: ReservationRequested
) -> Exclusion | Refuse:
    """Find the processors of an advance reservation, or the reason to refuse it."""
    name = request.name
    if state.exclusions.get(name) is not None:
        return _refuse(name, "there is a reservation {name} already", {"name": name})
    machine = state.machine
    if machine.counted:
        return _refuse(name, "the processors of the machine are counted, not distinguished", {})
    unknown = [node for node in request.nodes if node not in machine.nodes]
    if unknown:
        return _refuse(name, "there is no node {node}", {"node": unknown[0]})
    candidates = machine.numbers
    if request.nodes:
        candidates = ProcSet.union(machine.nodes[node].processors for node in request.nodes)
    needed = len(candidates) if request.nodes else request.processors
    facts: Facts = {"needed": needed, "installed": machine.installed}
    if needed > machine.installed:
        return _refuse(name, "{needed} processors wanted, the machine has {installed}", facts)
    begin = max(request.begin, state.now)
    times = _table(state, resizes, candidates, begin).free(needed, request.duration_s, begin)
    at, free = next(times, (inf, 0))
    if at == inf:
        text = "not all of {needed} processors are available for so long at any time"
        return _refuse(name, text, {**facts, **_obstacles(state, candidates, begin, inf)})
    if at > begin:
        end = begin + request.duration_s
        obstacles = _obstacles(state, candidates, begin, end)
        facts = {**facts, "begin": begin, "earliest": at, **obstacles}
        text = (
            "{needed} processors are not available from {begin} on, because of {obstacles}; they"
            " are from {earliest} on"
        )
        return _refuse(name, text, facts, at)
    space = Space(set_of(free), machine.space.network, machine.space.by_node)
    place = state.selection.select(space, needed)
    if place is None or not place or bits_of(place) & ~free:
        place = set_of(free).first(needed)
    end = begin + request.duration_s
    return Exclusion(name, place, begin, end, admits=True, users=request.users)


def in_the_way(state: SchedulerState, resizes: Resizes, job: Job, until: float) -> Exclusion | None:
    """First reservation, or expiry of a node, that a live job would overrun if it ended at `until`.

    Its own reservation is none of them. A resizable job leaves processors, as far as it can.
    """
    held = state.steps.held(job)
    for exclusion in sorted(state.exclusions, key=attrgetter("begin")):
        counts = exclusion.admits or exclusion.expires
        if not counts or exclusion.name == job.spec.reservation:
            continue
        if exclusion.overlaps(state.now, until):
            stays = held - _can_leave(resizes, job, exclusion.begin)
            if stays & exclusion.processors:
                return exclusion
    return None


def _table(
    state: SchedulerState, resizes: Resizes, processors: ProcSet, begin: float
) -> ReservationTable:
    """Table of the running jobs and all exclusions, for a search among some processors."""
    machine = state.machine
    table = ReservationTable(machine.free)
    table.advance(state.now)
    for number, job in state.live.items():
        end = -inf if job.state is JobState.COMPLETING else job.estimated_end
        held = state.held(job)
        can_leave = _can_leave(resizes, job, begin)
        table.run(number, held - can_leave, end)
        table.free_bits |= bits_of(held & can_leave)
    others = machine.numbers - processors
    uses = [Use(bits_of(others), -inf, inf, ())] if others else []
    for exclusion in state.exclusions:
        uses.append(Use(bits_of(exclusion.processors), exclusion.begin, exclusion.end, ()))
    table.exclude(uses)
    return table


def _can_leave(resizes: Resizes, job: Job, begin: float) -> ProcSet:
    """Processors that a resizable job leaves before a time (s) by contracting as far as it can."""
    if job.state is not JobState.RUNNING or not job.resizable:
        return ProcSet()
    if resizes.scenario.resizing_of(job.spec.queue) is None or resizes.soon(job) > begin:
        return ProcSet()
    to = job.contracts_to(job.least)
    if to is None:
        return ProcSet()
    groups = leaving_groups(job.leavable, job.size - to)
    return ProcSet.union(job.groups[group] for group in groups or ())


def _obstacles(state: SchedulerState, processors: ProcSet, begin: float, end: float) -> Facts:
    """Name what has some of the processors in an interval."""
    names = [
        f"reservation {exclusion.name}" if exclusion.admits else exclusion.name
        for exclusion in state.exclusions
        if exclusion.overlaps(begin, end) and exclusion.processors & processors
    ]
    jobs = [
        job.id
        for job in state.live.values()
        if max(job.estimated_end, state.now) > begin and state.held(job) & processors
    ]
    names += [f"job {number}" for number in jobs[:5]]
    if len(jobs) > 5:
        names.append(f"{len(jobs) - 5} other jobs")
    return {"obstacles": ", ".join(names) or "nodes that are down or drain"}


def _refuse(name: str, text: str, facts: Facts, earliest: float | None = None) -> Refuse:
    return Refuse(name, earliest, Reason(RULE, text, facts))
