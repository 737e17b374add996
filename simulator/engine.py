"""The simulator's driver of the decision core: a virtual clock and jobs that only pass time.

A heap holds what will happen, as (time, order within the instant, serial, event). The events of one
instant are handed to the core together; what they and its orders cause at the same instant is
handed over next. Every running job has exactly one next event: the end of its start, of its
iteration, of its resize, or of all.

Resizes pass as they do live: a group comes up in the background while the job computes on, and
joins at the first resize point at which it is there; join and move are a pause. A contraction is a
pause for the move, at whose end the processors are free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count
from math import inf
from typing import TypeAlias

import msgspec

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
    instant_order,
)
from scheduler.core.orders import Continue, Contract, Expand, Kill, Order, Start, WakeAt
from scheduler.core.state import FINAL, Job, JobState
from simulator.metrics import Outcome, Result
from simulator.runtimes import ResizeCost
from simulator.workload import SimJob

Watch: TypeAlias = Callable[[float, list[Event], list[Order]], None]
SIGTERM = 15


class Progress(msgspec.Struct):
    """Where a simulated job stands.

    Parameters
    ----------
    iterations, size : iterations finished; processors it computes on.
    joining, ready_at : the expansion whose group is coming up, and when it is there.
    """

    job: SimJob
    iterations: int = 0
    size: int = 0
    joining: Expand | None = None
    ready_at: float = inf


class Engine:
    """Runs a workload through a core.

    Parameters
    ----------
    core : with its machine; it must be new.
    jobs : the workload, numbered from 1 in the order of submission.
    cost : what a resize costs.
    start_s : from the order to start a job until it computes, seconds.
    watch : told (time, events, orders) of each call of the core.
    """

    def __init__(
        self,
        core: Core,
        jobs: Iterable[SimJob],
        *,
        cost: ResizeCost | None = None,
        start_s: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        self.core = core
        self.cost = ResizeCost() if cost is None else cost
        self.start_s = start_s
        self.watch = watch
        self.now = -inf
        self._heap: list[tuple[float, tuple[int, int], int, Event]] = []
        self._serial = count()
        self._next: dict[int, Event] = {}
        self._progress: dict[int, Progress] = {}
        self._outcomes: list[Outcome] = []
        self._busy = 0.0
        for number, job in enumerate(sorted(jobs, key=lambda job: job.at), 1):
            self._progress[number] = Progress(job)
            self._happens(JobSubmitted(job.at, number, job.spec))

    def run(self) -> Result:
        """Run to the end of the last job that can run."""
        core, machine = self.core, self.core.machine
        while self._heap:
            now = self._heap[0][0]
            if self._outcomes or core.live:
                self._busy += (machine.processors - machine.free_count) * (now - self.now)
            self.now = now
            events = self._instant()
            if not events:
                continue
            orders = core.handle(events)
            for order in orders:
                self._carry_out(order)
            for event in events:
                if type(event) is JobEnded:
                    self._collect(event.job)
                elif isinstance(event, JobStarted | ResizeDone) and self._next[event.job] is event:
                    self._compute(event.job)
            if self.watch is not None:
                self.watch(now, events, orders)
        return Result(self._outcomes, machine.processors, self._busy, [*core.jobs])

    def _instant(self) -> list[Event]:
        """Take out what happens now; a job's event that another has replaced happens not."""
        heap = self._heap
        events: list[Event] = []
        while heap and heap[0][0] == self.now:
            event = heapq.heappop(heap)[-1]
            if isinstance(event, JobSubmitted | Wakeup):
                events.append(event)
            elif self._next.get(event.job) is event:  # type: ignore[union-attr]
                if type(event) is ResizePoint:
                    self._progress[event.job].iterations = event.iteration
                events.append(event)
        return events

    def _happens(self, event: Event) -> None:
        entry = event.at, instant_order(event), next(self._serial), event
        heapq.heappush(self._heap, entry)

    def _follows(self, job: int, event: Event) -> None:
        """Make this the next event of a job."""
        self._next[job] = event
        self._happens(event)

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, WakeAt):
            self._happens(Wakeup(order.at))
        elif isinstance(order, Start):
            self._start(order)
        elif isinstance(order, Kill):
            self._follows(order.job, JobEnded(self.now, order.job, signal=SIGTERM))
        elif isinstance(order, Continue):
            self._go_on(order.job)
        elif isinstance(order, Expand):
            progress = self._progress[order.job]
            progress.joining, progress.ready_at = order, self.now + self.cost.start_s
            self._go_on(order.job)
        elif isinstance(order, Contract):
            self._pause(order.job, order.serial, order.to, ResizeTimes(move_s=self._move_s(order)))

    def _start(self, order: Start) -> None:
        progress = self._progress[order.job]
        job = progress.job
        progress.size = job.spec.processors
        if job.spec.resizable:
            self._follows(order.job, JobStarted(self.now + self.start_s, order.job))
        else:  # nobody asks between its start and its end
            run_s = self.start_s + job.iterations * job.iteration_s
            self._follows(order.job, JobEnded(self.now + run_s, order.job))

    def _move_s(self, order: Expand | Contract) -> float:
        return self.cost.move_s(self._progress[order.job].job.data_bytes)

    def _go_on(self, job: int) -> None:
        """Join the group that is there by now, or compute the next iteration."""
        if self.core.jobs[job].state is JobState.COMPLETING:  # told to end at this very instant
            return
        progress = self._progress[job]
        joining = progress.joining
        if joining is not None and progress.ready_at <= self.now:
            progress.joining = None
            cost = self.cost
            move_s = self._move_s(joining)
            times = ResizeTimes(start_s=cost.start_s, join_s=cost.join_s, move_s=move_s)
            self._pause(job, joining.serial, joining.to, times)
        else:
            self._compute(job)

    def _pause(self, job: int, serial: int, to: int, times: ResizeTimes) -> None:
        self._progress[job].size = to
        self._follows(job, ResizeDone(self.now + times.pause_s, job, serial, times))

    def _compute(self, job: int) -> None:
        """Begin the next iteration."""
        progress = self._progress[job]
        iteration_s = progress.job.time_s(progress.size)
        end, done = self.now + iteration_s, progress.iterations + 1
        if done == progress.job.iterations:
            self._follows(job, JobEnded(end, job))
        else:
            self._follows(job, ResizePoint(end, job, done, iteration_s))

    def _collect(self, number: int) -> None:
        """Keep what is needed of a job that ended, and let the core forget it."""
        job = self.core.jobs[number]
        if job.state in FINAL:
            self._outcomes.append(outcome(job))
            self.core.forget(number)
            del self._next[number], self._progress[number]


def outcome(job: Job) -> Outcome:
    """What is kept of an ended job."""
    assert job.started_at is not None
    assert job.ended_at is not None
    return Outcome(
        job.id,
        job.spec,
        job.state,
        job.submitted_at,
        job.started_at,
        job.ended_at,
        tuple(job.sizes),
    )
