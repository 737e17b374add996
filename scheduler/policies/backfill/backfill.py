"""Backfilling with k reservations: none is FCFS, one is EASY, all is conservative.

Jobs start in queue order while they fit. The first one that does not fit is the head. Each of the
first k jobs that must wait has a reservation; a later job may start now if, by the estimates, it
delays none of the reservations. (An expansion of a running job respects the first reservation if
its policy does; later reservations may have to be made again.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import ClassVar, Literal

import msgspec

from reshape.errors import check_ranges
from scheduler.model.events import JobSpec
from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Facts, Reason
from scheduler.policies.backfill import balance
from scheduler.policies.backfill.balance import Pick
from scheduler.policies.backfill.profile_pass import ProfilePass, ReservedForHead
from scheduler.policies.backfill.scheduling_pass import SchedulingPass
from scheduler.policies.backfill.table_pass import TablePass
from scheduler.policies.selection.on_table import table_selection
from scheduler.state.earliest_place import EarliestPlace
from scheduler.state.scheduler_state import SchedulerState
from scheduler.text.used_fields import Needs

#: Rule of the reasons of jobs that are ended for the head.
KILL = "EASY kill at reservation"


def _is_easy(own: Backfill) -> bool:
    return own.reservations == 1


class Backfill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Backfilling.

    Parameters
    ----------
    reservations : how many queued jobs hold one; None is all of them.
    kill_at_reservation : end overdue jobs that started before the head when the time of its
        reservation has come and they hold what it needs; see `Backfill.kills`. Overdue jobs exist
        only if jobs are not killed at their walltime. For EASY only.
    pick : of the jobs that may start before others, take the "first", only jobs whose largest
        demand is for the least-used resource ("bl"), or the one with which resources are used most
        evenly ("bb"); see `scheduler.policies.backfill.balance`. (If all jobs hold reservations,
        "bl" takes the other jobs last.) "penalty" takes the one that shared nodes prolong least,
        for selections on the reservation table; see `scheduler.policies.backfill.table_pass`.
    fullness : let "bl" and "bb" prefer jobs that fill the machine, the more so the fuller it is.
    reserve : what EASY reserves if the selection may refuse, as contiguous ones do: a "place", so
        that no backfilled job delays the head, or a number of processors, and only in a "shortage":
        while enough processors are free for the head, but no place, no later job starts (LOC; waits
        grow).
    moments : when jobs behind the head are tried. "contacts": when a job is submitted, and when a
        running one contacts the scheduler at its resize point, which is where the steps of PRIO 3.3
        have "schedule as many waiting jobs as possible using priority-based backfill"; at other
        moments, such as the end of a job, jobs only start in queue order. For EASY only.
    adaptive_start : smallest share of its request on which a resizable job that states no minimum
        may start if too few processors are free, and to which it may contract (adaptive
        partitioning, PRIO's future work); the job must be submitted with its topology. 1 leaves
        such jobs on what they request.
    max_jobs : depth of a pass: only this number of jobs, the first in queue order, are
        examined, and only they hold reservations; None examines all. Slurm's `bf_max_job_test`.

    Fields that the table `field_needs` names, here and in `Scenario`, apply only to some kinds of
    backfilling; a scenario that sets one of them without effect is refused.

    Raises
    ------
    ValueError : fewer than 0 reservations; `max_jobs` below 1; `adaptive_start` not above 0, or
        above 1.
    """

    field_needs: ClassVar[Mapping[str, Needs]] = {
        "kill_at_reservation": Needs(_is_easy, "with 1 reservation (EASY)"),
        "moments": Needs(_is_easy, "with 1 reservation (EASY)"),
        "pick": Needs(lambda own: own.reservations != 0, "with reservations; FCFS has none"),
        "max_jobs": Needs(lambda own: own.reservations != 0, "with reservations; FCFS has none"),
        "fullness": Needs(lambda own: own.pick in ("bl", "bb"), "with pick bl or bb"),
    }
    reservations: int | None = 1
    kill_at_reservation: bool = False
    moments: Literal["always", "contacts"] = "always"
    pick: Pick = "first"
    fullness: bool = True
    reserve: ReservedForHead = "place"
    max_jobs: int | None = None
    adaptive_start: float = 1.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.reservations is not None and self.reservations < 0:
            raise ValueError(f"reservations must be >= 0 or null for all, got {self.reservations}")
        if self.max_jobs is not None and self.max_jobs < 1:
            raise ValueError(f"max_jobs must be >= 1 or null for all, got {self.max_jobs}")
        check_ranges(self, adaptive_start="> 0 and <= 1")

    def minimum_of(self, spec: JobSpec) -> int:
        """Smallest size of a job; 0: it is rigid, or starts on the requested size alone."""
        if spec.min_processors is not None:
            return spec.min_processors
        if self.adaptive_start >= 1 or spec.topology is None or not spec.resizable:
            return 0
        return ceil(self.adaptive_start * spec.processors)

    @property
    def name(self) -> str:
        """The usual name of backfilling with this many reservations."""
        if self.reservations is None:
            return "conservative"
        return {0: "FCFS", 1: "EASY"}.get(self.reservations, f"{self.reservations} reservations")

    def scheduling_pass(self, state: SchedulerState) -> SchedulingPass:
        """Make the scheduling pass.

        It is valid until the scenario or the state's `multi_resource` or `placing` change.
        """
        choose = self._choose if self.pick in ("bl", "bb") else None
        searches = state.selection.searches_table and not state.machine.counted
        # A pass on numbers reserves a place for the head only if nothing else is to be considered.
        by_numbers = choose is None and not state.multi_resource
        needs_place = state.placing and self.reservations == 1 and self.reserve == "place"
        if state.excluding or searches or (needs_place and not by_numbers):
            return TablePass(
                state,
                self.name,
                table_selection(state.selection, state.machine.space),
                self.reservations,
                self.pick == "penalty",
                choose,
            )
        return ProfilePass(
            state,
            self.name,
            self.reservations,
            self.reserve,
            choose,
            self.pick != "bl",
        )

    def kills(self, state: SchedulerState) -> Iterator[tuple[Job, Reason]]:
        """Overdue jobs to end now because the head's reservation has come.

        When backfilled jobs still hold, beyond their estimates, what the head needs, they are ended
        (Pascual and Miguel-Alonso, Locality-aware ..., section 2): only if the head can start then,
        and the last started first.
        """
        by_place = state.placing and self.reserve == "place"
        return (_kills_for_place if by_place or state.excluding else _kills_for_amount)(state)

    def _choose(self, machine: Machine, fitting: Sequence[Job]) -> tuple[Job, Facts] | None:
        """Choose one of the jobs that may start now, given in backfill order, with its facts."""
        return balance.choose(machine, fitting, self.pick, fullness=self.fullness)


