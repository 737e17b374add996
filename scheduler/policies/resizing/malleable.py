"""Malleable: one policy that decides on starts, with sizes, and on resizes.

Jobs start as soon as their smallest size fits beside the smallest sizes of the running jobs, and
all move towards an even division of the machine (`scheduler.policies.resizing.targets`) at their
resize points.
"""

from __future__ import annotations

from math import inf

import msgspec

from scheduler.model.job import Job
from scheduler.model.job_view import JobView, original
from scheduler.model.orders import Reason
from scheduler.policies.backfill.own_pass import CurrentPass
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.policies.resizing.targets import Targets, divide, floor_of, floors
from scheduler.state.view import View


class Malleable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start jobs on what is free, and divide the machine evenly between them."""

    earn_back: float = 2.0
    least_growth: float = 1.0
    settle: int = 1
    rebalance: float = inf

    def schedule(self, current: CurrentPass) -> None:
        live = [original(job) for job in current.running]
        floor = sum(map(floor_of, live))
        capacity, now = current.processors, current.now
        begun: list[Job] = []
        head = None
        for job in current.queue:
            need = job.start_least
            if floor + need > capacity:
                head = original(job)
                break
            floor += need
            begun.append(original(job))
        if head is not None:
            room = capacity - floor
            at, extra = self._shadow(live + begun, head, room, now)
            for job in current.fitting(room):
                if job is head or job in begun:
                    continue
                need = job.start_least
                if need > capacity - floor:
                    continue
                in_time = now + job.estimate_on_s(need) <= at
                if in_time or need <= extra:
                    floor += need
                    extra -= 0 if in_time else need
                    begun.append(original(job))
        targets = divide(live, begun, capacity)
        needs = sum(job.start_least for job in begun)
        for job in begun:
            need = job.start_least
            needs -= need
            spare = current.free - needs
            size = job.starts_on(min(targets.sizes[job.id], max(spare, need)))
            if current.free >= need and size is not None:
                facts = {"size": size, "needed": job.processors, "free": current.free}
                text = "{needed} processors wanted, {free} free; it starts on {size}"
                if current.start(job, Reason("Malleable start", text, facts), size):
                    continue
            needs += need
            current.expect(job, now)
        if head is not None:
            current.expect(head, at)

    def _shadow(self, jobs: list[Job], head: Job, room: int, now: float) -> tuple[float, int]:
        releases = []
        for job in jobs:
            end = (
                job.estimated_end
                if job.started_at is not None
                else now + job.estimate_on_s(job.start_least)
            )
            least = floor_of(job) if job.started_at is not None else job.start_least
            releases.append((max(end, now), job.id, least))
        need = head.start_least
        for end, _, least in sorted(releases):
            room += least
            if room >= need:
                return end, room - need
        return inf, 0

    def decide(self, job: JobView, view: View) -> Decision:
        targets: Targets = view.once(self._targets)
        size, target = job.size, targets.sizes.get(job.id, job.size)
        facts = {"size": size, "target": target}
        if job.history.settled < self.settle:
            return Stay(Reason("Malleable", "just resized"))
        if target < size:
            lacking = targets.waiting - view.free - view.freeing
            if lacking > 0 or size >= self.rebalance * target:
                to = job.contracts_to(
                    max(target, size - lacking) if size < self.rebalance * target else target
                )
                if to is not None:
                    return Shrink(to, Reason("Malleable", "from {size} to {target}", facts))
            return Stay(Reason("Malleable", "nothing lacks", facts))
        spare = min(view.free_for(job), view.free) - targets.waiting
        to = job.valid_up_to(min(target, size + max(spare, 0)))
        if to is None or to <= size or to < size * self.least_growth:
            return Stay(Reason("Malleable", "no growth", facts))
        if view.failed_lately(job, to):
            return Stay(Reason("Malleable", "failed", facts))
        if self.earn_back:
            left = job.estimated_end - view.now
            if job.ends_by_progress < inf:
                left = job.ends_by_progress - view.now
            here, there = job.slowness(size), job.slowness(to)
            saved = left * (1 - there / here)
            if saved < self.earn_back * (view.pause_s(job) or 0.0):
                return Stay(Reason("Malleable", "not earned back", facts))
        return Grow(to, Reason("Malleable", "from {size} towards {target}", facts))

    def _targets(self, view: View) -> Targets:
        live, begun = view.live, []
        room = view.processors - floors(live)
        for job in view.expected:
            room -= job.start_least
            if room < 0:
                break
            begun.append(job)
        return divide(live, begun, view.processors)
