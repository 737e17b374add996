"""The rules of `scheduler.policies.resizing.malleable`, compiled: each resize point asks them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scheduler.model.job import Job
from scheduler.model.job_view import JobView
from scheduler.model.orders import Facts, Reason
from scheduler.policies.backfill.own_pass import CurrentPass
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.policies.resizing.targets import Division, NextSize, division_of
from scheduler.state.view import View, own_job

if TYPE_CHECKING:
    from scheduler.policies.resizing.malleable import Malleable

START = "malleable: start beside the smallest sizes of the running jobs"
FREE = "malleable: contract for a queued job"
DIVIDE = "malleable: divide the machine"
KEEP = "malleable: keep the size"


def schedule(rules: Malleable, current: CurrentPass) -> None:
    """Start the queued jobs for which there is room and that fit on what is free."""
    running = [own_job(job) for job in current.running]
    division = Division(running, current.processors, rules.favour_short, current.resizes)
    head, at = None, inf
    for queued in current.in_order():
        job = own_job(queued)
        if current.lacks_place(job):
            continue
        if job.start_least > division.room or current.resources_at(job) > current.now:
            head = job
            break
        division.begin(job)
    if head is not None:
        at = _backfill(rules, current, division, head)
    division.divide()
    needed, lacking = division.waiting, 0
    for job in division.begun:
        needed -= job.start_least
        fits = job.start_least <= current.free
        if fits and _start(rules, current, job, division.target(job), needed):
            continue
        needed += job.start_least
        if not fits:  # else it waits for certain processors
            lacking += job.start_least
            current.expect(job, division.frees(lacking - current.free, current.now))
    if head is not None:
        current.expect(head, at)


def _backfill(rules: Malleable, current: CurrentPass, division: Division, head: Job) -> float:
    """Let jobs take part that do not delay the head; return when there is room for it, s."""
    at, extra = division.shadow(head, current.now)
    at = max(at, current.resources_at(head))
    if division.room < 1:
        return at
    taken = {job.id for job in (head, *division.begun)}
    for queued in current.fitting(division.room, at, extra, taken):
        job = own_job(queued)
        least = job.start_least
        if division.room < 1:
            break
        if job.id in taken or least > division.room:
            continue
        if current.resources_at(job) > current.now or current.lacks_place(job):
            continue
        in_time = current.now + job.estimate_on_s(least) <= at
        if in_time or least <= extra:
            extra -= 0 if in_time else least
            division.begin(job)
            taken.add(job.id)
    return at


def _start(rules: Malleable, current: CurrentPass, job: Job, target: int, others: int) -> bool:
    """Start a job on what later jobs do not need, at least on its smallest size.

    Parameters
    ----------
    others : processors that the jobs after it need.
    """
    free, least = current.free, job.start_least
    size = job.starts_on(min(free, max(least, min(target, free - others))))
    facts: Facts = {"wanted": job.processors, "free": free, "size": size or 0, "part": target}
    text = "{wanted} processors wanted, {free} free"
    if size != job.processors:
        text += "; it starts on {size}, its part of the machine is {part}"
    return size is not None and current.start(job, Reason(START, text, facts), size)


def decide(rules: Malleable, job: JobView, view: View) -> Decision:
    """Move a job towards its part of the machine."""
    own, size = own_job(job), job.size
    if job.history.settled < rules.settle:
        text = "it has not computed {settle} iterations on {size} processors yet"
        return Stay(Reason(KEEP, text, {"size": size, "settle": rules.settle}))
    undone = _undo(rules, own, {"size": size})
    if undone is not None:
        return undone
    division: Division = view.once(division_of, rules.favour_short)
    move = NextSize(own, view, division)
    facts: dict[str, int | float | str]
    facts = {"size": size, "part": move.target, "free": move.free, "waiting": move.waiting}
    if size > move.target:
        return _contract(rules, own, view, division, move.lacking, facts)
    to = move.to
    if to is None or to <= size:
        text = "its part of the machine is {part} processors, {free} are free, and jobs that"
        text += " wait need {waiting}"
        return Stay(Reason(KEEP, text, facts), lasting=True)
    return _expand(rules, own, view, to, facts)


def _undo(rules: Malleable, job: Job, facts: dict[str, int | float | str]) -> Shrink | Stay | None:
    """Undo an expansion that gained too little, and note the sweet spot."""
    history, size = job.history, job.size
    before = history.expanded_from()
    if before is None or history.sweet_spot is not None:
        return None
    if history.benefited(rules.min_benefit) is not False:
        return None
    to = job.contracts_to(before)
    times = history.comparable_s(before, size)
    seen = {**facts, "before": before, "then_s": times[0], "now_s": times[1]}
    text = "an iteration takes {now_s:.4g} s on {size} processors, {then_s:.4g} s on {before}"
    if to is None:
        return Stay(Reason(KEEP, text, seen), sweet_spot=before)
    return Shrink(to, Reason("malleable: undo", text, seen), sweet_spot=before)


def _contract(
    rules: Malleable, job: Job, view: View, division: Division, lacking: int, facts: Facts
) -> Decision:
    """Contract a job that has more than its part if others need it."""
    size, target = job.size, division.target(job)
    to = None
    rule, text = DIVIDE, "from {size} to {to}: its part of the machine is {part} processors"
    if lacking > 0:
        first = division.begun[0]
        facts = {**facts, "first": first.id, "least": first.start_least}
        rule = FREE
        text += "; job {first} waits for {least}, {free} are free"
    if lacking > 0 or size > rules.slack * target:
        to = job.contracts_to(target)
    if to is None or view.failed_lately(job, to):
        text = "it has more than its part of {part} processors, and no job waits for them"
        return Stay(Reason(KEEP, text, facts), lasting=to is None)
    return Shrink(to, Reason(rule, text, {**facts, "to": to}))


def _expand(
    rules: Malleable, job: Job, view: View, to: int, facts: dict[str, int | float | str]
) -> Decision:
    """Expand a job if that earns its pause back."""
    size = job.size
    if view.failed_lately(job, to):
        text = "a resize to {to} failed just now"
        return Stay(Reason(KEEP, text, {**facts, "to": to}))
    end = job.ends_by_progress
    left_s = (end if end < inf else job.estimated_end) - view.now
    gain = 1 - job.slowness(to) / job.slowness(size)
    saved_s, pause_s = left_s * gain, view.pause_s(job) or 0.0
    facts = {**facts, "to": to, "pause_s": pause_s}
    if saved_s < rules.earn_back * pause_s or saved_s <= 0:  # and less with time
        text = "from {size} to {to} would shorten what is left by {percent:.3g} %, which is not"
        text += " worth a pause of {pause_s:.3g} s"
        return Stay(Reason(KEEP, text, {**facts, "percent": 100 * gain}), lasting=True)
    run_s = view.now - (job.started_at or view.now) + left_s
    if job.paused_s + pause_s > rules.most_paused * run_s:
        text = "it was paused for {paused_s:.3g} s, which is long enough: a resize takes"
        text += " {pause_s:.3g} s"
        return Stay(Reason(KEEP, text, {**facts, "paused_s": job.paused_s}), lasting=True)
    text = "from {size} to {to}: its part of the machine is {part} processors, {free} are free;"
    text += " expected to save {saved_s:.3g} s of {left_s:.3g} s"
    return Grow(to, Reason(DIVIDE, text, {**facts, "saved_s": saved_s, "left_s": left_s}))
