"""Backfilling with k reservations: none is FCFS, one is EASY, all is conservative.

In the order of the queue jobs start while they fit. The first one that does not is the head. Each
of the first k jobs that must wait is promised a start; a later one may start now if, as far as
walltimes tell, it delays none of the promised starts. (An expansion of a running job respects the
first promise, if its policy does so; later ones may have to be made anew.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isfinite
from typing import Any, Literal, TypeAlias

import msgspec

from scheduler.core.orders import Facts, Reason
from scheduler.core.resources import Quantity, processors_of
from scheduler.core.state import Job, JobState
from scheduler.core.view import Start, View
from scheduler.policies import balance, places, promises
from scheduler.policies.balance import Choose, Pick

Pass: TypeAlias = Callable[[View, Start], object]
Alone: TypeAlias = Callable[[View, Start, Job], bool]
Behind: TypeAlias = Callable[[View, Start, Job], None]


class Backfill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Backfilling.

    Parameters
    ----------
    reservations : how many waiting jobs hold one; None is all of them.
    kill_at_reservation : when the time of EASY's reservation has come and jobs that passed the head
        still hold, beyond their estimates, what the head needs, end them (Pascual and
        Miguel-Alonso, Locality-aware ..., section 2). It says something where jobs outlive their
        estimates, that is where they are not killed at the walltime. Nobody is ended in vain:
        only if the head can start then, and the last started first.
    pick : of the jobs that may pass others, take the "first", only such as want the least used
        resource most ("bl"), or the one with which resources are used most evenly ("bb"); see
        `scheduler.policies.balance`. (Where all hold reservations, "bl" takes the others last.)
    fullness : let "bl" and "bb" prefer jobs that fill the machine, the more so the fuller it is.
    reserve : what EASY reserves where the selection may refuse, as contiguous ones do: a "place",
        so that the head is not delayed by those who pass it, or a "number" of processors, as if
        any would do. Then small jobs may go on filling the gaps that the head waits to see joined.
    moments : when later jobs are tried. "contacts": when a job is submitted, and when a running
        one contacts the scheduler at its resize point, which is where the steps of PRIO 3.3 have
        "schedule as many waiting jobs as possible using priority-based backfill"; at other moments,
        such as the end of a job, jobs start in order only. For EASY alone.

    Raises
    ------
    ValueError : fewer than 0 reservations; killing at a reservation that is not EASY's.
    """

    reservations: int | None = 1
    kill_at_reservation: bool = False
    moments: Literal["always", "contacts"] = "always"
    pick: Pick = "first"
    fullness: bool = True
    reserve: Literal["place", "number"] = "place"

    def __post_init__(self) -> None:
        """Check the number."""
        if self.reservations is not None and self.reservations < 0:
            raise ValueError(f"reservations must be >= 0 or null for all, got {self.reservations}")
        if self.kill_at_reservation and self.reservations != 1:
            raise ValueError("kill_at_reservation goes with 1 reservation (EASY) alone")
        if self.moments != "always" and self.reservations != 1:
            raise ValueError(f"moments {self.moments} goes with 1 reservation (EASY) alone")

    @property
    def files(self) -> bool:
        """Whether the first job that fits is asked for, which the queue's trees tell."""
        return self.reservations == 1 and self.pick == "first"

    @property
    def name(self) -> str:
        """The usual name of backfilling with so many reservations."""
        if self.reservations is None:
            return "conservative"
        return {0: "FCFS", 1: "EASY"}.get(self.reservations, f"{self.reservations} reservations")

    def kills(self, view: View) -> Iterator[tuple[Job, Reason]]:
        """Jobs to end now because the head's reservation has come and they hold its processors."""
        if view.placing and self.reserve == "place":
            yield from places.kills(view)
            return
        head = view.head
        if head is None or head.needs <= view.idle or view.shadow(head)[0] > view.now:
            return
        overdue, there = view.overdue, view.idle
        for job in overdue:
            if job.state is JobState.COMPLETING:
                there += view.quantity(job)
        chosen: list[Job] = []
        for job in sorted(overdue, key=lambda job: (job.started_at, job.id), reverse=True):
            if head.needs > there and job.passed and job.state is not JobState.COMPLETING:
                chosen.append(job)
                there += view.quantity(job)
        if head.needs > there:
            return
        facts = {"head": head.id, "needed": view.told(head.needs)}
        unit = "" if view.pooled else " processors"
        text = f"its estimate is over and job {{head}} needs its {{needed}}{unit} now"
        for job in chosen:
            yield job, Reason("EASY kill at reservation", text, facts)

    def way(self, view: View) -> Pass:
        """How a scheduling pass goes: (view, start) -> None starts the jobs that may start now.

        The same until the scenario changes or `view.pooled` or `view.placing` do.
        """
        in_order = _in_order_pooled if view.pooled else _in_order
        rule = f"{self.name} in order"
        if self.reservations == 0:
            return partial(in_order, rule=rule)
        if self.reservations != 1:
            choose = None if self.pick == "first" else self.choose
            return partial(
                promises.schedule, reservations=self.reservations, name=self.name, choose=choose
            )
        everybody = self.pick == "bl"
        behind: Behind = partial(_choose_behind, choose=self.choose, everybody=everybody)
        if not view.pooled and self.pick == "first":
            if view.placing and self.reserve == "place":
                behind = places.behind_the_head
            elif not view.queue.walks:
                behind = _behind_the_head

        def easy(view: View, start: Start) -> None:
            head = in_order(view, start, rule)
            if head is not None and len(view.queue.jobs) > 1 and view.contacted:
                behind(view, start, head)

        return easy

    def alone(self, view: View) -> Alone | None:
        """How to start a job that finds nobody waiting, as `way` would.

        (view, start, job) -> whether it started; None: only `way` can tell. Stands as long.
        """
        if self.reservations not in (0, 1) or view.pooled or view.placing:
            return None
        return partial(_first, rule=f"{self.name} in order")

    def choose(self, view: View, fitting: Sequence[Job]) -> tuple[Job, Facts] | None:
        """Choose one of the jobs that may start now, given in passing order; say by what."""
        if self.pick == "first":
            return fitting[0], {}
        return balance.choose(view, fitting, self.pick, fullness=self.fullness)


