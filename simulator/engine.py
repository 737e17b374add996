"""The simulator's driver of the decision core: a virtual clock and jobs that only pass time.

Submissions come from the workload in order; an agenda says what else will happen at which time. The
events of one instant are handed to the core together; what they and its orders cause at the same
instant is handed over next. Every running job has exactly one next event: the end of its start, of
its iteration, of its resize, or of all. A rigid job has only its end, and costs little.

Resizes pass as they do live: a group comes up in the background while the job computes on, and
joins at the first resize point at which it is there; join and move are a pause. A contraction is a
pause for the move; the processors are free when the processes on them have ended, and the job
computes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf, nan
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from scheduler.core.core import Core
from scheduler.core.events import (
    Event,
    JobEnded,
    JobStarted,
    JobSubmitted,
    ResizeDone,
    ResizePoint,
    ResizeTimes,
    Wakeup,
)
from scheduler.core.orders import Continue, Contract, Expand, Kill, Order, Requeue, Start, WakeAt
from scheduler.core.procset import ProcSet
from scheduler.core.redirecting import Redirecting
from scheduler.core.sequence import instant_order
from scheduler.core.state import JobState
from simulator.metrics import Outcome, Result
from simulator.runtimes import Coming, Contiguity, Costs, ResizeCost, Takes
from simulator.workload import Given, SimJob, Submissions

Watch: TypeAlias = Callable[[float, list[Event], list[Order]], None]
SIGTERM = 15


class Progress(msgspec.Struct):
    """Where a simulated job stands.

    Parameters
    ----------
    iterations, size : iterations finished; processors it computes on.
    joining, group_s, ready_at : the expansion whose group is coming up, how long that takes, and
        when it is there.
    resumed_at : when it computed on after its last resize.
    """

    job: SimJob
    iterations: int = 0
    size: int = 0
    joining: Expand | None = None
    group_s: float = 0.0
    ready_at: float = inf
    resumed_at: float = -inf


class Launch(NamedTuple):
    """Processes that come up by an order, from when on, and what it takes besides them, seconds."""

    order: Start | Expand
    begun_at: float
    fixed_s: float


class Engine:
    """Runs a workload through a core.

    Parameters
    ----------
    core : with its machine; it must be new. With a workload of its own it may forget what ended.
    jobs : jobs in any order, or submissions that are numbered; only the former may be resizable.
    cost : what a resize costs.
    point_s : what a resize point takes without a resize, seconds; of resizable jobs.
    start_s, end_s : from the order to start a job until it computes, and from its last iteration
        until its processes are gone, seconds.
    costs : of jobs given one by one, instead of these four: measured ones, by processes.
    rng : draws from what was measured; None: the mean each time.
    watch : told (time, events, orders) of each call of the core.
    allocations : keep the processors of each rigid job.
    contiguity : what rigid jobs gain where their processors are contiguous; they are told apart.

    Attributes
    ----------
    started, ended : time of each job, in the order of the workload; nan if it never came.
    killed : numbers of the jobs that the core ended for good.
    redirected : (job, start, end) of each run that was ended in order to begin again elsewhere.
    allocated : processors of each rigid job that started, by number, if they were to be kept.
    """

    def __init__(
        self,
        core: Core | Redirecting,
        jobs: Iterable[SimJob] | Submissions,
        *,
        cost: ResizeCost | None = None,
        start_s: float = 0.0,
        end_s: float = 0.0,
        point_s: float = 0.0,
        costs: Costs | None = None,
        rng: np.random.Generator | None = None,
        watch: Watch | None = None,
        allocations: bool = False,
        contiguity: Contiguity | None = None,
    ) -> None:
        submissions: Submissions = Given(jobs) if isinstance(jobs, Iterable) else jobs
        self.core = core
        self.start_s, self.end_s = start_s, end_s
        if costs is None:
            costs = Costs.constant(cost or ResizeCost(), start_s, end_s, point_s)
        self.costs, self.rng = costs, rng
        self.watch = watch
        self.contiguity = contiguity
        self.now = -inf
        self.started = [nan] * len(submissions)
        self.ended = [nan] * len(submissions)
        self.killed: set[int] = set()
        self.redirected: list[tuple[int, float, float]] = []
        self.allocated: dict[int, ProcSet] | None = {} if allocations else None
        self._submit_at, self._specs = submissions.submit_times(), submissions.specs()
        self._run_s = submissions.run_times()
        self._times: list[float] = []  # of the agenda, as a heap
        self._agenda: dict[float, list[Event]] = {}
        self._coming = Coming()
        self._up_at = nan  # when the next of them are up
        self._next: dict[int, Event] = {}  # of the jobs whose next event may be replaced
        self._replaced: set[int] = set()  # of those, whose earlier ones are in the agenda
        self._jobs = submissions.jobs if isinstance(submissions, Given) else []
        self._progress: dict[int, Progress] = {}
        self._outcomes: list[Outcome] = []
        self._busy = 0.0

    def run(self) -> Result:
        """Run to the end of the last job that can run."""
        core, handle = self.core, self.core.handle
        given = bool(self._jobs)
        rigid, attended = not given and self.contiguity is None, given or self.watch is not None
        started, ended, run_s, allocated = self.started, self.ended, self._run_s, self.allocated
        around_s, replaceable = self.start_s + self.end_s, self._next
        times, agenda, submit_at, specs = self._times, self._agenda, self._submit_at, self._specs
        come, count = 0, len(submit_at)
        while times or come < count:
            if come == count or (times and times[0] <= submit_at[come]):
                now = heappop(times)
                if given:
                    self._count(now)
                self.now = now
                events = agenda.pop(now)
                if replaceable or not rigid:
                    events = self._instant(events)
            else:
                now, events = submit_at[come], []
                if given:
                    self._count(now)
                self.now = now
            while come < count and submit_at[come] == now:
                come += 1
                events.append(JobSubmitted(now, come, specs[come - 1]))
            if not events:
                continue
            orders = handle(events)
            for order in orders:
                if type(order) is not Start or not rigid or replaceable:
                    self._carry_out(order)
                    continue
                number = order.job  # as `_start` and `_happens` do, without their questions
                end = now + (around_s + run_s[number - 1])
                started[number - 1], ended[number - 1] = now, end
                if allocated is not None:
                    allocated[number] = order.processors
                then = agenda.get(end)
                if then is None:
                    agenda[end] = [JobEnded(end, number)]
                    heappush(times, end)
                else:
                    then.append(JobEnded(end, number))
            if attended:
                self._attend(events, orders)
        return Result(self._outcomes, core.machine.processors, self._busy, [*core.jobs])

    def _instant(self, events: list[Event]) -> list[Event]:
        """What of the agenda happens now: a job's event that another has replaced does not."""
        if self.now == self._up_at:
            self._come_up()
        events = [event for event in events if self._stands(event)]
        for event in events:
            if type(event) is JobEnded:
                self.ended[event.job - 1] = event.at
        return events

    def _count(self, now: float) -> None:
        """Count what was held up to now."""
        if self._outcomes or self.core.live:
            machine = self.core.machine
            self._busy += (machine.processors - machine.free_count) * (now - self.now)

    def _attend(self, events: list[Event], orders: list[Order]) -> None:
        """See to what follows from events, and let whoever watches know of a call of the core."""
        if self._jobs:
            self._see_to(events)
        if self.watch is not None:
            self.watch(self.now, sorted(events, key=instant_order), orders)

    def _stands(self, event: Event) -> bool:
        """Whether an event is not replaced; if so, note how far its job has come."""
        number = getattr(event, "job", 0)
        if self._next.get(number, event) is not event:
            return False
        if type(event) is ResizePoint:
            self._progress[number].iterations = event.iteration
        return True

    def _see_to(self, events: list[Event]) -> None:
        """What events lead to other than orders."""
        for event in events:
            if type(event) is JobEnded:
                self._collect(event.job)
            elif isinstance(event, JobStarted | ResizeDone):
                self._goes_on(event)

    def _happens(self, event: Event) -> None:
        at = event.at
        if at in self._agenda:
            self._agenda[at].append(event)
        else:
            self._agenda[at] = [event]
            heappush(self._times, at)

    def _follows(self, job: int, event: Event) -> None:
        """Make this the next event of a job."""
        self._next[job] = event
        self._happens(event)

    def _carry_out(self, order: Order) -> None:
        if type(order) is Start:
            self._start(order)
        elif isinstance(order, WakeAt):
            self._happens(Wakeup(order.at))
        elif isinstance(order, Kill):
            self.killed.add(order.job)
            self._replaced.add(order.job)
            self._follows(order.job, JobEnded(self.now, order.job, signal=SIGTERM))
        elif isinstance(order, Requeue):
            self.killed.discard(order.job)
            self.redirected.append((order.job, self.started[order.job - 1], self.now))
        elif isinstance(order, Continue):
            self._go_on(order.job)
        elif isinstance(order, Expand):
            progress = self._progress[order.job]
            progress.joining, progress.ready_at = order, inf
            self._launch(order, order.to - progress.size, self.costs.group)
            self._go_on(order.job)
        elif isinstance(order, Contract):
            leave_s = self.costs.leave.of(self._progress[order.job].size - order.to, self.rng)
            times = ResizeTimes(move_s=self._move_s(order))
            self._pause(order.job, order.serial, order.to, times, leave_s)

    def _start(self, order: Start) -> None:
        number = order.job
        self.started[number - 1] = self.now
        if not self._jobs:
            run_s = self._run_s[number - 1]
            if self.contiguity is not None:
                run_s = self.contiguity.run_s(run_s, order.processors)
            if self.allocated is not None:
                self.allocated[number] = order.processors
            self._ends_at(number, self.now + (self.start_s + self.end_s + run_s))
            return
        job = self._jobs[number - 1]
        if job.spec.resizable:
            self._progress[number] = Progress(job, size=job.spec.processors)
        elif self.allocated is not None:
            self.allocated[number] = order.processors
        self._launch(order, job.spec.processors, self.costs.start)

    def _ends_at(self, number: int, end: float) -> None:
        """Let a rigid job end then; nobody asks between its start and its end."""
        ends = JobEnded(end, number)
        if number in self._next:  # it had an earlier life, the end of which is not to count
            self._follows(number, ends)
        else:
            self._happens(ends)

    def _launch(self, order: Start | Expand, processes: int, takes: Takes) -> None:
        """Let the processes of a group come up."""
        fixed_s, each_s = takes.parts(self.rng)
        launch = Launch(order, self.now, fixed_s)
        if each_s == 0:
            self._is_up(launch)
        else:
            self._coming.begin(self.now, processes, each_s, launch)
            self._await()

    def _await(self) -> None:
        """Have an instant when the next processes are up, if none begin to come up before."""
        self._up_at = self._coming.next_at()
        if self._up_at not in self._agenda:
            self._agenda[self._up_at] = []
            heappush(self._times, self._up_at)

    def _come_up(self) -> None:
        """Go on with what is up now."""
        self._up_at = nan
        for launch in self._coming.up(self.now):
            self._is_up(launch)
        if self._coming:
            self._await()

    def _is_up(self, launch: Launch) -> None:
        """Let a job begin, or a group be ready to join; unless it was ended meanwhile."""
        order, at = launch.order, self.now + launch.fixed_s
        number = order.job
        if type(order) is Expand:
            progress = self._progress.get(number)
            if progress is not None and progress.joining is order:
                progress.ready_at, progress.group_s = at, at - launch.begun_at
            return
        live = self.core.jobs.get(number)
        if live is None or live.state is not JobState.STARTING:
            return
        if self.started[number - 1] != launch.begun_at:  # that was in an earlier life
            return
        job = self._jobs[number - 1]
        if job.spec.resizable:
            self._follows(number, JobStarted(at, number))
            return
        run_s = self._run_s[number - 1]
        if self.contiguity is not None:
            run_s = self.contiguity.run_s(run_s, live.groups[order.group])
        end_s = self.costs.end.of(job.spec.processors, self.rng)
        self._ends_at(number, at + (run_s + end_s))

    def _move_s(self, order: Expand | Contract) -> float:
        return self._progress[order.job].job.data_bytes / self.costs.bytes_per_s

    def _go_on(self, job: int) -> None:
        """Join the group that is there by now, or compute the next iteration."""
        if self.core.jobs[job].state is JobState.COMPLETING:  # told to end at this very instant
            return
        progress = self._progress[job]
        joining = progress.joining
        if joining is not None and progress.ready_at <= self.now:
            progress.joining = None
            times = ResizeTimes(
                start_s=progress.group_s,
                join_s=self.costs.join.of(joining.to, self.rng),
                move_s=self._move_s(joining),
            )
            self._pause(job, joining.serial, joining.to, times)
        else:
            self._compute(job, self.now)

    def _pause(
        self, job: int, serial: int, to: int, times: ResizeTimes, leave_s: float = 0.0
    ) -> None:
        """Let a job stand still; the resize is done when the processes that leave are gone."""
        progress = self._progress[job]
        progress.size, progress.resumed_at = to, self.now + times.pause_s
        done_at = progress.resumed_at + leave_s
        self._follows(job, ResizeDone(done_at, job, serial, times))

    def _compute(self, job: int, since: float) -> None:
        """Let the next iteration be that which began at this time."""
        progress = self._progress[job]
        iteration_s = progress.job.time_s(progress.size)
        point_s = self.costs.point.of(progress.size, self.rng)
        end, done = max(self.now, since + (point_s + iteration_s)), progress.iterations + 1
        if done == progress.job.iterations:
            self._follows(job, JobEnded(end + self.costs.end.of(progress.size, self.rng), job))
        else:
            data_bytes = progress.job.data_bytes
            self._follows(job, ResizePoint(end, job, done, iteration_s, data_bytes=data_bytes))

    def _goes_on(self, event: JobStarted | ResizeDone) -> None:
        if self._next[event.job] is event:
            resized = type(event) is ResizeDone
            self._compute(event.job, self._progress[event.job].resumed_at if resized else self.now)

    def _collect(self, number: int) -> None:
        """Keep what is needed of a job that ended, and let the core forget it."""
        job = self.core.jobs[number]
        if job.ended_at is None:
            return  # it goes on, in another life
        self._outcomes.append(Outcome.of(job))
        self.core.forget(number)
        self._progress.pop(number, None)
        if number not in self._replaced:
            self._next.pop(number, None)
