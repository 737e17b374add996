"""Pictures of a trace, as those of GUIM 3.4: arrivals, run times, sizes, and both together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from scheduler import pictures as drawing
from simulator.traces.swf import Trace
from simulator.traces.trace_jobs import TraceJobs

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
WEEK_S: Final = 7 * 86400.0
BLUE: Final = "#1f6fb2"
#: Times on a logarithmic axis, s.
TIMES: Final = {
    1: "1 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    36000: "10 h",
    86400 * 10: "10 d",
}


def local_times(trace: Trace, jobs: TraceJobs) -> tuple[list[int], list[int], str]:
    """Local hours and days of submission, by the fields UnixStartTime and TimeZone of the header.

    Without them submissions count from midnight of a Monday.

    Returns
    -------
    hour (0 to 23) and day (0 to 6, Monday to Sunday) of each job; name of the time zone, for labels
    """
    start = trace.declared("UnixStartTime")
    zone, name = _zone(trace)
    # The Unix epoch is a Thursday: without a start time, day 4 after it is a Monday.
    begin = 4 * 86400 if start is None else start
    moments = [
        datetime.fromtimestamp(begin + at, UTC if start is None else zone)
        for at in jobs.submit_times()
    ]
    hours, days = [moment.hour for moment in moments], [moment.weekday() for moment in moments]
    return hours, days, "from the start of the trace" if start is None else name


def draw_arrivals(trace: Trace, jobs: TraceJobs, about: str) -> Figure:
    """Draw the mean number of submissions by hour of the day and by day of the week."""
    hours, days, zone = local_times(trace, jobs)
    weeks = max(float(jobs.submitted[-1] - jobs.submitted[0]) / WEEK_S, 1.0)
    figure = drawing.new_figure(4.2, f"Arrivals: {about}")
    by_hour, by_day = figure.subplots(1, 2)
    by_hour.bar(range(24), np.bincount(hours, minlength=24) / (7 * weeks), color=BLUE)
    by_hour.set_xlabel(f"hour of the day ({zone})")
    by_hour.set_ylabel("jobs an hour")
    by_hour.set_xticks(range(0, 24, 3))
    by_day.bar(DAYS, np.bincount(days, minlength=7) / weeks, color=BLUE)
    by_day.set_xlabel("day of the week")
    by_day.set_ylabel("jobs a day")
    for axes in (by_hour, by_day):
        drawing.reduce_frame(axes)
    return figure


def draw_jobs(jobs: TraceJobs, about: str) -> Figure:
    """Draw the distribution of the run times, and the share of jobs of each size."""
    figure = drawing.new_figure(4.2, f"Run times and sizes: {about}")
    times, sizes = figure.subplots(1, 2)
    run_s = np.sort(np.maximum(jobs.run, 1.0))
    shares = 100 * np.arange(1, len(run_s) + 1) / len(run_s)
    times.step(run_s, shares, color=BLUE, where="post")
    times.set_xscale("log")
    times.set_xticks(*_time_ticks(run_s))
    times.minorticks_off()
    times.set_xlabel("run time")
    times.set_ylabel("jobs that are not longer, %")
    times.set_ylim(0, 102)
    edges = _edges(jobs)
    counts, _ = np.histogram(jobs.processors, np.array(edges))
    labels = [f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in pairwise(edges)]
    sizes.bar(labels, 100 * counts / len(jobs), color=BLUE)
    sizes.tick_params("x", rotation=45)
    sizes.set_xlabel("processors")
    sizes.set_ylabel("jobs, %")
    for axes in (times, sizes):
        drawing.reduce_frame(axes)
    return figure


def draw_weeks(jobs: TraceJobs, processors: int, about: str) -> Figure:
    """Draw the processors requested by the jobs of each week, and their offered load."""
    figure = drawing.new_figure(4.6, f"Weeks: {about}")
    requested, load = figure.subplots(2, 1, sharex=True)
    week = ((jobs.submitted - jobs.submitted[0]) // WEEK_S).astype(np.int64)
    numbers = np.arange(int(week.max()) + 1)
    requested.bar(numbers, np.bincount(week, weights=jobs.processors), color=BLUE)
    requested.set_ylabel("processors requested\nby the jobs of a week")
    work = np.bincount(week, weights=jobs.run * jobs.processors)
    load.bar(numbers, work / (processors * WEEK_S), color=drawing.WAITING)
    load.axhline(1, color=drawing.INK, linewidth=0.9, linestyle=(0, (4, 2)))
    load.set_ylabel("offered load")
    load.set_xlabel("week")
    for axes in (requested, load):
        drawing.reduce_frame(axes)
    return figure


def draw_scatter(jobs: TraceJobs, about: str) -> Figure:
    """Draw the run time of each job against its size."""
    figure = drawing.new_figure(5.6, f"Run time against size: {about}")
    axes = figure.subplots()
    run_s = np.maximum(jobs.run, 1.0)
    spread = np.exp(np.random.default_rng(0).uniform(-0.06, 0.06, len(jobs)))
    axes.scatter(
        jobs.processors * spread,
        run_s,
        s=3,
        color=BLUE,
        alpha=min(0.6, max(0.15, 3000 / len(jobs))),
        linewidths=0,
        rasterized=True,
    )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yscale("log")
    axes.set_yticks(*_time_ticks(run_s))
    axes.minorticks_off()
    axes.set_xlabel("processors (each job is moved by up to 6 %)")
    axes.set_ylabel("run time")
    drawing.reduce_frame(axes)
    return figure


def _time_ticks(run_s: NDArray[np.float64]) -> tuple[list[int], list[str]]:
    """Ticks up to the longest time, and their labels."""
    ticks = [t for t in TIMES if t <= run_s.max()]
    return ticks, [TIMES[t] for t in ticks]


def _edges(jobs: TraceJobs) -> list[int]:
    """Bounds of classes of sizes: 1, 2, 3-4, 5-8, ..."""
    edges, upper = [1], 1
    while edges[-1] <= int(jobs.processors.max()):
        edges.append(upper + 1)
        upper *= 2
    return edges


def _zone(trace: Trace) -> tuple[tzinfo, str]:
    """Time zone of the header: by name, else by its offset in seconds; UTC without either."""
    name = trace.field("TimeZoneString")
    if name:
        try:
            return ZoneInfo(name), name
        except (ZoneInfoNotFoundError, ValueError):
            pass
    text = trace.field("TimeZone") or ""
    try:
        offset = timezone(timedelta(seconds=int(text.split()[0])))
    except (IndexError, ValueError):
        return UTC, "UTC"
    return offset, str(offset)
