"""Names of the metrics by which a user chooses between live sites, and their policies."""

from __future__ import annotations

from scheduler.policies.assignment.interface import Assignment
from scheduler.policies.registry import find

#: Name of a metric -> registered name of its task assignment policy.
METRICS = {
    "wait": "less-waittime",
    "turnaround": "less-turnaround",
    "slowdown": "less-slowdown",
    "cost": "less-cost-sld",
    "work": "less-workleft",
    "queue": "less-jobsinqueue",
}
#: Metrics for which a site must quote a start.
QUOTED = ("wait", "turnaround", "slowdown", "cost")


def metric_of(name: str) -> Assignment:
    """Task assignment policy of a metric, or of ``module:Class``.

    Raises
    ------
    ConfigError : there is no such policy.
    """
    policy: Assignment = find("assignment", METRICS.get(name, name))()
    return policy