def _in_order(view: View, start: Start, rule: str) -> Job | None:
    """Start the first jobs of the queue while they fit; tell the first one that has to wait."""
    queue, installed = view.queue, view.machine.installed
    able = view.able if view.placing else None
    while (job := queue.first(installed, able)) is not None:
        if not _first(view, start, job, rule):
            return job
        if not queue.jobs:
            break
    return None


def _first(view: View, start: Start, job: Job, rule: str) -> bool:
    """Start the first job, if it fits, and tell whether it does."""
    needed, free = job.spec.processors, view.machine.free_count
    if needed > free:
        return False
    text = "first in the queue: {needed} processors wanted, {free} free"
    return start(job, Reason(rule, text, {"needed": needed, "free": free}))


def _behind_the_head(view: View, start: Start, head: Job) -> None:
    """EASY: the head has a reservation, and whatever does not delay it may pass.

    If nothing but arrivals came since the last pass, only they are looked at. Otherwise each
    question for the next one that fits goes to the trees of the queue.
    """
    queue, machine, now = view.queue, view.machine, view.now
    standing = view.standing
    if standing is not None and standing[0] is head:
        _, at, spare = standing
        for job in queue.arrived(now):
            needed = job.spec.processors
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
    while (found := queue.candidate(machine.free_count, at - now, spare)) is not None:
        in_time = found.estimate_s <= at - now
        if found is head or not start(found, _passed(found, head, at, None if in_time else spare)):
            queue.set_aside(found)  # no acceptable processors
        elif not in_time:
            spare -= found.spec.processors
    view.stand(head, at, spare)


def _in_order_pooled(view: View, start: Start, rule: str) -> Job | None:
    """As `_in_order`, where there are further resources."""
    while (job := view.head) is not None:
        needed, free = view.told(job.needs), view.told(view.idle)
        text = "first in the queue: {needed} wanted, {free} free"
        reason = Reason(rule, text, {"needed": needed, "free": free})
        if job.needs > view.idle or not start(job, reason):
            return job
    return None


def _choose_behind(
    view: View, start: Start, head: Job, choose: Choose, *, everybody: bool = False
) -> None:
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
        waiting = [job for job in waiting if job.spec.processors <= free and job.needs <= idle]
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
        text += "; " + balance.TEXT
    return Reason(reason.rule, text, {**told, **facts})


def _passed(job: Job, head: Job, at: float, spare: Quantity | None) -> Reason:
    """Note that the job passes the head, and say why it may."""
    job.passed = True
    facts: dict[str, Any] = {
        "needed": job.spec.processors,
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
