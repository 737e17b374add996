"""Pictures of variables over a simulation, as GUIM 4.2.3 draws them.

Of the jobs: slowdown, bounded slowdown, wait and penalised run time over the submissions, and how
many jobs were completed and killed, by centre. Of the machine: every sampled variable over time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler import pictures as drawing
from simulator.traces.swf import LARGEST

#: Column -> numbers, nan where there is none, or texts.
Columns: TypeAlias = dict[str, NDArray[Any]]
#: Columns of texts.
TEXTS = ("job_id", "selection", "centre")


def read_columns(path: Path, needed: Iterable[str]) -> Columns | None:
    """Read a table; None if there is no such file.

    Parameters
    ----------
    needed : columns that must be there.

    Raises
    ------
    ReshapeError : it cannot be read, lacks a column or has one twice, or a field is no number up to
        `LARGEST`; the message names file, line and column.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        return None
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise ReshapeError(f"{path}: cannot be read: {error}") from None
    for line, row in rows:
        if len(row) != len(header):
            raise ReshapeError(f"{path}:{line}: {len(row)} fields, the header has {len(header)}")
    for name in needed:
        if header.count(name) != 1:
            what = "no column" if name not in header else "more than one column"
            raise ReshapeError(f"{path}: {what} {name:.80}; write it with reshape simulate --out")
    columns: Columns = {}
    for index, name in enumerate(header):
        fields = [(line, row[index]) for line, row in rows]
        if name in TEXTS:
            columns[name] = np.array([text for _, text in fields])
        else:
            columns[name] = np.array([_number(path, line, name, text) for line, text in fields])
    return columns


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        number = float(text) if text else np.nan
    except ValueError:
        number = np.inf
    if abs(number) > LARGEST:
        raise ReshapeError(f"{path}:{line}: {column:.80}: {text[:80]!r} is not a number up to 1e15")
    return number


DAY_S: Final = 86400.0
#: Spans of jobs for medians and 95th percentiles; spans of samples for means.
SPANS: Final = 60
MOST_SAMPLES: Final = 1000
OVER_JOBS: Final = {
    "wait_s": "wait, s",
    "slowdown": "slowdown",
    "bounded_slowdown": "bounded\nslowdown",
    "penalised_s": "penalised\nrun time, s",
}
OF_MACHINE: Final = {
    "queued_jobs": "queued\njobs",
    "running_jobs": "running\njobs",
    "processors_used": "processors\nused",
    "pending_work": "pending work,\nprocessor-hours",
    "submitted_jobs": "submitted\njobs",
    "backfilled_jobs": "backfilled\njobs",
    "killed_jobs": "killed\njobs",
}


KINDS: Final = ("completed", "killed", "backfilled")
#: Columns that are drawn.
OF_JOBS: Final = ("submission_time", *OVER_JOBS, *KINDS)
OF_SAMPLES: Final = ("time", *OF_MACHINE)


def draw_jobs(columns: Columns, about: str) -> Figure:
    """Draw the variables of jobs over their submissions, and how the jobs ended."""
    names = [name for name in OVER_JOBS if _varies(columns[name])]
    figure = drawing.new_figure(2.4 + 1.7 * len(names), f"Jobs: {about}")
    days = (columns["submission_time"] - columns["submission_time"].min()) / DAY_S
    order = np.argsort(days, kind="stable")
    spec = figure.add_gridspec(len(names) + 1, 1, height_ratios=[1.7] * len(names) + [1.4])
    above: Axes | None = None
    for index, name in enumerate(names):
        axes = figure.add_subplot(spec[index], sharex=above)
        above = above or axes
        _over_jobs(axes, days[order], columns[name][order], positive=name.endswith("_s"))
        axes.set_ylabel(OVER_JOBS[name])
        if index == 0:
            axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
            axes.set_title("waits below 1 s are drawn at 1 s", loc="right", fontsize=9)
        if index == len(names) - 1:
            axes.set_xlabel("submission, days since the first one")
        else:
            axes.tick_params(labelbottom=False)
    _ends(figure.add_subplot(spec[len(names)]), columns)
    figure.align_ylabels()
    return figure


