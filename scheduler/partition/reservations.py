"""Advance reservations: which processors one gets, or from when on it could be granted.

A reservation gets processors that no other exclusion and, by the estimates, no running job has at
any time of its interval. Queued jobs have no claim: their reservations move. A running resizable
job counts only with the groups that it cannot leave.
"""

from __future__ import annotations

from math import inf, isfinite
from operator import attrgetter

from scheduler.model.events import ReservationRequested
from scheduler.model.groups import leaving_groups
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Facts, Reason, Refuse, Reserve
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.partition.resizing import Resizes
from scheduler.state.bitsets import bits_of, set_of
from scheduler.state.exclusions import Exclusion
from scheduler.state.reservation_table import ReservationTable, Use
from scheduler.state.scheduler_state import SchedulerState

RULE = "advance reservation"


def decide(
    state: SchedulerState, resizes: Resizes, request: ReservationRequested
) -> Exclusion | Refuse:
    """Find the processors of a reservation, or the reason to refuse it.

    Returns
    -------
    what the reservation excludes; or a refusal with the earliest time (s) from which it could be
    granted, None if that is never
    """
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
        facts = {
            **facts,
            "begin": begin,
            "earliest": at,
            **_obstacles(state, candidates, begin, end),
        }
        text = (
            "{needed} processors are not available from {begin} on, because of {obstacles}; they"
            " are from {earliest} on"
        )
        return _refuse(name, text, facts, at)
    place = state.selection.select(Space(set_of(free), machine.space.network), needed)
    if place is None or not place or bits_of(place) & ~free:
        place = set_of(free).first(needed)
    end = begin + request.duration_s
    return Exclusion(name, place, begin, end, admits=True, users=request.users)


def granted(exclusion: Exclusion) -> Reserve:
    """Order that tells of a reservation that was granted."""
    count = exclusion.processors.count()
    facts: Facts = {"needed": count, "begin": exclusion.begin, "end": exclusion.end}
    text = "{needed} processors are available from {begin} to {end}"
    reason = Reason(RULE, text, facts)
    return Reserve(exclusion.name, exclusion.processors, exclusion.begin, exclusion.end, reason)


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
    state: SchedulerState, resizes: Resizes, wanted: ProcSet, begin: float
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
    others = machine.numbers - wanted
    uses = [Use(bits_of(others), -inf, inf, ())] if others else []
    for exclusion in state.exclusions:
        uses.append(Use(bits_of(exclusion.processors), exclusion.begin, exclusion.end, ()))
    table.exclude(uses)
    return table


def _can_leave(resizes: Resizes, job: Job, begin: float) -> ProcSet:
    """Processors that a resizable job leaves before a time (s) by contracting as far as it can."""
    if job.state is not JobState.RUNNING or not job.resizable or not job.smaller:
        return ProcSet()
    if resizes.scenario.resizing_of(job.spec.queue) is None or resizes.soon(job) > begin:
        return ProcSet()
    groups = leaving_groups(job.own_groups, job.size - job.smaller[-1])
    return ProcSet.union(job.groups[group] for group in groups or ())


def _obstacles(state: SchedulerState, wanted: ProcSet, begin: float, end: float) -> Facts:
    """Name what has some of the processors in an interval."""
    names = [
        f"reservation {exclusion.name}" if exclusion.admits else exclusion.name
        for exclusion in state.exclusions
        if exclusion.overlaps(begin, end) and exclusion.processors & wanted
    ]
    jobs = [
        job.id
        for job in state.live.values()
        if max(job.estimated_end, state.now) > begin and state.held(job) & wanted
    ]
    names += [f"job {number}" for number in jobs[:5]]
    if len(jobs) > 5:
        names.append(f"{len(jobs) - 5} other jobs")
    return {"obstacles": ", ".join(names) or "nodes that are down or drain"}


def _refuse(name: str, text: str, facts: Facts, earliest: float | None = None) -> Refuse:
    if earliest is not None and not isfinite(earliest):
        earliest = None
    return Refuse(name, earliest, Reason(RULE, text, facts))
