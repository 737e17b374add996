"""Scheduler state: jobs, allocations, expected releases and reservations.

The decision core changes the state through the methods of `SchedulerState`; scheduling passes read
it. What a pass computes may be kept for the next one. Two things tell whether it still holds:
`version`, which counts the changes of allocations and of expected releases, and `profile`, which is
None when it must be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, cast

from reshape.errors import ReshapeError
from scheduler.model.events import JobSpec
from scheduler.model.groups import parts
from scheduler.model.history import Moves
from scheduler.model.interfaces import Selection
from scheduler.model.job import FINAL, START, STARTING, Job, JobState
from scheduler.model.machine import CONSERVED, Machine, Node
from scheduler.model.orders import Drop, Kill, Order, Reason
from scheduler.model.procset import ProcSet
from scheduler.model.requests import NodeRequest
from scheduler.model.resources import Quantity
from scheduler.model.space import NONE, Space
from scheduler.state.bitsets import bits_in_blocks, bits_of, set_of
from scheduler.state.derived_jobs import Steps, lent_group
from scheduler.state.exclusions import Blocked, Exclusions
from scheduler.state.profile import Availability, ExpectedReleases
from scheduler.state.queue import Queue

S = JobState
#: A job expands onto a node that expires only if the node remains at least so long, s.
EXPANSION_S = 30.0


class SchedulerState:
    """Jobs and what they hold, and the methods that change it.

    Parameters
    ----------
    machine : nodes and processors.
    queue : pending jobs in queue order.
    selection : chooses the processors of a group.
    jobs : job number -> job, of all partitions, without forgotten jobs.
    placing : whether the selection may refuse although enough processors are free.

    Attributes
    ----------
    machine, queue, selection, jobs, placing : see above.
    now : time of the latest instant handled, s.
    live : the jobs that hold processors.
    resizable : the live jobs that may run on more than one size.
    steps : the steps of job scripts that have not ended.
    releases : expected releases of the allocations.
    freeing : processors that contractions under way will release.
    multi_resource : whether a node or a job ever named a resource besides processors, so that
        quantities are `Amounts` and not numbers of processors.
    reservations : start times reserved for queued jobs as of the last pass, by job number, s.
    profile : free processors over time without all reserved ones; None if unknown.
    version : number of changes of allocations and of expected releases.
    pass_due : whether a scheduling pass may find something to start.
    compression_due : whether reservations may move to an earlier time: since the last pass
        processors were released, or their release is expected at another time.
    backfill_allowed : whether jobs may start before the head in this pass (`Backfill.moments`).
    depth : number of queued jobs that a pass examines (`Backfill.max_jobs`); None: all. Those that
        `can_start` says no to do not count.
    window : jobs that the latest pass examined, in queue order; None: all that were queued.
    was_limited : whether this pass or the one before it has a window.
    examined : jobs that all passes so far have examined one by one.
    resize_costs : what the resizes of all jobs cost.
    exclusions : processors that are not available to all jobs in some time.
    excluding : whether there are exclusions, or queued jobs that may not hold all processors; then
        passes consider which processors a job gets and until when it holds them.
    placed : numbers of such jobs, those that have left the queue lately included.
    watch_start, watches_starts : called when a job has started; whether also for plain jobs.
    orders : the answer to the events that are being handled.
    """

    def __init__(
        self,
        machine: Machine,
        queue: Queue,
        selection: Selection,
        jobs: dict[int, Job],
        *,
        placing: bool,
    ) -> None:
        self.machine = machine
        self.queue = queue
        self.selection = selection
        self.placing = placing
        self.now = -inf
        self.jobs = jobs
        self.live: dict[int, Job] = {}
        self.resizable: dict[int, Job] = {}
        self.steps = Steps()
        self.multi_resource = bool(machine.pools.names)
        self.releases = ExpectedReleases(self.quantity(0))
        self.freeing = 0
        self.reservations: dict[int, float] = {}
        self.profile: Availability | None = None
        self.version = 0
        self.pass_due = True
        self.compression_due = False
        self.backfill_allowed = True
        self.depth: int | None = None
        self.window: list[Job] | None = None
        self.was_limited = False
        self.examined = 0
        self.resize_costs = Moves()
        self.exclusions = Exclusions()
        self.excluding = False
        self.placed: set[int] = set()
        #: `_has_place_when_idle` of each kind of request, until what jobs could get changes.
        self._idle_places: dict[tuple[int, NodeRequest | None, str, int], bool] = {}
        self.orders: list[Order] = []
        self.watch_start: Callable[[Job], None] | None = None
        self.watches_starts = False
        #: Queues whose jobs another resizing policy resizes than that of the scenario.
        self.other_queues: frozenset[str] = frozenset()
        #: What a policy has computed: version of the state, function, its arguments, and result.
        self.computed: tuple[int, Any, tuple[Any, ...], Any] | None = None

    # Quantities.

    def quantity(self, processors: int, job: Job | None = None) -> Quantity:
        """So many processors, with the further resources of a job if there are any."""
        if not self.multi_resource:
            return processors
        return self.machine.pools.demand(processors, {} if job is None else job.spec.resources)

    @property
    def free(self) -> Quantity:
        """Free amount of each resource."""
        machine = self.machine
        return machine.free_amounts if self.multi_resource else machine.free_count

    @property
    def installed(self) -> Quantity:
        """Amount of each resource on all known nodes, up or down."""
        machine = self.machine
        return machine.installed_amounts if self.multi_resource else machine.installed

    def format_quantity(self, quantity: Quantity) -> int | str:
        """Quantity as a fact of a reason: a number, or words for several resources."""
        if not self.multi_resource:
            return cast("int", quantity)
        return self.machine.pools.format_quantity(quantity)

    # Queries of scheduling passes.

    def could_run(self, job: Job) -> bool:
        """Whether the machine has the further resources and the nodes for a job of another one."""
        machine, request = self.machine, job.spec.nodes
        if not machine.pools.has(job.spec.resources):
            return False
        return request is None or machine.obtainable(request) >= job.processors

    def can_run(self, job: Job) -> bool:
        """Whether the machine could run a job if every node was up and idle.

        A job of an advance reservation can run in its interval alone.
        """
        spec, least = job.spec, job.start_least
        demand = self.quantity(least, job) if job.minimum else job.demand
        if demand > self.installed:
            return False
        if spec.reservation and not self._is_in_reservation(job):
            return False
        if spec.nodes is not None and self.machine.obtainable(spec.nodes) < least:
            return False
        return self.machine.can_place(self.selection, least)

    def can_start(self, job: Job) -> bool:
        """Whether a job could start now if nothing else ran: `can_run`, on the nodes that offer.

        A job that cannot start has no earliest start either, until a node or an exclusion changes.
        """
        machine = self.machine
        if not self.can_run(job):
            return False
        if job.start_least > machine.processors:
            return False
        demand = self.quantity(job.start_least, job) if job.minimum else job.demand
        if self.multi_resource and not demand <= machine.up_amounts:
            return False
        if machine.whole and not self.excluding:
            return True
        return machine.counted or self._has_place_when_idle(job)

    def _has_place_when_idle(self, job: Job) -> bool:
        """Whether what the nodes offer has a place for a job, without what it may never hold."""
        machine, spec, least = self.machine, job.spec, job.start_least
        end = self.now + job.estimate_on_s(least)
        never = [
            processors
            for processors, begin, until in self.exclusions.intervals(
                spec.reservation, machine.numbers
            )
            if until == inf and begin < end
        ]
        key = (least, spec.nodes, spec.reservation, len(never))
        has_place = self._idle_places.get(key)
        if has_place is None:
            offered = machine.offered - ProcSet.union(never)
            space = Space(offered, machine.space.network, machine.space.by_node)
            has_place = self._idle_places[key] = self.has_place(job, space)
        return has_place

    def examine_all(self) -> None:
        """Let limited passes test all jobs again: what the jobs could get has changed."""
        self._idle_places.clear()
        self.queue.examine_all()

    def _is_in_reservation(self, job: Job) -> bool:
        """Whether the reservation of a job has begun and suffices for it."""
        own = self.exclusions.get(job.spec.reservation)
        return own is not None and own.begin <= self.now and self.reservation_suffices(job)

    def reservation_suffices(self, job: Job) -> bool:
        """Whether the reservation of a job has enough processors and time left for it."""
        own = self.exclusions.get(job.spec.reservation)
        if own is None or not own.admits or job.processors > own.processors.count():
            return False
        start = own.begin if own.begin > self.now else self.now
        return start + job.estimate_s <= own.end

    def blocked(self, job: Job, start: float, until: float) -> ProcSet:
        """Processors that exclusions keep from a job at any time from `start` to `until` (s)."""
        if not self.excluding:
            return NONE
        return self.exclusions.blocked(job.spec.reservation, start, until, self.machine.numbers)

    def kept_from(self, job: Job) -> ProcSet:
        """Processors that exclusions, or its request of nodes, keep from a job if it gets them now.

        A queued job would hold them for its estimate, a live one until its expected end, an overdue
        one for an unknown time. A live job expands onto nodes that expire before, too, if they
        remain for `EXPANSION_S` and ten iterations; it contracts off them later.
        """
        kept, request = self.excluded_from(job), job.spec.nodes
        if request is None:
            return kept
        if request.whole and job.started_at is not None:  # a step gets no part of another node
            return self.machine.numbers
        return kept | self.machine.numbers - self.admitted(request)

    def excluded_from(self, job: Job) -> ProcSet:
        """Processors that exclusions keep from a job if it gets them now; see `kept_from`."""
        if not self.excluding:
            return NONE
        now, leaves_by = self.now, inf
        if job.started_at is None:
            until = now + job.estimate_s
        else:
            until = job.estimated_end if job.estimated_end > now else inf
            leaves_by = now + EXPANSION_S + 10 * (job.history.time_s(job.size) or 0.0)
        numbers = self.machine.numbers
        return self.exclusions.blocked(job.spec.reservation, now, until, numbers, leaves_by)

    def blocked_intervals(self, reservation: str, request: NodeRequest | None) -> list[Blocked]:
        """What a job may not hold, and when.

        Parameters
        ----------
        reservation : of the job; "": it has none.
        request : what it requests of its nodes; None: nothing.
        """
        everything = self.machine.numbers
        kept = self.exclusions.intervals(reservation, everything)
        if request is not None and (others := everything - self.admitted(request)):
            kept.append((others, -inf, inf))
        return kept

    def has_place(self, job: Job, space: Space) -> bool:
        """Whether a job could start on processors of a space, on its smallest size at least."""
        if job.spec.nodes is not None:
            return self.place(job, space) is not None
        needed = job.start_least
        return space.free.count() >= needed and self.selection.fits(space, needed)

    def place(self, job: Job, space: Space) -> ProcSet | None:
        """Choose processors of a space for the smallest start of a job; None: it has no place."""
        request, needed = job.spec.nodes, job.start_least
        if space.free.count() < needed:
            return None
        if request is None:
            return self.selection.select(space, needed)
        nodes = map(bits_of, self.machine.nodes_for(request))
        bits = bits_in_blocks(bits_of(space.free), nodes, request.block, needed)
        return set_of(bits) if bits else None

    def admitted(self, request: NodeRequest) -> ProcSet:
        """Processors of all nodes that a job may get by its request, up or down."""
        return ProcSet.union(self.machine.nodes_for(request))

    @property
    def head(self) -> Job | None:
        """First job of the queue that the machine could run."""
        return self.queue.first(self.machine.installed, self._check)

    @property
    def _check(self) -> Callable[[Job], bool] | None:
        """`can_run` if it demands more than a comparison of numbers of processors."""
        if self.placing or self.multi_resource or self.excluding:
            return self.can_run
        return None

    def shadow(self, job: Job) -> tuple[float, Quantity]:
        """Earliest time by which enough is free for a job, s, and the amount left over then.

        Enough for a malleable job is the smallest size on which it may start.
        """
        demand = self.quantity(job.start_least, job) if job.minimum else job.demand
        return self.releases.shadow(self.now, self.free, demand)

    def held(self, job: Job) -> ProcSet:
        """Processors of a live job that would be free if it ended."""
        return self.machine.usable(ProcSet.union(job.own_groups.values()))

    def overdue(self) -> list[Job]:
        """Live jobs whose estimates have passed, in order of their estimated ends."""
        numbers: dict[int, None] = {}
        for time, job, _ in self.releases:
            if time > self.now:
                break
            numbers[job] = None
        return [self.live[job] for job in numbers]

    def current_profile(self) -> Availability | None:
        """The kept profile, from now on; None if it is unknown or processors are overdue."""
        profile = self.profile
        if profile is None or self.releases.any_by(self.now):
            return None
        profile.advance(self.now)
        return profile

    # What a change invalidates.

    def allocation_changed(self) -> None:
        """Invalidate what was computed from allocations or useful sizes, but not the profile."""
        self.version += 1

    def releases_changed(self) -> None:
        """Invalidate all that was computed from allocations and expected releases."""
        self.version += 1
        self.profile = None

    def processors_released(self) -> None:
        """Ask for a pass that may start jobs and move reservations to earlier times."""
        self.version += 1
        self.pass_due = self.compression_due = True

    def request_pass(self) -> None:
        """Ask for a scheduling pass."""
        self.pass_due = True

    def cancel_reservation(self, job: Job) -> None:
        """Let other jobs use what was reserved for a job that leaves the queue."""
        self.reservations.pop(job.id, None)
        self.profile = None
        self.pass_due = self.compression_due = True

    def discard_reservations(self) -> None:
        """Drop all reservations: the rules of scheduling have changed."""
        self.reservations.clear()
        self.releases_changed()
        self.pass_due = True

    def exclusions_changed(self) -> None:
        """Ask for a pass: an exclusion was added, has begun or has ended."""
        self.placed = {job.id for job in self.queue.jobs.values() if job.spec.is_placed}
        self.examine_all()
        self.excluding = self.must_exclude()
        self.discard_reservations()

    def must_exclude(self) -> bool:
        """Whether there are exclusions, or queued jobs that may not hold all processors."""
        if len(self.exclusions):
            return True
        self.placed.intersection_update(self.queue.jobs)
        return bool(self.placed)

    def limit_pass(self) -> None:
        """Choose the jobs that the next pass examines: the first ones that could start."""
        depth, before = self.depth, self.window
        self.window = None
        if depth is not None and len(self.queue) > depth:
            self.window = self.queue.first_jobs(depth, self.can_start)
        self.was_limited = self.window is not None or before is not None

    def fitting_jobs(self) -> list[Job]:
        """Jobs that this pass examines and for which enough processors are free, in any order."""
        jobs, free = self.queue.jobs, self.machine.free_count
        if self.window is None:
            return [job for job in jobs.values() if job.start_least <= free]
        return [job for job in self.window if job.start_least <= free and job.id in jobs]

    def end_pass(self) -> None:
        """Note that reservations are up to date, unless processors are overdue.

        Overdue processors may be released at any moment, so the next pass tries to move
        reservations again.
        """
        self.compression_due = bool(self.reservations) and self.releases.any_by(self.now)

    def keep_profile(self, profile: Availability) -> None:
        """Keep the profile for the next pass, unless processors are overdue."""
        self.profile = None if self.releases.any_by(self.now) else profile

    # Changes.

    def start(
        self, job: Job, reason: Reason, avoiding: ProcSet = NONE, size: int | None = None
    ) -> bool:
        """Start a queued job if the selection accepts processors; return whether it did.

        Parameters
        ----------
        avoiding : processors that the job may not get.
        size : number of processors if the job is malleable; None: those that the job requests.
        """
        processors = size
        if processors is None:
            processors = job.processors
            if processors != job.spec.processors:
                raise ReshapeError(
                    f"job {job.id} would start on {processors} processors, and requests"
                    f" {job.spec.processors}: {CONSERVED}"
                )
        allocated = self.machine.allocate(self.selection, processors, avoiding)
        if allocated is None:
            return False
        group = self.grant(job, allocated, processors)
        if len(job.groups) > 1:
            self.orders.append(START(job.id, group, allocated, reason, groups=job.groups.copy()))
        else:
            self.orders.append(START(job.id, group, allocated, reason))
        if self.watch_start is not None and (self.watches_starts or not job.is_plain):
            self.watch_start(job)
        return True

    def grant(self, job: Job, processors: ProcSet, size: int) -> int:
        """Let a pending job hold processors, and return the number of its first group.

        A malleable job holds its smallest size as one group and the others as further ones, so that
        they can leave it.

        Parameters
        ----------
        size : number of processors; fewer than requested if the job is malleable.
        """
        number, now = job.id, self.now
        least = 0 if not job.minimum or job.is_lent else job.valid_from(0) or 0
        if 0 < least < size:
            first, others = self.machine.divided(processors, least)
            group = self.hold(job, first)
            self.hold_parts(job, others, least, size)
        else:
            group = self.hold(job, processors)
        if number in self.queue.jobs:
            self.queue.remove(job)
        if job.minimum:
            job.left = now, job.estimate_s, job.walltime_s
        if size != job.processors:
            job.start_on(size)
            job.demand = self.quantity(size, job)
        self.live[number] = job
        if job.resizable:
            self.resizable[number] = job
        job.state = STARTING  # a legal transition: the job is PENDING
        job.started_at = now
        job.size = size
        job.sizes += ((now, size),)
        if self.multi_resource or job.is_lent:
            self.machine.pools.take(job.spec.resources)
            self.expect(job)
        else:
            usable = size if self.machine.whole else self.machine.count_usable(processors)
            self.releases.expect_first(number, now + job.estimate_s, usable)
        return group

    def hold(self, job: Job, processors: ProcSet) -> int:
        """Let a job hold processors as a new group, and return the group's number."""
        self.allocation_changed()
        group = job.next_group
        job.groups[group] = processors
        job.next_group = group + 1
        return group

    def hold_parts(self, job: Job, processors: ProcSet, size: int, to: int) -> tuple[int, ...]:
        """Let a job hold further processors as groups that can leave it; return their numbers.

        Parameters
        ----------
        size, to : number of processors that it has without these, and with them.
        """
        held = [part.count() for part in job.own_groups.values()][1:]
        groups = []
        for count in parts(size, to, job.valid_sizes, held):
            part, processors = self.machine.divided(processors, count)
            groups.append(self.hold(job, part))
        return tuple(groups)

    def expect(self, job: Job) -> None:
        """Set when a live job is expected to release what it holds; now if it is COMPLETING."""
        if job.is_lent and len(job.groups) == 1:  # its job will release it
            self.releases.forget(job.id)
            return
        self.releases_changed()
        count_usable = self.machine.count_usable
        held = sum(map(count_usable, job.own_groups.values()))
        end = self.now if job.state is S.COMPLETING else job.estimated_end
        if job.state is S.CONTRACTING and job.resize is not None:
            leaving = sum(count_usable(job.groups[g]) for g in job.resize.leaving)
            staying = self.quantity(held - leaving, job)
            self.releases.expect(job.id, (end, staying), (job.resize.at, self.quantity(leaving)))
        else:
            self.releases.expect(job.id, (end, self.quantity(held, job)))

    def end_resize(self, job: Job) -> None:
        """Forget the resize of a job that is under way, if there is one."""
        if job.resize is not None and not job.resize.expands:
            self.freeing -= job.resize.old - job.resize.new
        job.resize = None

    def release_group(self, job: Job, group: int) -> None:
        """Release the processors of one group of a job."""
        self.machine.release(job.groups.pop(group))
        self.releases_changed()
        self.processors_released()

    def vacate(self, job: Job) -> None:
        """Release everything that a live job holds; its steps keep what they have."""
        if job.resize is not None:
            self.end_resize(job)
        number, machine = job.id, self.machine
        if number in self.steps.by_job:
            self.end_steps(job)
            self._hand_over(job)
        own = job.own_groups
        if self.profile is not None and own and job.estimated_end != self.now:
            self._update_profile(job, job.estimated_end)
        for processors in own.values():
            machine.release(processors)
        if self.multi_resource:
            machine.pools.take(job.spec.resources, -1)
        if own:
            self.processors_released()
        if not job.is_plain and job.spec.step_of is not None:
            self.steps.remove(job)
        job.groups.clear()
        job.is_lent = False
        self.releases.forget(number)
        del self.live[number]
        if self.resizable:
            self.resizable.pop(number, None)

    def kill(self, job: Job, cause: JobState, reason: Reason) -> None:
        """Order the end of all processes of a job; `JobEnded` follows when they are gone."""
        self.end_resize(job)
        job.cause, job.why = cause, reason.sentence
        job.become(S.COMPLETING)
        self.expect(job)
        self.compression_due = True
        self.orders.append(Kill(job.id, reason))
        if job.id in self.steps.by_job:
            self.end_steps(job)

    def end_steps(self, job: Job) -> None:
        """Order the end of the steps of a job that ends; those that wait are dropped."""
        text = "job {job} ends: {why}" if job.why else "job {job} ends"
        reason = Reason("step", text, {"job": job.id, "why": job.why})
        for step in self.steps.of(job.id):
            if step.state is S.PENDING:
                self.steps.remove(step)
                step.become(S.CANCELLED)
                step.why, step.ended_at = reason.sentence, self.now
                self.orders.append(Drop(step.id, reason))
            elif step.state is not S.COMPLETING:
                self.kill(step, S.CANCELLED, reason)

    def _hand_over(self, job: Job) -> None:
        """Leave what a job has lent to its steps, which release it at their end."""
        lent = ProcSet.union(lent_group(step) for step in self.steps.of(job.id))
        job.groups = {group: held - lent for group, held in job.groups.items()}
        for step in self.steps.of(job.id):
            step.is_lent = False
            self.expect(step)

    def restore(self, now: float, nodes: Iterable[Node], jobs: Iterable[Job]) -> None:
        """Take over recorded jobs and nodes. Precondition: the state has neither.

        Parameters
        ----------
        now : time of the latest instant that was handled, s.
        nodes : in the order of their first joining, with their processor numbers.
        jobs : queued and live jobs, and ended ones that are still of interest.
        """
        self.now = now
        jobs = list(jobs)
        live = [job for job in jobs if job.state not in FINAL and job.state is not S.PENDING]
        allocated = [processors for job in live for processors in job.groups.values()]
        self.machine.restore(nodes, ProcSet.union(allocated))
        self.jobs.update((job.id, job) for job in jobs)
        for job in sorted(live, key=_start_order):
            self.live[job.id] = job
            if job.resizable:
                self.resizable[job.id] = job
            if job.resize is not None and not job.resize.expands:
                self.freeing += job.resize.old - job.resize.new
            self.machine.pools.take(job.spec.resources)
        for job in sorted(jobs, key=_number):
            if job.spec.step_of is not None and job.state not in FINAL:
                self.steps.add(job)
        for job in sorted(jobs, key=_queue_order):
            if job.state is S.PENDING and job.conditions is None and _queues(job.spec):
                self.machine.pools.register(job.spec.resources)
                self.queue.add(job, now)
        self.count_resources()
        self.exclusions_changed()
        self.processors_released()

    def count_resources(self) -> None:
        """Count all resources that nodes and jobs have named so far."""
        self.multi_resource = len(self.machine.pools.names) > 0
        self.examine_all()
        self.releases = ExpectedReleases(self.quantity(0))
        self.releases_changed()
        for job in (*self.queue.jobs.values(), *self.live.values()):
            job.demand = self.quantity(job.processors, job)
        for job in self.live.values():
            self.expect(job)

    def forget(self, job: int) -> None:
        """Drop the record of an ended job.

        Raises
        ------
        KeyError, ValueError : there is no such job; the job has not ended.
        """
        if self.jobs[job].state not in FINAL:
            raise ValueError(
                f"job {job} is {self.jobs[job].state.name}; only ended jobs can be forgotten"
            )
        del self.jobs[job]

    def _update_profile(self, job: Job, end: float) -> None:
        """Add what an early end releases to the profile; in complex cases drop the profile."""
        profile = self.profile
        assert profile is not None
        if self.now > end or len(job.groups) != 1 or not self.machine.whole:
            self.profile = None
        else:
            profile.advance(self.now)
            profile.cancel(self.quantity(job.size, job), self.now, end - self.now)
            profile.more_free_until = max(profile.more_free_until, end)


def _start_order(job: Job) -> tuple[float, int]:
    return (-inf if job.started_at is None else job.started_at, job.id)


def _queue_order(job: Job) -> tuple[float, int]:
    return (job.queued_at, job.id)


def _number(job: Job) -> int:
    return job.id


def _queues(spec: JobSpec) -> bool:
    """Whether a job of this request enters the queue itself when it is eligible."""
    return spec.array is None and spec.step_of is None