def draw_samples(columns: Columns, about: str) -> Figure:
    """Draw the sampled variables over time; constant ones are left out."""
    names = [name for name in OF_MACHINE if _varies(columns[name])] or ["processors_used"]
    figure = drawing.new_figure(1 + 1.25 * len(names), f"Machine: {about}")
    rows = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    times = (columns["time"] - columns["time"].min()) / DAY_S
    for axes, name in zip(rows, names, strict=True):
        values = columns[name] / (3600 if name == "pending_work" else 1)
        _over_time(axes, times, values)
        axes.set_ylabel(OF_MACHINE[name])
        drawing.reduce_frame(axes)
    rows[-1].set_xlabel("days since the first sample")
    rows[0].margins(x=0.01)
    figure.align_ylabels()
    return figure


def _varies(values: NDArray[np.float64]) -> bool:
    there = values[~np.isnan(values)]
    return len(there) > 0 and bool(there.max() > there.min())


def _over_jobs(
    axes: Axes, days: NDArray[np.float64], values: NDArray[np.float64], *, positive: bool
) -> None:
    """Draw a dot for each job, and median and 95th percentile over spans of jobs."""
    shown = np.maximum(values, 1.0) if positive else values
    area = float(np.clip(6000 / max(1, len(shown)), 2, 12))  # few dots are drawn larger
    axes.scatter(days, shown, s=area, color=drawing.WAITING, alpha=0.5, linewidths=0,
                 rasterized=True, label="a job")  # fmt: skip
    there = np.flatnonzero(~np.isnan(shown))
    spans = [span for span in np.array_split(there, SPANS) if len(span)]
    middles = [float(days[span].mean()) for span in spans]
    axes.plot(middles, [float(np.median(shown[span])) for span in spans], color=drawing.INK,
              label="median")  # fmt: skip
    axes.plot(
        middles,
        [float(np.percentile(shown[span], 95)) for span in spans],
        color="#d98c2b",
        label="95th percentile",
    )
    axes.set_yscale("log")
    axes.margins(x=0.01)
    drawing.reduce_frame(axes)


def _over_time(axes: Axes, times: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """Draw the samples, or means over spans of them and the largest of each span."""
    if len(times) > MOST_SAMPLES:
        spans = [span for span in np.array_split(np.arange(len(times)), MOST_SAMPLES) if len(span)]
        times = np.array([times[span[0]] for span in spans])
        axes.plot(times, [float(values[span].max()) for span in spans], color=drawing.INK,
                  linewidth=0.5)  # fmt: skip
        values = np.array([float(values[span].mean()) for span in spans])
    axes.fill_between(times, values, step="post", color="#1f6fb2", alpha=0.6, linewidth=0)
    axes.set_ylim(bottom=0)


def _ends(axes: Axes, columns: Columns) -> None:
    """Draw how many jobs were completed, killed and backfilled, by centre."""
    centres = np.unique(columns["centre"]) if "centre" in columns else np.array(["jobs"])
    for index, centre in enumerate(centres):
        of = columns["centre"] == centre if "centre" in columns else slice(None)
        counts = [int(columns[kind][of].sum()) for kind in KINDS]
        y = np.arange(len(KINDS)) + 0.8 * index / len(centres)
        bars = axes.barh(y, counts, 0.7 / len(centres), label=str(centre))
        axes.bar_label(bars, [str(number) for number in counts], padding=3, fontsize=9)
    axes.set_yticks(np.arange(len(KINDS)), KINDS)
    axes.invert_yaxis()
    axes.set_xlabel("jobs")
    axes.margins(x=0.1)
    if len(centres) > 1:
        axes.legend(loc="best", frameon=False, fontsize=9)
    drawing.reduce_frame(axes)
