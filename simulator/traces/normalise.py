"""Cleaning: from the lines of a trace to jobs that can run, by rules for irregular fields.

Each rule is an option with a default; a `CleaningReport` counts the jobs to which it applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError, ReshapeError
from scheduler.config.partitions import PartitionLimits
from scheduler.text.formats import counted, grouped
from simulator.traces.swf import FIELDS, LARGEST, NAMES, RESOURCE, SHARED, Trace
from simulator.traces.trace_jobs import Bools, Floats, Ints, TraceJobs

#: Field of a trace that numbers the partitions.
PartitionField: TypeAlias = Literal["partition", "queue"]


class TracePartitions(msgspec.Struct, frozen=True):
    """Partitions of the jobs of a trace, in the order of its lines.

    Parameters
    ----------
    names : of the partitions.
    index : (n,) int64, index of each job's partition among the names.
    most : (n,) float64, largest number of processors of a job in that partition.
    longest_s, usual_s : (n,) float64, its longest walltime, inf without a limit, and the walltime
        of jobs that request none, -1 if it sets none.
    """

    names: tuple[str, ...]
    index: NDArray[np.int64]
    most: NDArray[np.float64]
    longest_s: NDArray[np.float64]
    usual_s: NDArray[np.float64]

    @classmethod
    def of(cls, trace: Trace, limits: PartitionLimits, field: PartitionField) -> TracePartitions:
        """Read the partitions of the jobs: number n is the nth partition of the machine.

        Jobs whose number is not above 0, such as -1 for unknown, are in the first partition.

        Raises
        ------
        ReshapeError : a job has a larger number than there are partitions.
        """
        names = tuple(limits.partitions)
        unknown = np.full(len(trace), -1)
        numbers = np.maximum(trace.columns.get(field, unknown).astype(np.int64), 1)
        wrong = numbers > len(names)
        if wrong.any():
            line = int(np.argmax(wrong))
            title = NAMES[FIELDS.index(field)]
            raise ReshapeError(
                f"{trace.path}: job {int(trace.columns['job'][line])} has {title}"
                f" {int(numbers[line])}, the machine has {counted(len(names), 'partition')}"
                f" ({', '.join(names)}): name more of them, or choose another partition_field"
            )
        index, own = numbers - 1, limits.partitions.values()
        return cls(
            names,
            index,
            _of_each((limits.largest(name) for name in names), index),
            _of_each((partition.max_walltime_s or inf for partition in own), index),
            _of_each((partition.default_walltime_s or -1 for partition in own), index),
        )


def _of_each(values: Iterable[float], index: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array(list(values), dtype=np.float64)[index]


#: Columns of a trace that `normalise` looks at.
NEEDED = (
    "job", "submit", "run", "processors", "requested_processors", "requested_time", "user", "queue",
)  # fmt: skip
#: Columns that become labels of the jobs if they were read: field of `JobSpec` -> column.
LABELS = {"group": "group", "executable": "executable", "memory_kib": "requested_memory"}
#: Columns of a program, and fields of `JobSpec`: bounds on the sizes of resizable jobs.
BOUNDS = ("min_processors", "max_processors")


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules for the irregular jobs of a trace; the first choice is the default.

    Parameters
    ----------
    processors : "requested" takes the processors requested, those allocated where none are;
        "allocated" the other way round.
    larger : jobs of more processors than the machine: "drop" them, "cap" them to all of the
        machine, or "error".
    overrun : jobs that ran longer than requested: "cut" the run at the request (as a system that
        kills at the walltime would have), "extend" the request to the run, or "keep" both, so that
        they exceed their estimates.
    without_request : jobs that requested no time: the "run" time replaces the request, or "drop".
    without_run : jobs whose run time is not above 0 (never started, or unknown): "drop" them, or
        "keep" them as jobs of 0 s that requested at least 1 s.
    duplicates : jobs of a number seen before: "keep", "drop" or "error".
    ties : jobs submitted in the same second come in the order of the "file" or of their "number".
    priority : user-assigned priority: "none", or "queue", the number of the queue, larger first.
    exact : run times replace the requests.
    """

    processors: Literal["requested", "allocated"] = "requested"
    larger: Literal["drop", "cap", "error"] = "drop"
    overrun: Literal["cut", "extend", "keep"] = "cut"
    without_request: Literal["run", "drop"] = "run"
    without_run: Literal["drop", "keep"] = "drop"
    duplicates: Literal["keep", "drop", "error"] = "keep"
    ties: Literal["file", "number"] = "file"
    priority: Literal["none", "queue"] = "none"
    exact: bool = False


