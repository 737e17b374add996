"""Strategies of PRIO 3.2: who gives processors back (harvesting), who gets them (allocation).

A scenario calls them with the rule that led there, so that the reason cites it.
"""

from __future__ import annotations

from math import inf

from scheduler.core.groups import leaving_groups
from scheduler.core.orders import Reason
from scheduler.core.state import Job
from scheduler.core.view import View
from scheduler.policies.interface import Grow, Shrink, Stay


def fcfs_contract_priority(
    job: Job, view: View, rule: str, *, useful: bool = False
) -> Shrink | None:
    """Harvest: contract jobs "in the order they arrive at their resize point" (PRIO 3.2).

    Without user priorities all jobs are of the low class, and "a low priority job will be
    contracted to its previous resize point irrespective of the priority of queued jobs". Where the
    paper is silent: the previous configuration is the largest smaller one it ran on that its
    groups can leave; and processors on their way back count, so no job is contracted for queued
    jobs that the idle processors and the contractions under way already suffice for.

    Returns
    -------
    None if the job is not to be contracted.
    """
    head, coming = view.head, view.free + view.freeing
    if head is None or not view.queue.wants_more(coming, at_most=view.installed):
        return None
    if useful:
        coming += sum(other.size - other.spec.processors for other in view.resizable)
        if head.spec.processors > coming:
            return None
    for to in job.history.contractions():
        groups = leaving_groups(job.groups, job.size - to)
        if to >= job.spec.processors and groups is not None:
            facts = {"size": job.size, "to": to, "queued": len(view.queue), "head": head.id}
            facts |= {"needed": head.spec.processors, "free": view.free, "freeing": view.freeing}
            text = (
                "{queued} jobs queued, the first ({head}) wants {needed}; {free} free and {freeing}"
                " on their way do not suffice for all: back from {size} to the previous {to}"
            )
            return Shrink(to, Reason(f"{rule}, FCFS-Contract-Priority", text, facts), groups)
    return None


def max_benefit_priority(
    job: Job, view: View, *, idle: int, window: int, min_potential: float, rule: str, short: str
) -> Grow | Stay:
    """Allocate: let the job grow "that is predicted to benefit most" (PRIO 3.2).

    Idle processors are kept for every job of higher priority and, among equals, for every job of
    higher expand potential that is expected at its resize point before this job's next one; this
    job takes its next size if the rest suffices. The job at the top of the list finds nobody
    before it. A job whose potential is not known yet is unexplored and counts as the highest.

    Parameters
    ----------
    idle : processors that may be given away.
    window : `remap_window_size`, resizes before the potential is known.
    min_potential : threshold the potential must exceed, speedup per processor.
    rule, short : rules to cite when it grows, and when processors are short.
    """
    to = view.next_larger(job)
    if to is None:
        text = "no valid size above {size}, or an expansion to it failed just now"
        return Stay(Reason(rule, text, {"size": job.size}))
    potential = _potential(job, window)
    if potential <= min_potential:
        facts = {"potential": potential, "min_potential": min_potential}
        text = "expand potential {potential:.4g} is not above {min_potential:.4g}"
        return Stay(Reason(f"{rule}, threshold", text, facts))
    needed = to - job.size
    kept = _kept_for_others(job, view, potential, window, min_potential) if needed <= idle else 0
    facts = {"size": job.size, "to": to, "needed": needed}
    facts |= {"free": view.free, "idle": idle, "kept": kept}
    if needed > idle - kept:
        text = (
            "{needed} processors wanted for {to}; {free} idle, {idle} of them not reserved, {kept} "
            "kept for jobs that gain more"
        )
        return Stay(Reason(short, text, facts))
    text = (
        "from {size} to {to}: {needed} of {free} idle processors, {idle} of them not reserved, "
        "{kept} kept for jobs that gain more"
    )
    return Grow(to, Reason(f"{rule}, Max-Benefit-Priority", text, facts))


def _kept_for_others(
    job: Job, view: View, potential: float, window: int, min_potential: float
) -> int:
    """Processors pre-allocated to jobs that come before this one (PRIO 3.2, steps 1 and 2)."""
    priority = job.spec.priority
    next_point = view.now + (job.history.predict_s(job.size) or 0.0)
    kept = 0
    for other in view.resizable:
        history = other.history
        if other.spec.priority < priority or other is job:
            continue
        if other.spec.priority == priority and history.next_point_at >= next_point:
            continue
        theirs = _potential(other, window)
        if theirs <= min_potential or (other.spec.priority == priority and theirs <= potential):
            continue
        to = None if _at_sweet_spot(other) else view.next_larger(other)
        kept += 0 if to is None else to - other.size
    return kept


def _potential(job: Job, window: int) -> float:
    potential = job.history.expand_potential(window)
    return inf if potential is None else potential


def _at_sweet_spot(job: Job) -> bool:
    spot = job.history.sweet_spot
    return spot is not None and job.size >= spot
