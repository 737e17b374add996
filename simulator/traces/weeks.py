"""Weeks cut out of a trace: those in which the machine was busy enough for a study.

Time is cut into windows of 168 h, the first of which begins with the first submission. The
utilization of a window is the processor-seconds that jobs held in it by the log (of a job that
began before or ended after it, the part inside) over those installed (REDIR IV.B: "weeks with a
mean utilization of at least 70 %"). A week then has the jobs that were submitted in it, at times
counted from its beginning: jobs that were submitted before are left out, and runs that end after it
are not cut.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.text.formats import counted
from simulator.traces.swf import Column, Trace

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


class WeekChoice(msgspec.Struct, frozen=True):
    """Weeks that were chosen, and the numbers of the choice.

    Parameters
    ----------
    processors, least : of the machine; least utilization requested.
    windows, full : windows of the trace; those that are busy enough.
    without_wait : jobs that ran and have no wait in the log; they count from their submission.
    never_ran : jobs without run time or processors; they do not count.
    weeks : the chosen ones, by time.
    """

    processors: int
    least: float
    windows: int
    full: int
    without_wait: int
    never_ran: int
    weeks: list[Week]

    @property
    def sentence(self) -> str:
        """The choice in one sentence."""
        odd = ""
        if self.without_wait:
            jobs = counted(self.without_wait, "job")
            odd += f"; {jobs} of unknown wait counted from submission"
        if self.never_ran:
            jobs = counted(self.never_ran, "job")
            odd += f"; {jobs} without run time or processors did not count"
        return (
            f"{counted(self.windows, 'week')}, {self.full} with a utilization of at least"
            f" {self.least:g} on {counted(self.processors, 'processor')},"
            f" {len(self.weeks)} of them taken"
            f"{odd}"
        )


def choose(trace: Trace, processors: int, count: int, least: float, seed: int = 1) -> WeekChoice:
    """Choose weeks of a trace.

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
    held, without_wait, never_ran = _held(trace)
    first = float(submit.min())
    windows = int((float(submit.max()) - first) // WEEK_S) + 1
    begins = first + WEEK_S * np.arange(windows)
    jobs = np.bincount(((submit - first) // WEEK_S).astype(np.int64), minlength=windows)
    weeks = [
        Week(i + 1, begin, _inside(held, begin) / (processors * WEEK_S), int(jobs[i]))
        for i, begin in enumerate(begins.tolist())
    ]
    full = [week for week in weeks if week.utilization >= least and week.jobs]
    if not full:
        busiest = max(week.utilization for week in weeks)
        raise ReshapeError(
            f"{trace.path}: none of its {counted(windows, 'week')} has a utilization of at least"
            f" {least:g} on {processors} processors, the busiest has {busiest:.3f};"
            " give a lower --utilization, or the machine's --processors"
        )
    drawn = np.random.default_rng(seed).permutation(len(full))[:count]
    taken = [full[i] for i in sorted(drawn.tolist())]
    return WeekChoice(processors, least, windows, len(full), without_wait, never_ran, taken)


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


def _held(trace: Trace) -> tuple[NDArray[np.float64], int, int]:
    """Spans in which jobs held processors.

    Returns
    -------
    start, end (seconds) and processors of each job that ran, (3, n) float64; how many of them have
    no wait; how many jobs did not run.
    """
    column = {name: trace.columns[name] for name in ("submit", "wait", "run", "processors")}
    ran = (column["run"] > 0) & (column["processors"] > 0)
    start = column["submit"] + np.maximum(column["wait"], 0)
    held = np.array([start, start + column["run"], column["processors"]], dtype=np.float64)
    return held[:, ran], int((column["wait"][ran] < 0).sum()), int((~ran).sum())


def _inside(held: NDArray[np.float64], begin: float) -> float:
    """Processor-seconds held in the week that begins then."""
    start, end, processors = held
    seconds = np.minimum(end, begin + WEEK_S) - np.maximum(start, begin)
    return float((np.maximum(seconds, 0.0) * processors).sum())
