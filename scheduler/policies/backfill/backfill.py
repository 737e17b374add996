"""Backfilling with k reservations: none is FCFS, one is EASY, all is conservative.

In the order of the queue jobs start while they fit. The first one that does not is the head. Each
of the first k jobs that must wait is promised a start; a later one may start now if, as far as
walltimes tell, it delays none of the promised starts. (An expansion of a running job respects the
first promise, if its policy does so; later ones may have to be made anew.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Facts, Reason
from scheduler.policies.backfill import balance
from scheduler.policies.backfill import conservative as promises
from scheduler.policies.backfill import easy as passes
from scheduler.policies.backfill import easy_by_place as places
from scheduler.policies.backfill.balance import Pick
from scheduler.state.view import Start, View

Pass: TypeAlias = Callable[[View, Start], object]
Alone: TypeAlias = Callable[[View, Start, Job], bool]


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
        `scheduler.policies.backfill.balance`. (Where all hold reservations, "bl" takes the others
        last.)
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
        return self.reservations not in (0, None) and self.pick == "first"

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
        in_order = passes.in_order_pooled if view.pooled else passes.in_order
        rule = f"{self.name} in order"
        if self.reservations == 0:
            return partial(in_order, rule)
        if self.reservations != 1:
            choose = None if self.pick == "first" else self.choose
            return partial(promises.schedule, self.reservations, self.name, choose)
        everybody = self.pick == "bl"
        behind: passes.Behind = partial(passes.choose_behind, self.choose, everybody)
        if not view.pooled and self.pick == "first":
            if view.placing and self.reserve == "place":
                behind = places.behind_the_head
            elif not view.queue.walks:
                behind = passes.behind_the_head

        return partial(passes.easy, in_order, rule, behind)

    def alone(self, view: View) -> Alone | None:
        """How to start a job that finds nobody waiting, as `way` would.

        (view, start, job) -> whether it started; None: only `way` can tell. Stands as long.
        """
        if self.reservations not in (0, 1) or view.pooled or view.placing:
            return None
        return partial(passes.first, f"{self.name} in order")

    def choose(self, view: View, fitting: Sequence[Job]) -> tuple[Job, Facts] | None:
        """Choose one of the jobs that may start now, given in passing order; say by what."""
        if self.pick == "first":
            return fitting[0], {}
        return balance.choose(view, fitting, self.pick, fullness=self.fullness)
