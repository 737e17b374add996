"""Inputs of experiments: few jobs, and machines of each kind."""

from __future__ import annotations

from typing import Any

#: Twelve rigid jobs on eight processors, some of which wait.
COLUMNS: dict[str, list[float]] = {
    "submit_s": [0, 0, 10, 20, 20, 35, 50, 60, 60, 75, 80, 100],
    "processors": [4, 2, 8, 1, 2, 4, 8, 2, 2, 1, 4, 1],
    "run_s": [30, 60, 20, 200, 15, 40, 10, 5, 80, 20, 30, 1],
    "walltime_s": [60, 60, 40, 400, 15, 80, 60, 30, 80, 40, 60, 10],
    "user": [1, 2, 1, 3, 3, 2, 1, 1, 2, 3, 1, 2],
}
TREE = {"nodes": 8, "network": {"topology": "tree", "k": 2, "levels": 3}}
#: Nodes whose jobs share a bandwidth; the demands are in the column `bandwidth` of the trace.
SHARED = {"nodes": 2, "processors_per_node": 4, "shared_per_node": {"bandwidth": 10}}
CENTRES = {
    "centres": [{"name": "A", "processors": 8}, {"name": "B", "processors": 8}],
}
POOL = "nodes=0-4,processors=4,time_limit=1000"


def trace_text(
    columns: dict[str, Any] | None = None, processors: int = 8, *, with_waits: bool = False
) -> str:
    """The jobs as a trace in the Standard Workload Format; a wait is the number of the job."""
    given = columns or COLUMNS
    lines = [f"; MaxProcs: {processors}"]
    for i, (at, size, run, limit) in enumerate(
        zip(*(given[n] for n in ("submit_s", "processors", "run_s", "walltime_s")), strict=True), 1
    ):
        wait = i if with_waits else -1
        lines.append(f"{i} {at} {wait} {run} {size} -1 -1 {size} {limit} -1 1 1 -1 -1 -1 -1 -1 -1")
    return "\n".join(lines) + "\n"
