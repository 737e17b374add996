"""Pending reasons: why a queued job does not run yet, computed on request."""

from __future__ import annotations

from math import isfinite

from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import View


def reason_pending(job: Job, state: SchedulerState, view: View) -> Reason:
    """Pending reason of a queued job, and why it was queued again if it was."""
    reason = _reason_to_wait(job, state, view)
    if not job.requeues:
        return reason
    facts = {**reason.facts, "requeued": job.requeued_why}
    return Reason(reason.rule, f"{reason.text}; requeued: {{requeued}}", facts)


def _reason_to_wait(job: Job, state: SchedulerState, view: View) -> Reason:
    """Pending reason of a queued job; its rule is one word, for a narrow column.

    ``TooLarge``: the job requests more than the machine has. ``NoPlace``: the selection would
    accept no processors for it even if all were idle. ``Resources``: it is the head and waits for
    processors. ``NotExamined``: the latest pass did not come to it, because the depth of passes is
    limited. ``Reservation``: it is behind the head and has a reservation. ``Priority``: it is
    behind the head, and either it may not be backfilled or too little is free.
    """
    unit = "" if state.multi_resource else " processors"  # several resources name their units
    facts: dict[str, int | float | str] = {
        "needed": state.format_quantity(job.demand),
        "free": state.format_quantity(state.free),
        "installed": state.format_quantity(state.installed),
    }
    if job.demand > state.installed:
        text = f"{{needed}}{unit} wanted, the machine has {{installed}}"
        return Reason("TooLarge", text, facts)
    if not state.can_run(job):
        text = "no place for {needed} processors together, even if all {installed} are idle"
        return Reason("NoPlace", text, facts)
    head = state.head
    assert head is not None, f"job {job.id} is queued and can run, so there is a head"
    if job is head:
        reservation = view.reservation()
        text = f"{{needed}}{unit} wanted, {{free}} free"
        if reservation is not None and isfinite(reservation.at):
            facts["at"] = reservation.at
            text += "; enough by {at} if walltimes hold"
        draining = len(state.machine.draining)
        if draining:
            facts["draining"] = draining
            text += "; {draining} are on nodes that drain"
        return Reason("Resources", text, facts)
    if state.window is not None and job not in state.window:
        facts["examined"] = len(state.window)
        text = "the latest pass examined the first {examined} jobs and did not come to this one"
        return Reason("NotExamined", text, facts)
    at = state.reservations.get(job.id)
    if at is not None and isfinite(at):
        facts["at"] = at
        return Reason("Reservation", f"{{needed}}{unit} reserved for {{at}}", facts)
    facts["head"] = head.id
    text = f"behind job {{head}}: {{needed}}{unit} wanted, {{free}} free"
    if view.has_priorities:
        facts["own"], facts["first"] = view.priority(job), view.priority(head)
        text += "; its priority is {own:.5g}, that of job {head} {first:.5g}"
    return Reason("Priority", text, facts)
