"""Killing at a reservation: which overdue jobs to end so that the head can start.

When the head's reservation has come and backfilled jobs still hold, beyond their estimates, what it
needs, they are ended (Pascual and Miguel-Alonso, Locality-aware ..., section 2): only if the head
can start then, and the last started first.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Reason
from scheduler.state.earliest_place import EarliestPlace
from scheduler.state.scheduler_state import SchedulerState

RULE = "EASY kill at reservation"


def kills_for_amount(state: SchedulerState) -> Iterator[tuple[Job, Reason]]:
    """Jobs to end now so that enough processors or amounts are free for the head."""
    head = state.head
    if head is None or head.demand <= state.free or state.shadow(head)[0] > state.now:
        return
    free = state.free
    ending, candidates = _overdue(state)
    for job in ending:
        free += state.quantity(job.size, job)
    chosen: list[Job] = []
    for job in candidates:
        if head.demand > free:
            chosen.append(job)
            free += state.quantity(job.size, job)
    if head.demand > free:
        return
    facts = {"head": head.id, "needed": state.format_quantity(head.demand)}
    unit = "" if state.multi_resource else " processors"
    text = f"its estimate is over and job {{head}} needs its {{needed}}{unit} now"
    for job in chosen:
        yield job, Reason(RULE, text, facts)


def kills_for_place(state: SchedulerState) -> Iterator[tuple[Job, Reason]]:
    """Jobs to end now because they hold processors of the place that the head then gets."""
    head = state.head
    ending, candidates = _overdue(state)
    if head is None or not (ending or candidates):
        return
    if EarliestPlace(state, head).at > state.now:
        return
    text = "its estimate is over and job {head} needs the place for its {needed} processors now"
    yield from _kills_in_the_way(state, head, ending, candidates, text)


def _kills_in_the_way(
    state: SchedulerState, head: Job, ending: list[Job], candidates: list[Job], text: str
) -> Iterator[tuple[Job, Reason]]:
    """Candidates that hold processors of the place that the head gets when they end.

    Parameters
    ----------
    ending : jobs that end anyway.
    candidates : jobs that may be ended. The first ones of the list, as few as give the head a
        place, count as ended.
    text : of the reasons.
    """
    space, needed, count = state.machine.space.copy(), head.processors, 0
    for job in ending:
        space.put(state.held(job))
    chosen = state.place(head, space)
    while chosen is None and count < len(candidates):
        space.put(state.held(candidates[count]))
        chosen, count = state.place(head, space), count + 1
    if chosen is None:
        return
    facts = {"head": head.id, "needed": needed}
    for job in candidates[:count]:
        if chosen & state.held(job):
            yield job, Reason(RULE, text, facts)


def _overdue(state: SchedulerState) -> tuple[list[Job], list[Job]]:
    """Overdue jobs that are COMPLETING, and backfilled ones that are not, latest start first."""
    overdue = state.overdue()
    overdue.sort(key=lambda job: (job.started_at, job.id), reverse=True)
    ending = [job for job in overdue if job.state is JobState.COMPLETING]
    candidates = [job for job in overdue if job.backfilled and job not in ending]
    return ending, candidates
