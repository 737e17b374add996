"""Pending reasons: why a queued job does not run yet, computed on request."""

from __future__ import annotations

from math import inf, isfinite
from typing import Final, TypeAlias

from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.model.procset import ProcSet
from scheduler.state.exclusions import Exclusion, expiry_of
from scheduler.state.scheduler_state import SchedulerState
from scheduler.state.view import View
from scheduler.text.formats import counted, listed

#: Values of the facts of a reason.
FactsSeen: TypeAlias = dict[str, int | float | str]

#: Most nodes that a reason names.
MOST_NODES: Final = 5
EXCLUDED = "; {excluded} of these are not available until it would end ({exclusions})"


def reason_pending(job: Job, state: SchedulerState, view: View, policy: str = "") -> Reason:
    """Pending reason of a queued job, and why it was queued again if it was.

    Parameters
    ----------
    policy : name of the user-defined scheduling pass; "": there is none.
    """
    reason = _reason_to_wait(job, state, view, policy)
    if not job.requeues:
        return reason
    facts = {**reason.facts, "requeued": job.requeued_why}
    return Reason(reason.rule, f"{reason.text}; requeued: {{requeued}}", facts)


def _reason_to_wait(job: Job, state: SchedulerState, view: View, policy: str) -> Reason:
    """Pending reason of a queued job; its rule is one word, for a narrow column.

    ``TooLarge``: the job requests more than the machine has. ``BadConstraints``: there are too few
    nodes as it requests them. ``NoPlace``: the selection would accept no processors for it even if
    all were idle. ``ReqNodeNotAvail``: it waits for nodes that are down, drain or expire before it
    would end. ``Resources``: it is the head and waits for processors. ``NotExamined``: the
    latest pass did not come to it, because the depth of passes is limited. ``Excluded``: enough is
    free, but an advance reservation or the expiry of a node keeps some of it from this job.
    ``BeginTime``: its own advance reservation has not begun. ``ReservationDeleted``: its advance
    reservation has ended or was cancelled. ``ReservationLimit``: its advance reservation is too
    small or too short. ``ReservationInUse``: jobs that do not belong to its advance reservation
    still hold processors of it. ``Reservation``: it is behind the head and has a reservation.
    ``Priority``: it is behind the head, and either it may not be backfilled or too little is free.
    ``Policy``: enough is free, and a user-defined scheduling pass lets it wait.
    """
    unit = "" if state.multi_resource else " processors"  # several resources name their units
    facts: FactsSeen = {
        "needed": state.format_quantity(job.demand),
        "free": state.format_quantity(state.free),
        "installed": state.format_quantity(state.installed),
    }
    if job.demand > state.installed:
        text = f"{{needed}}{unit} wanted, the machine has {{installed}}"
        return Reason("TooLarge", text, facts)
    if job.spec.reservation:
        reason = _reason_of_reservation(job, state, facts)
        if reason is not None:
            return reason
    nodes = job.spec.nodes
    if nodes is not None:
        facts["nodes"] = str(nodes)
        unit += " of {nodes}"
        facts["there"] = obtainable = state.machine.obtainable(nodes)
        if obtainable < job.start_least:
            text = f"{{needed}}{unit} wanted, there are {{there}}"
            return Reason("BadConstraints", text, facts)
    if not state.can_run(job):
        text = "no place for {needed} processors together, even if all {installed} are idle"
        return Reason("NoPlace", text, facts)
    if not state.can_start(job):
        return _reason_of_nodes(job, state, facts, unit)
    if policy:
        return _reason_of_policy(job, state, facts, unit, policy)
    head = state.head
    assert head is not None, f"job {job.id} is queued and can run, so there is a head"
    if job is head:
        return _reason_of_head(job, state, view, facts, unit)
    reason = _reason_of_pass(job, state, facts, unit)
    if reason is not None:
        return reason
    facts["head"] = head.id
    text = f"behind job {{head}}: {{needed}}{unit} wanted, {{free}} free"
    if _is_excluded(job, state, facts):
        return Reason("Excluded", text + EXCLUDED, facts)
    if view.has_priorities:
        facts["own"], facts["first"] = view.priority(job), view.priority(head)
        text += "; its priority is {own:.5g}, that of job {head} {first:.5g}"
    return Reason("Priority", text, facts)


def _reason_of_nodes(job: Job, state: SchedulerState, facts: FactsSeen, unit: str) -> Reason:
    """Reason of a job that waits for nodes which are down, drain or expire before it would end."""
    request, end = job.spec.nodes, state.now + job.estimate_s
    awaited: list[str] = []
    for node in state.machine.nodes.values():
        if node.removed or not (request is None or request.admits(node.features, node.count)):
            continue
        expiry = state.exclusions.get(expiry_of(node.name))
        if not node.up:
            awaited.append(f"{node.name} is down")
        elif node.drains:
            awaited.append(f"{node.name} drains{f' ({node.why})' if node.why else ''}")
        elif expiry is not None and expiry.begin < end:
            awaited.append(f"{node.name} expires before the job would end")
    facts["awaited"] = _first_of(awaited)
    text = f"{{needed}}{unit} wanted, more than the nodes offer now: {{awaited}}"
    return Reason("ReqNodeNotAvail", text, facts)


