"""Traces that are made from others: merged, stretched to a load, or cut into weeks.

*Merged*: the jobs of several centres in one stream, each with its origin. GUIM 8.5.2 uses the
fusion of the first four months of three traces. Each trace is rebased, so that its first submission
is at time 0. The number of the trace, from 1, becomes the partition of its jobs, and the header
names the partitions. Users, groups and executables of different traces are different, so their
numbers are shifted.

*Weeks*: those in which the machine was busy enough for a study. Time is cut into windows of 168 h,
the first of which begins with the first submission. The utilization of a window is the
processor-seconds that jobs held in it by the log (of a job that began before or ended after it, the
part inside) over those installed (REDIR IV.B: "weeks with a mean utilization of at least 70 %"). A
week then has the jobs that were submitted in it, at times counted from its beginning: jobs that
were submitted before are left out, and runs that end after it are not cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.pictures import Series
from scheduler.text.formats import counted
from simulator.traces.normalise import machine_size
from simulator.traces.swf import FIELDS, LARGEST, Column, Trace, header_field
from simulator.traces.trace_jobs import TraceJobs

DAY_S = 86400.0
#: Columns whose numbers belong to one trace.
_LOCAL = ("user", "group", "executable")


def merge(traces: Sequence[Trace], names: Sequence[str] = (), days: float = inf) -> Trace:
    """Merge traces into one, in the order of submission.

    Parameters
    ----------
    names : of the partitions; by default the names of the files.
    days : only the jobs that were submitted within this time of the first one of their trace.

    Raises
    ------
    ValueError : there are no traces, or not as many names.
    """
    if not traces or (names and len(names) != len(traces)):
        raise ValueError(f"{counted(len(traces), 'trace')} cannot have {len(names)} names")
    names = names or [Path(trace.path).name.split(".")[0] for trace in traces]
    parts: list[dict[str, Column]] = []
    shifts = dict.fromkeys(_LOCAL, 0)
    for number, trace in enumerate(traces, 1):
        parts.append(_part(trace, number, days, shifts))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in FIELDS}
    order = np.argsort(columns["submit"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["job"] = np.arange(1, len(order) + 1)
    header = [f"; MaxProcs: {sum(machine_size(trace) for trace in traces)}"]
    header += [f"; Partition: {i} {name}" for i, name in enumerate(names, 1)]
    return Trace(" + ".join(trace.path for trace in traces), header, columns)


def origins(trace: Trace) -> list[str]:
    """Name of the partition of each line of a trace; "" where there is none."""
    names: dict[int, str] = {}
    for line in trace.header:
        key, value = header_field(line)
        number, _, name = value.partition(" ")
        if key == "partition" and number.isdecimal():
            names[int(number)] = name.strip()
    column = trace.columns.get("partition")
    if column is None:
        return [""] * len(trace)
    return [names.get(number, "") for number in column.tolist()]


def _part(trace: Trace, number: int, days: float, shifts: dict[str, int]) -> dict[str, Column]:
    """Columns of the first days of a trace, from time 0 on; moves the shifts behind its numbers."""
    submit = trace.columns["submit"]
    times = submit[submit >= 0]
    begin = times.min() if len(times) else 0
    keep = (submit >= 0) & (submit - begin < days * DAY_S)
    size = int(keep.sum())
    columns: dict[str, Column] = {
        name: trace.columns[name][keep] if name in trace.columns else np.full(size, -1)
        for name in FIELDS
    }
    columns["submit"] = columns["submit"] - begin
    columns["partition"] = np.full(size, number)
    columns["preceding"] = columns["think"] = np.full(size, -1)
    for name in _LOCAL:
        column = columns[name]
        columns[name] = np.where(column >= 0, column + shifts[name], column)
        shifts[name] += max(0, int(column.max(initial=-1))) + 1
    return columns


def offered_load(jobs: TraceJobs, processors: int) -> float | None:
    """Work of the jobs over the processor-seconds between the first and the last submission.

    None if all jobs are submitted at one time.
    """
    span = float(jobs.submitted[-1] - jobs.submitted[0])
    work = float((jobs.run * jobs.processors).sum())
    return work / (processors * span) if span else None


def scaled(trace: Trace, jobs: TraceJobs, processors: int, load: float) -> Trace:
    """Trace whose times between submissions are multiplied by one factor to reach a load.

    Submit times are rounded to whole seconds. The waits are unknown (-1): those of the log belong
    to the other load.

    Parameters
    ----------
    jobs : what the rules keep of the trace; their load counts.
    load : offered load to reach, > 0.

    Raises
    ------
    ValueError : the load is not above 0 and finite.
    ReshapeError : all jobs are submitted at one time.
    """
    if not 0 < load < inf:
        raise ValueError(f"the load must be > 0 and finite, got {load}")
    now = offered_load(jobs, processors)
    if not now:
        raise ReshapeError(f"{trace.path}: all jobs are submitted at one time; there is no load")
    submit = trace.columns["submit"].astype(np.float64)
    first = float(jobs.submitted[0])
    moved = np.round(first + (submit - first) * (now / load))
    if moved.max() > LARGEST:
        raise ReshapeError(
            f"{trace.path}: with the load {load:g} the last job is submitted after"
            f" {moved.max():.3g} s, more than {LARGEST:g}; give a larger load"
        )
    columns = dict(trace.columns)
    columns["submit"] = np.where(submit < 0, submit, np.maximum(moved, 0)).astype(np.int64)
    columns["wait"] = np.full(len(trace), -1, np.int64)
    return Trace(trace.path, trace.header, columns, trace.oddities)


WEEK_S = 168 * 3600.0


class Week(msgspec.Struct, frozen=True):
    """A window of a trace.

    Parameters
    ----------
    number : from 1, by time.
    begin : seconds on the clock of the trace.
    utilization : share of the machine that the log's jobs held; above 1 if they overlap there.
    jobs : lines of the trace submitted in it.
    """

    number: int
    begin: float
    utilization: float
    jobs: int


def choose(trace: Trace, processors: int, count: int, least: float, seed: int = 1) -> list[Week]:
    """Choose weeks of a trace, in the order of time.

    Parameters
    ----------
    processors : of the machine.
    count : number of weeks; fewer if there are not as many.
    least : least utilization.
    seed : draws the weeks if there are more.

    Raises
    ------
    ReshapeError : there is none.
    """
    submit = trace.columns["submit"].astype(np.float64)
    first = float(submit.min())
    windows = int((float(submit.max()) - first) // WEEK_S) + 1
    edges = np.asarray(first + WEEK_S * np.arange(windows + 1), np.float64)
    jobs = np.bincount(((submit - first) // WEEK_S).astype(np.int64), minlength=windows)
    columns = edges[:-1].tolist(), _utilizations(trace, processors, edges), jobs.tolist()
    weeks = [Week(i, *values) for i, values in enumerate(zip(*columns, strict=True), 1)]
    full = [week for week in weeks if week.utilization >= least and week.jobs]
    if not full:
        busiest = max(week.utilization for week in weeks)
        raise ReshapeError(
            f"{trace.path}: none of its {counted(windows, 'week')} has a utilization of at least"
            f" {least:g} on {processors} processors, the busiest has {busiest:.3f};"
            " give a lower utilization, or the number of processors of the machine"
        )
    drawn = np.random.default_rng(seed).permutation(len(full))[:count]
    return [full[i] for i in sorted(drawn.tolist())]


def cut(trace: Trace, week: Week) -> Trace:
    """Trace of one week, whose times count from its beginning."""
    submit, begin = trace.columns["submit"], week.begin
    inside = (submit >= begin) & (submit < begin + WEEK_S)
    columns: dict[str, Column] = {name: column[inside] for name, column in trace.columns.items()}
    if submit.dtype == np.int64:  # then so is the beginning of a week
        columns["submit"] = (submit[inside] - int(begin)).astype(np.int64)
    else:
        columns["submit"] = submit[inside].astype(np.float64) - begin
    return Trace(trace.path, trace.header, columns, trace.oddities)


def _utilizations(trace: Trace, processors: int, edges: NDArray[np.float64]) -> list[float]:
    """Share of the machine that the jobs of a log held between any two edges.

    A job whose wait the log does not record counts from its submission.
    """
    column = {name: trace.columns[name] for name in ("submit", "wait", "run", "processors")}
    ran = (column["run"] > 0) & (column["processors"] > 0)
    if not ran.any():
        return [0.0] * (len(edges) - 1)
    start = column["submit"] + np.maximum(column["wait"], 0)
    spans = (start, start + column["run"], column["processors"])
    means, _ = Series.of(*(each[ran].astype(np.float64) for each in spans)).between(edges)
    shares: list[float] = (means / processors).tolist()
    return shares