class CleaningReport(msgspec.Struct, frozen=True):
    """Numbers of jobs, or of lines, with each irregularity of a trace.

    Parameters
    ----------
    jobs, kept : in the trace; left by the rules.
    without_time : without a submit time (always dropped).
    without_size : neither requested nor allocated processors (always dropped).
    without_run, without_request, without_requested_processors : not above 0 in the trace.
    overrun : ran longer than requested.
    larger : of more processors than the machine.
    duplicates : with the number of an earlier one.
    unsorted : submitted before the one in the line above.
    comments_inside, blank_lines, short_lines, fractions, skipped_lines : see `Oddities`.
    """

    jobs: int
    kept: int
    without_time: int
    without_size: int
    without_run: int
    without_request: int
    without_requested_processors: int
    overrun: int
    larger: int
    duplicates: int
    unsorted: int
    comments_inside: int
    blank_lines: int
    short_lines: int
    fractions: int
    skipped_lines: int

    @property
    def is_regular(self) -> bool:
        """Whether no job has any irregularity."""
        return not any(getattr(self, name) for name in _WORDS)

    @property
    def sentence(self) -> str:
        """Number of jobs and their irregularities, in one sentence."""
        irregular = [
            f"{grouped(getattr(self, name))} {words}"
            for name, words in _WORDS.items()
            if getattr(self, name)
        ]
        summary = f"{counted(self.jobs, 'job')}: " + (", ".join(irregular) or "nothing odd")
        return f"{summary}; {grouped(self.kept)} kept"


_WORDS = {
    "without_request": "without requested time",
    "without_requested_processors": "without requested processors",
    "overrun": "ran longer than requested",
    "without_run": "without run time",
    "without_size": "without processors",
    "without_time": "without submit time",
    "larger": "larger than the machine",
    "duplicates": "with a number seen before",
    "unsorted": "out of order",
    "short_lines": "lines of fewer than 18 fields",
    "fractions": "fractions where whole numbers belong (processors are rounded down)",
    "comments_inside": "comments between the jobs",
    "blank_lines": "blank lines",
    "skipped_lines": "malformed lines skipped",
}


def normalise(
    trace: Trace,
    processors: int,
    rules: Rules | None = None,
    *,
    labels: bool = False,
    partitions: TracePartitions | None = None,
) -> tuple[TraceJobs, CleaningReport]:
    """Apply the rules of cleaning to a trace for a machine of `processors` processors.

    Parameters
    ----------
    labels : keep the columns of `LABELS`, for predictors.
    partitions : of the jobs, if the machine has any. A job beyond the limits of its partition, also
        in its requested time, is larger than the machine; one without a request has the default.

    Raises
    ------
    ReshapeError : a rule says "error" and there is such a job, or no job is left.
    """
    rules, column = rules or Rules(), {name: _column(trace, name) for name in NEEDED}
    given, run = _sizes(column, rules), np.maximum(column["run"], 0.0)
    sizes = np.floor(given)
    requested, most, too_long = _limited(column["requested_time"], processors, partitions)
    names, resources, capacities = _demands(trace, RESOURCE, trace.capacities())
    shared_names, shared, _ = _demands(trace, SHARED, trace.shared_capacities())
    irregular = {
        "without_time": column["submit"] < 0,
        "without_size": sizes < 1,
        "without_run": run <= 0,
        "without_request": requested <= 0,
        "without_requested_processors": column["requested_processors"] <= 0,
        "overrun": (requested > 0) & (run > requested),
        "larger": (sizes > most) | too_long | (resources > capacities).any(axis=1),
        "duplicates": _repeated(trace.columns["job"]),
    }
    _refuse(trace, rules, irregular, sizes, most, too_long)
    lines = _some(_ordered(_kept(irregular, rules), column, rules), trace, processors)
    run, estimate = _times(requested[lines], run[lines], rules)
    within = np.minimum(sizes, most)[lines].astype(np.int64)
    jobs = TraceJobs(
        lines=lines,
        numbers=trace.columns["job"][lines].astype(np.int64),
        submitted=column["submit"][lines],
        run=run,
        estimate=np.maximum(run if rules.exact else estimate, np.where(run > 0, 0.0, 1.0)),
        processors=within,
        users=column["user"][lines].astype(np.int64),
        priorities=column["queue"][lines] * (rules.priority == "queue"),
        cut=irregular["overrun"][lines] & (rules.overrun == "cut"),
        resources=np.minimum(resources[lines], capacities),
        names=names,
        shared=shared[lines],
        shared_names=shared_names,
        labels=(_labels(trace, lines) if labels else {}) | _bounds(trace, lines, within),
        partition=np.zeros(0, np.int64) if partitions is None else partitions.index[lines],
        partitions=() if partitions is None else partitions.names,
    )
    return jobs, _report(trace, irregular, len(lines), cut=int((sizes < given).sum()))