def _reason_of_head(
    job: Job, state: SchedulerState, view: View, facts: FactsSeen, unit: str
) -> Reason:
    """Reason of the first job that the machine could run: it waits for processors."""
    reservation = view.reservation()
    rule, text = "Resources", f"{{needed}}{unit} wanted, {{free}} free"
    if job.minimum:
        facts["least"] = job.start_least
        text = f"{{least}} to {text}"
    if _is_excluded(job, state, facts):
        rule, text = "Excluded", text + EXCLUDED
    if reservation is not None and isfinite(reservation.at):
        facts["at"] = min(reservation.at, state.reservations.get(job.id, inf))
        text += "; enough by {at} if walltimes hold"
    return Reason(rule, text + _draining(state, facts), facts)


def _draining(state: SchedulerState, facts: FactsSeen) -> str:
    """Say how many processors are on nodes that drain; empty if there are none."""
    draining = len(state.machine.draining)
    if not draining:
        return ""
    facts["draining"], facts["causes"] = draining, _causes_of_draining(state)
    return "; {draining} are on nodes that drain{causes}"


def _causes_of_draining(state: SchedulerState) -> str:
    """Name nodes that drain for a known reason; empty if there are none."""
    nodes = (node for node in state.machine.nodes.values() if node.up and node.drains and node.why)
    causes = [f"{node.name}: {node.why}" for node in nodes]
    return f" ({_first_of(causes)})" if causes else ""


def _first_of(nodes: list[str]) -> str:
    """List what is said of nodes, of `MOST_NODES` at most."""
    left = len(nodes) - MOST_NODES
    return ", ".join(nodes if left <= 0 else [*nodes[:MOST_NODES], f"and {left} other nodes"])


def _reason_of_pass(job: Job, state: SchedulerState, facts: FactsSeen, unit: str) -> Reason | None:
    """Reason that lies in the latest pass: its depth, or a reservation; None if there is none."""
    if state.window is not None and job not in state.window:
        facts["examined"] = len(state.window)
        text = "the latest pass examined the first {examined} jobs and did not come to this one"
        return Reason("NotExamined", text, facts)
    at = state.reservations.get(job.id)
    if at is not None and isfinite(at):
        facts["at"] = at
        if job.minimum:
            facts["least"] = job.start_least
            text = (
                f"{{least}} to {{needed}}{unit} wanted, and {{least}} expected to be free at {{at}}"
            )
            return Reason("Reservation", text, facts)
        return Reason("Reservation", f"{{needed}}{unit} reserved for {{at}}", facts)
    return None


def _reason_of_policy(
    job: Job, state: SchedulerState, facts: FactsSeen, unit: str, policy: str
) -> Reason:
    """Reason of a job that a user-defined scheduling pass has left in the queue."""
    reason = _reason_of_pass(job, state, facts, unit)
    if reason is not None:
        return reason
    text = f"{{needed}}{unit} wanted, {{free}} free"
    if _is_excluded(job, state, facts):
        return Reason("Excluded", text + EXCLUDED, facts)
    if job.demand > state.free:
        return Reason("Resources", text, facts)
    facts["policy"] = policy
    return Reason("Policy", text + "; {policy} lets it wait", facts)


def _is_excluded(job: Job, state: SchedulerState, facts: FactsSeen) -> bool:
    """Whether exclusions keep free processors from a job, so that too few are left."""
    kept = state.excluded_from(job) & state.machine.free
    if not kept or state.machine.free_count - kept.count() >= job.start_least:
        return False
    until = state.now + job.estimate_s
    names = state.exclusions.names(kept, state.now, until)
    own = job.spec.reservation
    facts["excluded"] = kept.count()
    facts["exclusions"] = ", ".join(names) if not own else f"not in reservation {own}"
    return True


def _reason_of_reservation(job: Job, state: SchedulerState, facts: FactsSeen) -> Reason | None:
    """Reason that lies in the job's own advance reservation; None if there is none."""
    facts["reservation"] = job.spec.reservation
    own = state.exclusions.get(job.spec.reservation)
    if own is None:
        text = "its reservation {reservation} has ended or was cancelled"
        return Reason("ReservationDeleted", text, facts)
    facts["reserved"], facts["begin"], facts["end"] = len(own.processors), own.begin, own.end
    facts["walltime"] = job.estimate_s
    if not state.reservation_suffices(job):
        text = (
            "its reservation {reservation} has {reserved} processors until {end}, it needs {needed}"
            " for {walltime} s"
        )
        return Reason("ReservationLimit", text, facts)
    if state.now < own.begin:
        return Reason("BeginTime", "its reservation {reservation} begins at {begin}", facts)
    return _reason_of_intruders(job, own, state, facts)


def _reason_of_intruders(
    job: Job, own: Exclusion, state: SchedulerState, facts: FactsSeen
) -> Reason | None:
    """Reason that lies in jobs without the reservation on its processors; None if enough is free.

    They exceeded their estimates, or were there before the clock was set.
    """
    if (state.machine.free & own.processors).count() >= job.start_least:
        return None
    held = {
        live.id: state.held(live) & own.processors
        for live in state.live.values()
        if live.spec.reservation != own.name
    }
    inside = [number for number, processors in held.items() if processors]
    if not inside:
        return None
    facts["held"] = ProcSet.union(held.values()).count()
    further = f" and {counted(len(inside) - 5, 'other')}" if len(inside) > 5 else ""
    facts["jobs"] = listed("job", inside[:5]) + further
    text = (
        "others hold {held} of the {reserved} processors of its reservation {reservation}: {jobs}"
    )
    return Reason("ReservationInUse", text, facts)
