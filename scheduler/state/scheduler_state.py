"""The books of a core: which jobs there are, what the live ones hold, when it is expected back."""

from __future__ import annotations

from math import inf
from typing import Any

from scheduler.model.history import Moves
from scheduler.model.job import FINAL, Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Kill, Order, Reason
from scheduler.model.procset import ProcSet
from scheduler.model.resources import Quantity
from scheduler.state.expected_ends import Ends
from scheduler.state.profile import Availability

S = JobState


class SchedulerState:
    """What is held, and what changes when it is given back.

    Attributes
    ----------
    now : time of the latest instant handled, seconds.
    jobs : job number -> job, those forgotten excepted.
    live : those of them that hold processors.
    resizable : those of the live ones that may run on more than one size.
    machine, ends : nodes and processors, expected ends of the live jobs.
    freeing : processors that contractions under way will free.
    unforeseen : whether, since the last pass, processors came back (even at the time foreseen:
        places that later jobs left may have become of use to earlier ones) or are expected
        at another time.
    pooled : whether a node or a job ever named a further resource, so that quantities are
        `Amounts`, not numbers of processors.
    standing : what the last pass of EASY found (head, its reservation, what it leaves over); None
        if that may have changed since by more than arrivals.
    profile : free processors over time with all reservations taken out, kept up to date by early
        ends; None if it has to be made anew.
    contacted : whether the events that are being handled let jobs pass others; see
        `Backfill.moments`.
    reservations : promised starts of queued jobs, by job number, as of the last pass.
    moves : what the resizes of all jobs cost.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.now = -inf
        self.jobs: dict[int, Job] = {}
        self.live: dict[int, Job] = {}
        self.resizable: dict[int, Job] = {}
        self.pooled = bool(machine.pools.names)
        self.ends = Ends(self.quantity(0))
        self.freeing = 0
        self.unforeseen = False
        self.standing: tuple[Job, float, Any] | None = None
        self.profile: Availability | None = None
        self.contacted = True
        self.reservations: dict[int, float] = {}
        self.moves = Moves()
        self._due = True  # whether a scheduling pass could find something new
        self._orders: list[Order] = []  # the answer to the events that are being handled

    def hold(self, job: Job, processors: ProcSet) -> int:
        """Let a job hold processors as a new group, and tell its number."""
        self.standing = None
        group = job.next_group
        job.groups[group] = processors
        job.next_group = group + 1
        return group

    def held(self, job: Job) -> ProcSet:
        """Processors of a live job that would be free if it ended."""
        return self.machine.coming(ProcSet.union(job.groups.values()))

    def order_also(self, order: Order) -> None:
        """Add an order to the answer."""
        self._orders.append(order)

    def quantity(self, processors: int, job: Job | None = None) -> Quantity:
        """So many processors and the further resources of a job, if there are any."""
        if not self.pooled:
            return processors
        return self.machine.pools.needs(processors, {} if job is None else job.spec.resources)

    def expect(self, job: Job) -> None:
        """Say when what the job holds will be back (at once if it was told to end)."""
        self.standing = self.profile = None
        held = sum(map(self.machine.returning, job.groups.values()))
        end = self.now if job.state is S.COMPLETING else job.estimated_end
        if job.state is S.CONTRACTING and job.resize is not None:
            leaving = sum(self.machine.returning(job.groups[g]) for g in job.resize.leaving)
            staying = self.quantity(held - leaving, job)
            self.ends.expect(job.id, (end, staying), (job.resize.at, self.quantity(leaving)))
        else:
            self.ends.expect(job.id, (end, self.quantity(held, job)))

    def end_resize(self, job: Job) -> None:
        """Forget the resize under way, if there is one."""
        if job.resize is not None and not job.resize.expands:
            self.freeing -= job.resize.old - job.resize.new
        job.resize = None

    def release(self, processors: ProcSet) -> None:
        """Put processors back into the pool; the next pass may use them."""
        self.machine.release(processors)
        self.standing = self.profile = None
        self.unforeseen = self._due = True

    def vacate(self, job: Job) -> None:
        """Take everything back that a live job holds."""
        if job.resize is not None:
            self.end_resize(job)
        if self.profile is not None and job.estimated_end != self.now:
            self._free_early(job, job.estimated_end)
        number, machine = job.id, self.machine
        for processors in job.groups.values():
            machine.release(processors)
        if self.pooled:
            machine.pools.take(job.spec.resources, -1)
        self.standing = None
        self._due = self.unforeseen = True
        job.groups = {}
        self.ends.forget(number)
        del self.live[number]
        if self.resizable:
            self.resizable.pop(number, None)

    def kill(self, job: Job, cause: JobState, reason: Reason) -> None:
        """Have every process of the job ended; its processors come back with `JobEnded`."""
        self.end_resize(job)
        job.cause, job.why = cause, reason.sentence
        job.become(S.COMPLETING)
        self.expect(job)
        self.unforeseen = True
        self._orders.append(Kill(job.id, reason))

    def forget(self, job: int) -> None:
        """Drop the record of a finished job, so that a long life needs no more memory.

        Raises
        ------
        KeyError, ValueError : no such job; the job has not ended.
        """
        if self.jobs[job].state not in FINAL:
            raise ValueError(f"job {job} is {self.jobs[job].state.name}, only ended jobs go")
        del self.jobs[job]

    def _free_early(self, job: Job, end: float) -> None:
        """Let the profile know that a job ended before its estimate, if it is as simple as that."""
        assert self.profile is not None
        if self.now > end or len(job.groups) != 1 or not self.machine.whole:
            self.profile = None
        else:
            self.profile.advance(self.now)
            self.profile.lift(self.quantity(job.size, job), self.now, end - self.now)
            self.profile.gained = max(self.profile.gained, end)
