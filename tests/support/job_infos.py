"""Job records as the service sends them, made by hand."""

from __future__ import annotations

from scheduler.protocol.messages import JobInfo

#: Origin of the times, Unix seconds.
T = 1000.0


def ended(
    job: int, submitted: float, started: float | None, end: float, **given: object
) -> JobInfo:
    """A completed job on processors 0-1, changed by the given fields; times relative to T."""
    values: dict[str, object] = {
        "job": job, "name": "", "user": "", "state": "COMPLETED", "code": "CD", "requested": 2,
        "max_processors": 8, "size": 0, "walltime_s": 60.0, "submitted_at": T + submitted,
        "started_at": None if started is None else T + started, "ended_at": T + end,
        "processors": "", "nodes": "", "reason": "", "exit_code": 0, "signal": 0, "restarts": 0,
        "iteration": 0, "iteration_s": 0.0, "sizes": [], "resizes": [],
        "allocation": [] if started is None else [(T + started, "0-1"), (T + end, "")],
        "facts": {"verified": True}, "output": "/nowhere/job.out", "argv": ["python", "x.py"],
    }  # fmt: skip
    return JobInfo(**(values | given))  # type: ignore[arg-type]
