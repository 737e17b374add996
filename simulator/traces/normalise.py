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
from simulator.traces.swf import FIELDS, NAMES, RESOURCE, SHARED, Oddities, Trace
from simulator.traces.trace_jobs import Bools, Floats, Ints, TraceJobs

#: Field of a trace that numbers the partitions.
PartitionField: TypeAlias = Literal["partition", "queue"]


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


class CleaningReport(Oddities):
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
    The irregularities of the lines follow; see `Oddities`.
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

    @property
    def is_regular(self) -> bool:
        """Whether no job has any irregularity."""
        return not any(getattr(self, name) for name in _WORDS)

    @property
    def sentence(self) -> str:
        """Number of jobs and their irregularities, in one sentence."""
        summary = f"{counted(self.jobs, 'job')}: {self.irregularities or 'nothing odd'}"
        return f"{summary}; {grouped(self.kept)} kept"

    @property
    def irregularities(self) -> str:
        """The irregularities with their numbers; empty if there is none."""
        numbers = {words: getattr(self, name) for name, words in _WORDS.items()}
        return ", ".join(
            f"{grouped(number)} {words}" for words, number in numbers.items() if number
        )


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
    "short_lines": "lines with fields missing",
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
    limits: PartitionLimits | None = None,
    partition_field: PartitionField = "partition",
) -> tuple[TraceJobs, CleaningReport]:
    """Apply the rules of cleaning to a trace for a machine of `processors` processors.

    Parameters
    ----------
    labels : keep the columns of `LABELS`, for predictors.
    limits : of the partitions of the machine, if it has any. A job beyond the limits of its
        partition, also in its requested time, is larger than the machine; one without a request has
        the default.
    partition_field : field by which number n is the nth partition of the machine; jobs whose number
        is not above 0, such as -1 for unknown, are in the first one.

    Raises
    ------
    ReshapeError : a rule says "error" and there is such a job, or no job is left; the number of a
        job stands for no partition.
    """
    rules, column = rules or Rules(), {name: trace.numbers(name) for name in NEEDED}
    given, run = _sizes(column, rules), np.maximum(column["run"], 0.0)
    sizes = np.floor(given)
    partition, requested, most, too_long = _limited(
        trace, column["requested_time"], processors, limits, partition_field
    )
    capacities = trace.capacities()
    resources = _demands(trace, RESOURCE, capacities)
    too_much = [amounts > capacities[name] for name, amounts in resources.items()]
    irregular = {
        "without_time": column["submit"] < 0,
        "without_size": sizes < 1,
        "without_run": run <= 0,
        "without_request": requested <= 0,
        "without_requested_processors": column["requested_processors"] <= 0,
        "overrun": (requested > 0) & (run > requested),
        "larger": (sizes > most) | too_long | np.any(too_much, axis=0),
        "duplicates": _repeated(trace.columns["job"]),
    }
    _refuse(trace, rules, irregular, sizes, most, too_long)
    lines = _kept(trace, irregular, column, rules, processors)
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
        resources={n: np.minimum(each[lines], capacities[n]) for n, each in resources.items()},
        shared={
            name: amounts[lines]
            for name, amounts in _demands(trace, SHARED, trace.capacities(SHARED)).items()
        },
        labels=(_labels(trace, lines) if labels else {}) | _bounds(trace, lines, within),
        partition=partition[lines],
        partitions=() if limits is None else tuple(limits.partitions),
    )
    return jobs, _report(trace, irregular, len(lines), cut=int((sizes < given).sum()))


def _limited(
    trace: Trace,
    requested: Floats,
    processors: int,
    limits: PartitionLimits | None,
    field: PartitionField,
) -> tuple[Ints, Floats, Floats, Bools]:
    """Index of each job's partition, and its requested time (s) within the limits of that.

    Returns
    -------
    the indices, 0 without partitions; the times, missing ones filled in; the most processors of
    each job; whether it requested a longer time than its partition allows.
    """
    jobs = len(requested)
    if limits is None:
        most, too_long = np.full(jobs, float(processors)), np.zeros(jobs, np.bool_)
        return np.zeros(jobs, np.int64), requested, most, too_long
    numbers = np.maximum(trace.numbers(field).astype(np.int64), 1)
    wrong = numbers > len(limits.partitions)
    if wrong.any():
        line = int(np.argmax(wrong))
        title = NAMES[FIELDS.index(field)]
        raise ReshapeError(
            f"{trace.path}: job {int(trace.columns['job'][line])} has {title}"
            f" {int(numbers[line])}, the machine has {counted(len(limits.partitions), 'partition')}"
            f" ({', '.join(limits.partitions)}): name more of them, or choose another"
            " partition_field"
        )
    index, own = numbers - 1, limits.partitions.values()
    largest = np.array([float(limits.largest(name)) for name in limits.partitions])
    longest_s = np.array([each.max_walltime_s or inf for each in own])[index]
    usual_s = np.array([each.default_walltime_s or -1.0 for each in own])[index]
    requested = np.where(requested > 0, requested, usual_s)
    return index, np.minimum(requested, longest_s), largest[index], requested > longest_s


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
            values = trace.columns[name][lines].astype(np.int64)
            bounds[name] = np.where(values > 0, inclusive(values, processors), -1)
    return bounds


def _report(trace: Trace, irregular: Mapping[str, Bools], kept: int, cut: int) -> CleaningReport:
    """Count the jobs to which each rule applies.

    Parameters
    ----------
    cut : sizes that were rounded down; a trace of a program has counted none.
    """
    unsorted = int((np.diff(trace.numbers("submit")) < 0).sum())
    counts = {name: int(mask.sum()) for name, mask in irregular.items()}
    odd = msgspec.structs.asdict(trace.oddities)
    odd["fractions"] = max(odd["fractions"], cut)
    return CleaningReport(jobs=len(trace), kept=kept, unsorted=unsorted, **counts, **odd)


def _kept(
    trace: Trace,
    irregular: Mapping[str, Bools],
    column: Mapping[str, Floats],
    rules: Rules,
    processors: int,
) -> Ints:
    """Lines of the jobs that the rules keep, in the order of submission; refuse to keep none."""
    keep = ~(irregular["without_time"] | irregular["without_size"])
    for name in ("larger", "duplicates", "without_run", "without_request"):
        if getattr(rules, name) == "drop":
            keep &= ~irregular[name]
    lines = np.flatnonzero(keep)
    if not len(lines):
        raise ReshapeError(
            f"{trace.path}: none of {counted(len(trace), 'job')} can run on {processors} processors"
            f" by these rules: {_report(trace, irregular, 0, 0).irregularities}"
        )
    if rules.ties == "number":
        return lines[np.lexsort((column["job"][lines], column["submit"][lines]))]
    return lines[np.argsort(column["submit"][lines], kind="stable")]


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


def _demands(trace: Trace, kind: str, names: Iterable[str]) -> dict[str, Ints]:
    """Demands of the jobs for each resource of a kind of column."""
    columns = {name: trace.numbers(kind + name) for name in names}
    return {n: np.maximum(np.ceil(each), 0).astype(np.int64) for n, each in columns.items()}


def largest_size(trace: Trace) -> int:
    """Most processors that a job of a trace requests or has; at least 1."""
    names = ("processors", "requested_processors")
    return max(1, *(int(trace.numbers(name).max()) for name in names))


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