def _some(lines: Ints, trace: Trace, processors: int) -> Ints:
    """Return the lines of the jobs that are left; refuse a trace without any."""
    if not len(lines):
        raise ReshapeError(
            f"{trace.path}: none of {counted(len(trace), 'job')} can run on {processors} processors"
            " by these rules; see `reshape workload info`"
        )
    return lines


def _limited(
    requested: Floats, processors: int, partitions: TracePartitions | None
) -> tuple[Floats, Floats, Bools]:
    """Requested times (s) within the limits of partitions, which fill in missing ones.

    Returns
    -------
    the times; the most processors of each job; whether it requested more than its partition allows.
    """
    if partitions is None:
        jobs = len(requested)
        return requested, np.full(jobs, float(processors)), np.zeros(jobs, np.bool_)
    requested = np.where(requested > 0, requested, partitions.usual_s)
    within = np.minimum(requested, partitions.longest_s)
    return within, partitions.most, requested > partitions.longest_s


def _labels(trace: Trace, lines: Ints) -> dict[str, Ints]:
    """Labels of the jobs on these lines, as far as their columns were read."""
    return {
        name: trace.columns[field][lines].astype(np.int64)
        for name, field in LABELS.items()
        if field in trace.columns
    }


def _bounds(trace: Trace, lines: Ints, processors: Ints) -> dict[str, Ints]:
    """Bounds on the sizes of the jobs on these lines, which include their processors; -1: none."""
    bounds = {}
    for name, inclusive in zip(BOUNDS, (np.minimum, np.maximum), strict=True):
        if name in trace.columns:
            given = trace.columns[name][lines].astype(np.int64)
            bounds[name] = np.where(given > 0, inclusive(given, processors), -1)
    return bounds


def _report(trace: Trace, irregular: Mapping[str, Bools], kept: int, cut: int) -> CleaningReport:
    """Count the jobs to which each rule applies.

    Parameters
    ----------
    cut : sizes that were rounded down; a trace of a program has counted none.
    """
    unsorted = int((np.diff(_column(trace, "submit")) < 0).sum())
    counts = {name: int(mask.sum()) for name, mask in irregular.items()}
    odd = msgspec.structs.asdict(trace.oddities)
    del odd["first_skipped"]
    odd["fractions"] = max(odd["fractions"], cut)
    return CleaningReport(jobs=len(trace), kept=kept, unsorted=unsorted, **counts, **odd)


def _kept(irregular: Mapping[str, Bools], rules: Rules) -> Ints:
    """Lines of the jobs that the rules keep."""
    keep = ~(irregular["without_time"] | irregular["without_size"])
    for name in ("larger", "duplicates", "without_run", "without_request"):
        if getattr(rules, name) == "drop":
            keep &= ~irregular[name]
    return np.flatnonzero(keep)


def _times(requested: Floats, run: Floats, rules: Rules) -> tuple[Floats, Floats]:
    """Run times and estimates, s, of jobs with these requested times and recorded run times."""
    estimate = np.where(requested > 0, requested, run)
    if rules.overrun == "cut":
        run = np.minimum(run, estimate)
    elif rules.overrun == "extend":
        estimate = np.maximum(run, estimate)
    return run, estimate


def machine_size(trace: Trace) -> int:
    """Processors of the machine a trace comes from, by its header.

    Raises
    ------
    ReshapeError : the header does not declare it.
    """
    names = ("MaxProcs", "MaxNodes")
    for name in names:
        declared = trace.declared(name)
        if declared:
            return declared
    fields = [f"{name}: {text}" for name in names if (text := trace.field(name)) is not None]
    what = f"has no {' or '.join(names)}"
    if fields:
        what = f"says {', '.join(fields)}, no number above 0"
    raise ReshapeError(
        f"{trace.path}: the header {what}; give --processors N"
        f" (the largest job asks for {largest_size(trace)})"
    )


