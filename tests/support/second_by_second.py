"""Drives a core through a few jobs, for comparison with twins that compute second by second."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from scheduler.core.core import Core
from scheduler.model.events import Event, JobEnded, JobSpec, JobSubmitted, Wakeup
from scheduler.model.interfaces import QueueOrder
from scheduler.model.machine import Machine
from scheduler.model.orders import Start, WakeAt
from scheduler.partition.passes import instant_order
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.scenario import Scenario


class SmallRun(NamedTuple):
    """Start time of each job, its reservations over time, and the reasons of the starts."""

    starts: list[float]
    reserved: dict[int, list[float]]
    reasons: dict[int, str]


def drive(
    jobs: Sequence[tuple[int, ...]],
    backfill: Backfill,
    processors: int,
    resources: Mapping[str, int] | None = None,
    backfill_order: QueueOrder | None = None,
) -> SmallRun:
    """Run jobs of (submitted, processors, walltime, run time <= walltime, further resources ...).

    They are in order of submission; `resources` are the further resources of the machine.
    """
    names = list(resources or {})
    core = Core(
        Scenario("test", backfill=backfill, backfill_order=backfill_order),
        Machine([("n", processors)], resources=resources),
        kill_at_walltime=False,
    )
    events: list[tuple[float, int, int, int, Event]] = []
    for i, (at, wanted, walltime, _, *rest) in enumerate(jobs):
        spec = JobSpec(wanted, walltime, resources=dict(zip(names, rest, strict=False)))
        event = JobSubmitted(at, i, spec)
        heapq.heappush(events, (at, *instant_order(event), i, event))
    ran = SmallRun([inf] * len(jobs), {}, {})
    while events:
        now = events[0][0]
        batch = []
        while events and events[0][0] == now:
            batch.append(heapq.heappop(events)[-1])
        for order in core.handle(batch):
            if isinstance(order, WakeAt):
                wake = Wakeup(order.at)
                heapq.heappush(events, (wake.at, *instant_order(wake), len(jobs), wake))
                continue
            assert isinstance(order, Start)
            ran.starts[order.job] = now
            ran.reasons[order.job] = str(order.reason)
            end = JobEnded(now + jobs[order.job][3], order.job)
            heapq.heappush(events, (end.at, *instant_order(end), order.job, end))
        [partition] = core.partitions
        reserved = dict(partition.state.reservations)
        if backfill.reservations == 1 and (head := partition.view.reservation()) is not None:
            reserved[head.job] = head.at
        for job, at in reserved.items():
            ran.reserved.setdefault(job, []).append(at)
        for job in partition.queue:
            assert str(core.reason_pending(job.id))
    return ran
