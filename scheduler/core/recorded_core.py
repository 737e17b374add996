"""The record of a core for durable storage, and a core that takes over a record."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.core.event_handlers import EventHandlers
from scheduler.core.resizing import measure
from scheduler.model.events import ResizePoint
from scheduler.model.job import ACTIVE, Job
from scheduler.state.records import CoreRecord


def record_of(handlers: EventHandlers) -> CoreRecord:
    """Return the scheduler state of a core, apart from the jobs."""
    state = handlers.state
    predictor = handlers.predictor
    return CoreRecord(
        nodes=list(state.machine.nodes.values()),
        resize_costs=state.resize_costs,
        reservations=dict(state.reservations),
        predictor=None if predictor is None else predictor.learned(),
        sorted_at=state.queue.sorted_at,
        depth=handlers.depth_limit,
        demands={} if state.demands is None else state.demands.record(),
        exclusions=tuple(state.exclusions),
    )


def restore_state(
    handlers: EventHandlers,
    now: float,
    record: CoreRecord,
    jobs: Iterable[Job],
    points: Iterable[ResizePoint],
) -> None:
    """Let a new core take over a recorded state; see `Core.restore`."""
    state = handlers.state
    state.queue.sorted_at = record.sorted_at
    handlers.limit_depth(record.depth)
    recorded = list(jobs)
    for each in recorded:
        handlers.alarms.limit(each)
    state.exclusions.restore(record.exclusions, now)
    state.restore(now, record.nodes, recorded)
    for point in points:
        job = state.live.get(point.job)
        if job is not None and job.state in ACTIVE and job.spec.resizable:
            measure(job, point)
    state.resize_costs = record.resize_costs
    if state.demands is not None:
        state.demands.restore(record.demands)
    state.reservations.update(
        (job, at) for job, at in record.reservations.items() if job in state.queue
    )
    if handlers.predictor is not None and record.predictor is not None:
        handlers.predictor.relearn(record.predictor)