def _demands(
    trace: Trace, kind: str, capacities: Mapping[str, int]
) -> tuple[tuple[str, ...], Ints, Ints]:
    """Names of resources of a kind of column, (n, k) demands of the jobs, (k,) capacities."""
    columns = [_column(trace, kind + name) for name in capacities]
    amounts = np.stack(columns, axis=1) if columns else np.zeros((len(trace), 0))
    has = np.array(list(capacities.values()), dtype=np.int64)
    return tuple(capacities), np.maximum(np.ceil(amounts), 0).astype(np.int64), has


def largest_size(trace: Trace) -> int:
    """Most processors that a job of a trace requests or has; at least 1."""
    names = ("processors", "requested_processors")
    return max(1, *(int(_column(trace, name).max()) for name in names))


def _column(trace: Trace, name: str) -> Floats:
    """Column as float64; -1 everywhere if it was not read."""
    if name in trace.columns:
        column = trace.columns[name].astype(np.float64)
        _check_finite(trace, name, column)
        return column
    return np.full(len(trace), -1.0)


def _check_finite(trace: Trace, name: str, column: Floats) -> None:
    """Check the bounds that a file has; a program may have changed the columns."""
    wrong = ~(np.abs(column) <= LARGEST)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ReshapeError(
            f"{trace.path}: column {name}: row {row}: must be a number up to {LARGEST:g}, got"
            f" {column[row]:g}"
        )


def _sizes(column: dict[str, Floats], rules: Rules) -> Floats:
    """Processors of each job, which need not be whole."""
    first, second = column["requested_processors"], column["processors"]
    if rules.processors == "allocated":
        first, second = second, first
    return np.where(first > 0, first, second)


def _repeated(numbers: NDArray[np.int64] | Floats) -> Bools:
    """Whether each number occurred before, (n,) bool."""
    order = np.argsort(numbers, kind="stable")
    repeated = np.zeros(len(numbers), dtype=np.bool_)
    repeated[order[1:]] = numbers[order[1:]] == numbers[order[:-1]]
    return repeated


def _ordered(lines: Ints, column: dict[str, Floats], rules: Rules) -> Ints:
    """Lines in the order of submission."""
    if rules.ties == "number":
        return lines[np.lexsort((column["job"][lines], column["submit"][lines]))]
    return lines[np.argsort(column["submit"][lines], kind="stable")]


def _refuse(
    trace: Trace,
    rules: Rules,
    irregular: Mapping[str, Bools],
    sizes: Floats,
    most: Floats,
    beyond: Bools,
) -> None:
    """Refuse the first job for which a rule says "error"; see `_limited` for the limits."""
    refused = [name for name in ("larger", "duplicates") if getattr(rules, name) == "error"]
    name = next((name for name in refused if irregular[name].any()), None)
    if name is None:
        return
    line = int(np.argmax(irregular[name]))
    number, processors, too_long = int(trace.columns["job"][line]), int(most[line]), beyond[line]
    if name == "larger" and trace.is_table and not too_long and sizes[line] > processors:
        raise ConfigError(
            f"row {line}: must be at most {processors}, the processors of the machine, got"
            f" {sizes[line]:g}; leave the row out, or give with_rules(larger='drop') or 'cap'",
            field="processors",
        )
    if name == "larger" and too_long:
        what = "asks for a longer time than its partition allows"
        fix = "the rule larger=drop leaves such jobs out, larger=cap gives them the longest time"
    elif name == "larger" and sizes[line] <= processors:
        what = "asks for more of a further resource than the header's Resources name"
        fix = "the rule larger=drop leaves such jobs out, larger=cap gives them all there is"
    elif name == "larger":
        what = f"asks for {counted(int(sizes[line]), 'processor')}, the machine has {processors}"
        fix = "the rule larger=drop leaves such jobs out, larger=cap gives them the whole machine"
    else:
        what = "is in the trace more than once"
        fix = "the rule duplicates=keep runs them all, duplicates=drop the first of each"
    raise ReshapeError(f"{trace.path}: job {number} {what}; {fix}")
