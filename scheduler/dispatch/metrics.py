"""Names of the metrics by which a user chooses between live sites, and their policies."""

from __future__ import annotations

from scheduler.policies.assignment.by_metric import (
    LessCostSld,
    LessJobsInQueue,
    LessSlowdown,
    LessTurnaround,
    LessWaitTime,
    LessWorkLeft,
)
from scheduler.policies.assignment.interface import Assignment
from scheduler.policies.registry import find

METRICS: dict[str, Assignment] = {
    "wait": LessWaitTime(),
    "turnaround": LessTurnaround(),
    "slowdown": LessSlowdown(),
    "cost": LessCostSld(),
    "work": LessWorkLeft(),
    "queue": LessJobsInQueue(),
}
#: Metrics for which a site must quote a start.
QUOTED = ("wait", "turnaround", "slowdown", "cost")


def metric_of(name: str) -> Assignment:
    """Task assignment policy of a metric, or of ``module:Class``.

    Raises
    ------
    ConfigError : there is no such policy.
    """
    found: Assignment = METRICS[name] if name in METRICS else find("assignment", name)()
    return found
