"""What a policy may see: the state of the core, for reading only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from reshape.topology import Topology
from scheduler.model.job import Job, JobState
from scheduler.model.machine import Selection, fits
from scheduler.model.orders import Reason
from scheduler.model.priority import Prioritised, running_priority
from scheduler.model.procset import ProcSet
from scheduler.model.resources import Quantity, processors_of
from scheduler.model.space import Space
from scheduler.state.expected_ends import End
from scheduler.state.profile import Availability
from scheduler.state.queue import Queue
from scheduler.state.reserved_place import Place
from scheduler.state.scheduler_state import SchedulerState


class Start(Protocol):
    """Starts a queued job if there are acceptable processors, and tells whether it did."""

    def __call__(self, job: Job, reason: Reason, avoiding: ProcSet = ..., /) -> bool:
        """Start it, on none of the processors to avoid."""


class Reservation(NamedTuple):
    """When a queued job can start at the latest, if walltimes hold.

    Parameters
    ----------
    at : seconds; inf if not even all jobs' ends would suffice (nodes are missing).
    spare : processors then free beyond what the job needs.
    """

    job: int
    at: float
    spare: int


class View:
    """Read-only view of a core at one instant.

    Parameters
    ----------
    ledger : the core's books.
    queue : pending jobs in the scenario's order.
    selection : which processors a group gets.
    retry_after : resize points before a resize that failed is tried again.
    placing : whether the selection may refuse although there are enough free processors.
    prioritised : order of the queue, if it is that of a priority.

    Attributes
    ----------
    machine : nodes and free processors.
    """

    def __init__(
        self,
        ledger: SchedulerState,
        queue: Queue,
        selection: Selection,
        *,
        retry_after: int,
        placing: bool,
        prioritised: Prioritised | None,
    ) -> None:
        self._ledger = ledger
        self.queue = queue
        self.machine = ledger.machine
        self.placing = placing
        self.prioritised = prioritised
        self._selection = selection
        self._retry_after = retry_after

    @property
    def now(self) -> float:
        """Time of the events being handled, seconds."""
        return self._ledger.now

    @property
    def free(self) -> int:
        """Processors nobody holds; at a resize point, what is idle after the scheduling pass."""
        return self.machine.free_count

    @property
    def idle(self) -> Quantity:
        """What nobody holds."""
        return self.machine.free_amounts if self._ledger.pooled else self.machine.free_count

    @property
    def pooled(self) -> bool:
        """Whether there are further resources, so that quantities are `Amounts`."""
        return self._ledger.pooled

    def told(self, quantity: Quantity) -> int | str:
        """Write a quantity for a reason."""
        return self.machine.pools.told(quantity)

    def quantity(self, job: Job) -> Quantity:
        """What a live job holds."""
        return self._ledger.quantity(job.size, job)

    @property
    def freeing(self) -> int:
        """Processors that contractions under way will free."""
        return self._ledger.freeing

    @property
    def installed(self) -> int:
        """Processors of all nodes known, up or not."""
        return self.machine.installed

    @property
    def ends(self) -> Iterator[End]:
        """Expected ends of what is held now, soonest first."""
        return iter(self._ledger.ends)

    @property
    def reservations(self) -> dict[int, float]:
        """Start times promised to queued jobs, by job number; backfilling keeps them here."""
        return self._ledger.reservations

    @property
    def profile(self) -> Availability | None:
        """Free processors over time, promises taken out, as it was kept; early ends changed it.

        None if something else happened or processors are overdue.
        """
        ledger = self._ledger
        if ledger.profile is None or ledger.ends.any_by(ledger.now):
            return None
        ledger.profile.advance(ledger.now)
        return ledger.profile

    def keep(self, profile: Availability) -> None:
        """Keep the profile for the next pass, unless something is overdue in it."""
        ledger = self._ledger
        ledger.profile = None if ledger.ends.any_by(ledger.now) else profile

    @property
    def unforeseen(self) -> bool:
        """Whether processors came back since the last pass, or are expected otherwise."""
        return self._ledger.unforeseen

    @property
    def outfit(self) -> Quantity:
        """What all nodes known hold, up or not."""
        machine = self.machine
        return machine.installed_amounts if self._ledger.pooled else machine.installed

    def able(self, job: Job) -> bool:
        """Whether this machine could run a job at all, if every node was there and idle."""
        if job.needs > self.outfit:
            return False
        return self.machine.able(self._selection, job.processors)

    @property
    def head(self) -> Job | None:
        """First job of the queue that this machine could run at all."""
        able = self.able if self.placing or self.pooled else None
        return self.queue.first(self.installed, able)

    @property
    def resizable(self) -> Iterator[Job]:
        """Jobs that run and may be resized now: no resize of theirs is under way."""
        running = self._ledger.resizable.values()
        return (job for job in running if job.state is JobState.RUNNING)

    def reservation(self) -> Reservation | None:
        """Reservation of the head (the shadow time of EASY), from the expected ends as they are.

        None if no job that could ever run is queued.
        """
        head = self.head
        if head is None:
            return None
        at, left = self.shadow(head)
        spare = processors_of(left)
        if self.placing:  # a place may be there before the further resources are
            place = self.place(head)
            at, spare = max(at, place.at), self.free - place.kept.count()
        return Reservation(head.id, at, spare)

    def place(self, job: Job) -> Place:
        """When there is a place for a job, and which processors that are free now it needs."""
        return Place(self._ledger, self._selection, job)

    def select(self, space: Space, processors: int) -> ProcSet | None:
        """Choose a place in some space, as the scenario's selection does; None: there is none."""
        return self._selection.select(space, processors)

    def fits(self, space: Space, processors: int) -> bool:
        """Whether there is a place in some space."""
        return fits(self._selection, space, processors)

    def held(self, job: Job) -> ProcSet:
        """Processors of a live job that would be free if it ended."""
        return self._ledger.held(job)

    def shadow(self, job: Job) -> tuple[float, Quantity]:
        """When there is enough for a job, in seconds, and what is left over then."""
        return self._ledger.ends.shadow(self.now, self.idle, job.needs)

    @property
    def standing(self) -> tuple[Job, float, Any] | None:
        """Last pass's head, its reservation and what it leaves over, if they still hold.

        (Where places matter: the rule by which others may pass.)

        Nothing but arrivals came in between, and nothing is overdue, so that whoever could not pass
        then cannot pass now.
        """
        ledger = self._ledger
        overdue = ledger.standing is not None and ledger.ends.any_by(ledger.now)
        return None if overdue else ledger.standing

    def stand(self, head: Job, at: float, spare: Any) -> None:
        """Keep for the next pass what `standing` tells."""
        self._ledger.standing = head, at, spare

    @property
    def contacted(self) -> bool:
        """Whether jobs may pass the first one of the queue at this moment (`Backfill.moments`)."""
        return self._ledger.contacted

    @property
    def overdue(self) -> list[Job]:
        """Jobs that should have ended by now, as far as estimates tell, in order of those ends."""
        numbers: dict[int, None] = {}
        for time, job, _ in self._ledger.ends:
            if time > self.now:
                break
            numbers[job] = None
        return [self._ledger.live[job] for job in numbers]

    def priority(self, job: Job) -> float:
        """Priority of PRIO 3.1: by the order of the queue while it waits, then by the time left.

        What was assigned by the user alone, if the order of the queue is no priority's.
        """
        if job.state is not JobState.PENDING:
            return running_priority(job, self.now)
        order = self.prioritised
        return job.spec.priority if order is None else order.priority(job, self.now)

    def spare(self, until: float) -> int:
        """Idle processors that may be held up to `until` without delaying the head's reservation.

        The rule by which EASY lets a job pass the head: it ends in time, or it takes only what the
        head will leave over.
        """
        reservation = self.reservation()
        if reservation is None or until <= reservation.at:
            return self.free
        return min(self.free, reservation.spare)

    def next_larger(self, job: Job) -> int | None:
        """Next valid size above the present one; None if there is none or it failed just now."""
        spec = job.spec
        if not spec.resizable or job.topology is None or topology_fault(job):
            return None
        size = larger_size(job.topology, job.size, spec.processors, spec.max_processors or 0)
        return None if size is None or self.failed_lately(job, size) else size

    def pause_s(self, job: Job) -> float | None:
        """Expected pause of a resize of this job, seconds; None if nothing like it was seen."""
        return job.history.predict_pause_s(self._ledger.moves)

    def failed_lately(self, job: Job, size: int) -> bool:
        """Whether a resize to this size failed fewer than `retry_after` resize points ago."""
        failed = job.history.failures.get(size)
        return failed is not None and job.history.points - failed < self._retry_after


def topology_fault(job: Job) -> str:
    """Why no job of this topology can start on this job's processors; empty if it can."""
    return "" if job.topology is None else _fault(job.topology, job.processors)


@lru_cache(maxsize=1024)
def _fault(topology: Topology, start: int) -> str:
    try:
        topology.allows(start, start)
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=16384)
def larger_size(topology: Topology, size: int, start: int, maximum: int) -> int | None:
    """`Topology.next_larger`, remembered: a decision may ask it of every running job."""
    return topology.next_larger(size, start, maximum)
