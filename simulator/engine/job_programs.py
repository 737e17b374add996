"""The programs of jobs that are given one by one: they come up, compute, are resized, and end.

Resizes pass as they do live: a group comes up in the background while the job computes on, and
joins at the first resize point at which it is there; join and move are a pause. A contraction is a
pause for the move; the processors are free when the processes on them have ended, and the job
computes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import NamedTuple

import msgspec
import numpy as np

from scheduler.model.events import JobEnded, JobStarted, ResizeDone, ResizePoint, ResizeTimes
from scheduler.model.job import JobState
from scheduler.model.orders import Continue, Contract, Expand, Start
from scheduler.sites.site import Site
from scheduler.virtual_clock.agenda import Agenda
from simulator.engine.costs import Coming, Costs, Takes
from simulator.engine.jobs import SimJob


class Progress(msgspec.Struct):
    """Where the program of a resizable job stands.

    Parameters
    ----------
    iterations, size : iterations finished, and with that under way; processors it computes on.
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


class Programs:
    """Programs on a machine where starts, joins, moves and ends take their time.

    A running job has exactly one next event: the end of its start, of its iteration, of its resize,
    or of all.

    Parameters
    ----------
    jobs : in the order of their numbers, from 1.
    core, agenda : whose orders are carried out; where it is noted what comes of them.
    costs, rng : see `Engine`.
    compute : lets a rigid job compute: by which order, from when on, and the seconds from its last
        iteration until its processes are gone.
    """

    def __init__(
        self,
        jobs: list[SimJob],
        core: Site,
        agenda: Agenda,
        costs: Costs,
        rng: np.random.Generator | None,
        compute: Callable[[Start, float, float], None],
    ) -> None:
        self._jobs = jobs
        self._core, self._agenda = core, agenda
        self._costs, self._rng = costs, rng
        self._compute_rigid = compute
        self._coming = Coming()
        self._up_at = nan  # when the next of them are up
        self._progress: dict[int, Progress] = {}

    def start(self, order: Start) -> None:
        """Let the processes of a job come up."""
        job = self._jobs[order.job - 1]
        if job.spec.resizable:
            self._progress[order.job] = Progress(job, size=job.spec.processors)
        self._launch(order, job.spec.processors, self._costs.start)

    def answer(self, order: Continue | Expand | Contract) -> None:
        """Do as the answer to a resize point says."""
        progress = self._progress[order.job]
        if isinstance(order, Contract):
            leave_s = self._costs.leave.of(progress.size - order.to, self._rng)
            times = ResizeTimes(move_s=self._move_s(order))
            self._pause(order.job, order.serial, order.to, times, leave_s)
            return
        if isinstance(order, Expand):
            progress.joining, progress.ready_at = order, inf
            self._launch(order, order.to - progress.size, self._costs.group)
        self._go_on(order.job)

    def come_up(self) -> None:
        """Go on with the processes that are up now."""
        if self._agenda.now != self._up_at:
            return
        self._up_at = nan
        for launch in self._coming.up(self._agenda.now):
            self._is_up(launch)
        if self._coming:
            self._await()

    def go_on(self, event: JobStarted | ResizeDone) -> None:
        """Compute on after a start, or after a resize, since the end of its pause."""
        if self._agenda.next[event.job] is event:
            resized = type(event) is ResizeDone
            since = self._progress[event.job].resumed_at if resized else self._agenda.now
            self._compute(event.job, since)

    def forget(self, job: int) -> None:
        """Forget a job that ended."""
        self._progress.pop(job, None)

    def _launch(self, order: Start | Expand, processes: int, takes: Takes) -> None:
        """Let the processes of a group come up."""
        now = self._agenda.now
        fixed_s, each_s = takes.parts(self._rng)
        launch = Launch(order, now, fixed_s)
        if each_s == 0:
            self._is_up(launch)
        else:
            self._coming.begin(now, processes, each_s, launch)
            self._await()

    def _await(self) -> None:
        """Have an instant when the next processes are up, if none begin to come up before."""
        self._up_at = self._coming.next_at()
        self._agenda.wake(self._up_at)

    def _is_up(self, launch: Launch) -> None:
        """Let a job begin, or a group be ready to join; unless it was ended meanwhile."""
        order, at = launch.order, self._agenda.now + launch.fixed_s
        number = order.job
        if isinstance(order, Expand):
            progress = self._progress.get(number)
            if progress is not None and progress.joining is order:
                progress.ready_at, progress.group_s = at, at - launch.begun_at
            return
        live = self._core.jobs.get(number)
        if live is None or live.state is not JobState.STARTING:
            return
        if live.started_at != launch.begun_at:  # that was in an earlier life
            return
        job = self._jobs[number - 1]
        if job.spec.resizable:
            self._agenda.follow(JobStarted(at, number))
            return
        end_s = self._costs.end.of(job.spec.processors, self._rng)
        self._compute_rigid(order, at, end_s)

    def _move_s(self, order: Expand | Contract) -> float:
        return self._progress[order.job].job.data_bytes / self._costs.bytes_per_s

    def _go_on(self, job: int) -> None:
        """Join the group that is there by now, or compute the next iteration."""
        if self._core.jobs[job].state is JobState.COMPLETING:  # told to end at this very instant
            return
        progress = self._progress[job]
        joining = progress.joining
        if joining is not None and progress.ready_at <= self._agenda.now:
            progress.joining = None
            times = ResizeTimes(
                start_s=progress.group_s,
                join_s=self._costs.join.of(joining.to, self._rng),
                move_s=self._move_s(joining),
            )
            self._pause(job, joining.serial, joining.to, times)
        else:
            self._compute(job, self._agenda.now)

    def _pause(
        self, job: int, serial: int, to: int, times: ResizeTimes, leave_s: float = 0.0
    ) -> None:
        """Let a job stand still; the resize is done when the processes that leave are gone."""
        progress = self._progress[job]
        progress.size, progress.resumed_at = to, self._agenda.now + times.pause_s
        done_at = progress.resumed_at + leave_s
        self._agenda.follow(ResizeDone(done_at, job, serial, times))

    def _compute(self, number: int, since: float) -> None:
        """Let the next iteration be that which began at this time."""
        progress = self._progress[number]
        job, size = progress.job, progress.size
        iteration_s = job.time_s(size)
        point_s = self._costs.point.of(size, self._rng)
        end = max(self._agenda.now, since + (point_s + iteration_s))
        progress.iterations += 1
        if progress.iterations == job.iterations:
            end_s = self._costs.end.of(size, self._rng)
            self._agenda.follow(JobEnded(end + end_s, number))
        else:
            done, data_bytes = progress.iterations, job.data_bytes
            self._agenda.follow(ResizePoint(end, number, done, iteration_s, data_bytes=data_bytes))
