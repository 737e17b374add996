"""Merging traces: the jobs of several centres in one stream, each with its origin.

GUIM 8.5.2 uses the fusion of the first four months of three traces. Each trace is rebased, so that
its first submission is at time 0. The number of the trace, from 1, becomes the partition of its
jobs, and the header names the partitions. Users, groups and executables of different traces are
different, so their numbers are shifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import numpy as np

from scheduler.text.formats import counted
from simulator.traces.normalise import machine_size
from simulator.traces.swf import FIELDS, Column, Oddities, Trace

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
    return Trace(" + ".join(trace.path for trace in traces), header, columns, Oddities())


def origins(trace: Trace) -> list[str]:
    """Name of the partition of each line of a trace; "" where there is none."""
    names: dict[int, str] = {}
    for line in trace.header:
        key, colon, value = line.lstrip("; \t").partition(":")
        number, _, name = value.strip().partition(" ")
        if colon and key.strip().lower() == "partition" and number.isdecimal():
            names[int(number)] = name.strip()
    column = trace.columns.get("partition")
    if column is None:
        return [""] * len(trace)
    return [names.get(number, "") for number in column.tolist()]


def _part(trace: Trace, number: int, days: float, shifts: dict[str, int]) -> dict[str, Column]:
    """Columns of the first days of a trace, from time 0 on; moves the shifts behind its numbers."""
    submit = trace.columns["submit"]
    known = submit[submit >= 0]
    begin = known.min() if len(known) else 0
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