def _kills_for_amount(state: SchedulerState) -> Iterator[tuple[Job, Reason]]:
    """Jobs to end now so that enough processors or amounts are free for the head."""
    head = state.head
    if head is None or head.demand <= state.free or state.shadow(head)[0] > state.now:
        return
    free = state.free
    ending, candidates = _overdue(state)
    for job in ending:
        free += state.quantity(job.size, job)
    to_end: list[Job] = []
    for job in candidates:
        if head.demand > free:
            to_end.append(job)
            free += state.quantity(job.size, job)
    if head.demand > free:
        return
    facts = {"head": head.id, "needed": state.format_quantity(head.demand)}
    unit = "" if state.multi_resource else " processors"
    text = f"its estimate is over and job {{head}} needs its {{needed}}{unit} now"
    for job in to_end:
        yield job, Reason(KILL, text, facts)


def _kills_for_place(state: SchedulerState) -> Iterator[tuple[Job, Reason]]:
    """Jobs to end now because they hold processors of the place that the head then gets.

    As few of the jobs that may be ended count as ended as give the head a place.
    """
    head = state.head
    ending, candidates = _overdue(state)
    if head is None or not (ending or candidates) or EarliestPlace(state, head).at > state.now:
        return
    space, count = state.machine.space.copy(), 0
    for job in ending:
        space.put(state.held(job))
    place = state.place(head, space)
    while place is None and count < len(candidates):
        space.put(state.held(candidates[count]))
        place, count = state.place(head, space), count + 1
    if place is None:
        return
    facts = {"head": head.id, "needed": head.start_least}
    text = "its estimate is over and job {head} needs the place for its {needed} processors now"
    for job in candidates[:count]:
        if place & state.held(job):
            yield job, Reason(KILL, text, facts)


def _overdue(state: SchedulerState) -> tuple[list[Job], list[Job]]:
    """Overdue jobs that are COMPLETING, and backfilled ones that are not, latest start first."""
    overdue = state.overdue()
    overdue.sort(key=lambda job: (job.started_at, job.id), reverse=True)
    ending = [job for job in overdue if job.state is JobState.COMPLETING]
    candidates = [job for job in overdue if job.backfilled and job not in ending]
    return ending, candidates
