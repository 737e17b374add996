"""A scheduling pass of FCFS and EASY: who starts in order, and who may pass."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite
from typing import Any, TypeAlias

from scheduler.model.job import Job
from scheduler.model.orders import Facts, Reason
from scheduler.model.resources import Quantity, processors_of
from scheduler.policies.backfill.balance import TEXT, Choose
from scheduler.state.view import Start, View

InOrder: TypeAlias = Callable[[str, View, Start], Job | None]
Behind: TypeAlias = Callable[[View, Start, Job], None]


def easy(in_order: InOrder, rule: str, behind: Behind, view: View, start: Start) -> None:
    """Start jobs in order, then those that may pass the one that has to wait."""
    head = in_order(rule, view, start)
    if head is not None and len(view.queue.jobs) > 1 and view.contacted:
        behind(view, start, head)


def in_order(rule: str, view: View, start: Start) -> Job | None:
    """Start the first jobs of the queue while they fit; tell the first one that has to wait."""
    queue, installed = view.queue, view.machine.installed
    able = view.able if view.placing else None
    while (job := queue.first(installed, able)) is not None:
        if not first(rule, view, start, job):
            return job
        if not queue.jobs:
            break
    return None


def first(rule: str, view: View, start: Start, job: Job) -> bool:
    """Start the first job, if it fits, and tell whether it does."""
    needed, free = job.processors, view.machine.free_count
    if needed > free:
        return False
    text = "first in the queue: {needed} processors wanted, {free} free"
    return start(job, Reason(rule, text, {"needed": needed, "free": free}))


def behind_the_head(view: View, start: Start, head: Job) -> None:
    """EASY: the head has a reservation, and whatever does not delay it may pass.

    If nothing but arrivals came since the last pass, only they are looked at. Otherwise each
    question for the next one that fits goes to the trees of the queue.
    """
    queue, machine, now = view.queue, view.machine, view.now
    standing = view.standing
    if standing is not None and standing[0] is head:
        _, at, spare = standing
        for job in queue.arrived(now):
            needed = job.processors
            in_time = job.estimate_s <= at - now
            if needed > machine.free_count or not (in_time or needed <= spare) or job is head:
                queue.file(job)
            elif start(job, _passed(job, head, at, None if in_time else spare)) and not in_time:
                spare -= needed
        view.stand(head, at, spare)
        return
    if queue.smallest > machine.free_count:
        return  # whatever the reservation is
    queue.file_all()
    at, left = view.shadow(head)
    spare = processors_of(left)
    while True:
        free = machine.free_count
        found = queue.candidate([(min(spare, free), inf), (free, at - now)])
        if found is None:
            break
        in_time = found.estimate_s <= at - now
        if found is head or not start(found, _passed(found, head, at, None if in_time else spare)):
            queue.set_aside(found)  # no acceptable processors
        elif not in_time:
            spare -= found.processors
    view.stand(head, at, spare)


def in_order_pooled(rule: str, view: View, start: Start) -> Job | None:
    """As `in_order`, where there are further resources."""
    while (job := view.head) is not None:
        needed, free = view.told(job.needs), view.told(view.idle)
        text = "first in the queue: {needed} wanted, {free} free"
        reason = Reason(rule, text, {"needed": needed, "free": free})
        if job.needs > view.idle or not start(job, reason):
            return job
    return None


def choose_behind(choose: Choose, everybody: bool, view: View, start: Start, head: Job) -> None:
    """EASY where the trees do not help: further resources, a choice, an order that ages.

    Each waiting job is looked at, after arrivals only those that arrived, and as long as some of
    them fit and may pass, one is chosen. What the head is promised is an amount of everything, not
    a place, even if the selection is one that may refuse.

    Parameters
    ----------
    everybody : look at all of them after arrivals, too: some who may pass were not wanted.
    """
    queue, now, standing = view.queue, view.now, view.standing
    if standing is not None and standing[0] is head and not everybody:
        (_, at, spare), waiting = standing, queue.arrived(now)
    else:
        free, idle, waiting = view.free, view.idle, list(queue.jobs.values())
        waiting = [job for job in waiting if job.processors <= free and job.needs <= idle]
        if not waiting:
            return  # whatever the reservation is
        at, spare = view.shadow(head)
    queue.file_all()
    fitting = _may_pass(waiting, view.idle, at - now, spare)
    fitting = queue.passing([job for job in fitting if job is not head], now)
    while fitting and (found := choose(view, fitting)) is not None:
        job, facts = found
        fitting.remove(job)
        in_time = job.estimate_s <= at - now
        if start(job, _chosen(view, job, head, at, None if in_time else spare, facts)):
            if not in_time:
                spare -= job.needs
            fitting = _may_pass(fitting, view.idle, at - now, spare)
    view.stand(head, at, spare)


def _may_pass(jobs: list[Job], idle: Quantity, within_s: float, spare: Quantity) -> list[Job]:
    """Those that fit now and end in time or take only what the head leaves over."""
    return [
        job
        for job in jobs
        if job.needs <= idle and (job.estimate_s <= within_s or job.needs <= spare)
    ]


def _chosen(
    view: View, job: Job, head: Job, at: float, spare: Quantity | None, facts: Facts
) -> Reason:
    """As `_passed`, with the numbers that chose the job among others."""
    reason = _passed(job, head, at, spare)
    told: dict[str, int | float | str] = {**reason.facts, "needed": view.told(job.needs)}
    if spare is not None:
        told["spare"] = view.told(spare)
    text = reason.text.replace(" processors", "") if view.pooled else reason.text
    if facts:
        text += "; " + TEXT
    return Reason(reason.rule, text, {**told, **facts})


def _passed(job: Job, head: Job, at: float, spare: Quantity | None) -> Reason:
    """Note that the job passes the head, and say why it may."""
    job.passed = True
    facts: dict[str, Any] = {
        "needed": job.processors,
        "walltime": job.estimate_s,
        "head": head.id,
        "at": at if isfinite(at) else "no known time",  # while nodes it needs are away
    }
    if spare is None:
        return Reason(
            "EASY backfill",
            "{needed} processors for {walltime} s end before the reservation of job {head} at {at}",
            facts,
        )
    facts["spare"] = spare
    return Reason(
        "EASY backfill",
        "{needed} of the {spare} processors that job {head} leaves over at its reservation at {at}",
        facts,
    )
