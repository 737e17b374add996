"""Gantt charts on a common time axis: of several runs of one workload, or of several sites.

Each job has one colour, a shade of the hue of its kind of application, which is the same in all
runs. Its area covers the processors that it holds. The hatched part is allocated, but the job does
not compute on it yet because new processes are starting. A panel below each run shows the number of
waiting jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from scheduler import pictures as drawing
from scheduler.client.demo.report import AllocationSpan, allocation_spans, is_committed
from scheduler.model.procset import ProcSet
from scheduler.pictures import INK, group_by_host, steps
from scheduler.protocol.messages import JobInfo

Box = tuple[float, float, float, float]  # begin, lowest processor, seconds, processors
Colour = tuple[float, float, float]
#: Lightest and darkest shade of each kind; one hue for each kind, safe for colour blindness.
_SHADES: tuple[tuple[Colour, Colour], ...] = (
    ((0.70, 0.84, 0.95), (0.16, 0.45, 0.72)),  # blue
    ((0.99, 0.82, 0.60), (0.88, 0.48, 0.07)),  # orange
    ((0.72, 0.89, 0.75), (0.12, 0.53, 0.36)),  # green
    ((0.86, 0.86, 0.88), (0.53, 0.54, 0.58)),  # grey
    ((0.90, 0.78, 0.92), (0.55, 0.30, 0.62)),  # purple
)


class Panel(NamedTuple):
    """One run, or one site: its jobs, which have the same numbers in all runs.

    Parameters
    ----------
    jobs : the jobs that ran there; may be empty.
    processors : number of processors of the machine.
    begin : time of the first submission of the run, Unix seconds.
    hosts : processors of each host, by which the rows are grouped; empty: they are not.
    """

    title: str
    jobs: Sequence[JobInfo]
    processors: int
    begin: float
    hosts: Mapping[str, ProcSet] = MappingProxyType({})


def draw(panels: Sequence[Panel], kinds: Mapping[int, str], title: str) -> Figure:
    """Draw the panels one below the other; their heights follow the numbers of processors.

    Parameters
    ----------
    kinds : job number -> kind of application, in the order of the legend.
    """
    colours = job_colours(kinds)
    figure = drawing.new_figure(1.2 + 3.7 * len(panels), title)
    ends = [
        max((job.ended_at or panel.begin for job in panel.jobs), default=panel.begin) - panel.begin
        for panel in panels
    ]
    longest = max(ends)
    mean = sum(panel.processors for panel in panels) / len(panels)
    heights = [max(2.0, 5 * panel.processors / mean) for panel in panels]
    axes = figure.subplots(
        2 * len(panels),
        1,
        sharex=True,
        height_ratios=[part for height in heights for part in (height, 1)],
        squeeze=False,
    )[:, 0]
    for i, panel in enumerate(panels):
        gantt, waiting = axes[2 * i], axes[2 * i + 1]
        _draw_run(gantt, panel, colours, narrow=longest / 50)
        if panel.jobs:
            gantt.axvline(ends[i], color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
        _draw_waiting(waiting, panel.jobs, panel.begin)
    axes[-1].set_xlim(0, 1.01 * longest)
    axes[-1].set_xlabel("time since the first submission (s)")
    figure.legend(handles=_legend(kinds), loc="outside lower center", ncols=6, frameon=False)
    return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a picture as PNG and SVG."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:
        path.write_bytes(drawing.encode(figure, path.suffix[1:]))
    return paths


def job_colours(kinds: Mapping[int, str]) -> dict[int, str]:
    """Assign each job a shade of the hue of its kind."""
    order = list(dict.fromkeys(kinds.values()))
    colours = {}
    for kind in order:
        numbers = [number for number, its in kinds.items() if its == kind]
        light, dark = _SHADES[order.index(kind) % len(_SHADES)]
        for number, part in zip(numbers, np.linspace(0, 1, max(2, len(numbers))), strict=False):
            shade = (1 - part) * np.array(light) + part * np.array(dark)
            colours[number] = to_hex(shade.tolist())
    return colours


def _draw_run(
    axes: Axes,
    panel: Panel,
    colours: Mapping[int, str],
    narrow: float,
) -> None:
    """Draw the jobs of one panel.

    Parameters
    ----------
    narrow : areas shorter than this many seconds are not numbered, except the largest of a job.
    """
    origin = panel.begin
    for job in panel.jobs:
        parts = [
            AllocationSpan(part.begin - origin, part.end - origin, part.held)
            for part in allocation_spans(job)
        ]
        boxes = [box for part in parts for box in _boxes(part)]
        patches = [Rectangle((x, y), width, height) for x, y, width, height in boxes]
        axes.add_collection(PatchCollection(patches, facecolor=colours[job.job], linewidth=0))
        starting = [
            Rectangle((x, y), width, height)
            for part in starting_spans(job)
            for x, y, width, height in _boxes(
                AllocationSpan(part.begin - origin, part.end - origin, part.held)
            )
        ]
        axes.add_collection(
            PatchCollection(
                starting, facecolor="#ffffff90", edgecolor=INK, hatch="////", linewidth=0
            )
        )
        axes.add_collection(LineCollection(outline(parts), colors=INK, linewidths=0.9))
        _write_number(axes, job.job, boxes, narrow)
    axes.set_ylim(-0.5, panel.processors - 0.5)
    axes.set_yticks(range(0, panel.processors, max(1, panel.processors // 8)))
    axes.set_ylabel("processor")
    axes.set_title(panel.title, loc="left", fontsize=10.5, color=INK)
    drawing.reduce_frame(axes)
    axes.set_facecolor(drawing.GROUND)
    group_by_host(axes, panel.hosts)


def _boxes(part: AllocationSpan) -> list[Box]:
    width = part.end - part.begin
    return [(part.begin, a - 0.5, width, b - a + 1) for a, b in part.held.intervals]


def outline(parts: Sequence[AllocationSpan]) -> list[list[tuple[float, float]]]:
    """Return the boundary lines of the area that a job covers, without inner lines."""
    lines = []
    for part in parts:
        for a, b in part.held.intervals:
            for y in (a - 0.5, b + 0.5):
                lines.append([(part.begin, y), (part.end, y)])
    nothing = ProcSet()
    times = sorted({part.begin for part in parts} | {part.end for part in parts})
    for at in times:
        before = next((part.held for part in parts if part.end == at), nothing)
        after = next((part.held for part in parts if part.begin == at), nothing)
        for a, b in ((before - after) | (after - before)).intervals:
            lines.append([(at, a - 0.5), (at, b + 0.5)])
    return lines


def starting_spans(job: JobInfo) -> list[AllocationSpan]:
    """Return the allocations on which a job did not compute yet because processes were starting."""
    parts = allocation_spans(job)
    spans = []
    for resize in job.resizes:
        if resize.new <= resize.old:
            continue
        at = next((part.begin for part in parts if part.begin >= resize.at), None)
        if at is None:
            continue
        before = next((part.held for part in parts if part.end == at), ProcSet())
        until = (
            next((when for when, size in job.sizes if when > at and size == resize.new), None)
            if is_committed(resize)
            else None
        )
        for part in parts:
            if part.begin == at:
                end = part.end if until is None else min(until, job.ended_at or until)
                spans.append(AllocationSpan(at, end, part.held - before))
    return spans


def waiting_spans(job: JobInfo) -> list[tuple[float, float]]:
    """Return begin and end of the intervals in which a job waited, after a requeue too."""
    held = allocation_spans(job)
    last = job.ended_at if job.ended_at is not None else job.submitted_at
    begins = [job.submitted_at, *(part.end for part in held)]
    ends = [*(part.begin for part in held), last]
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]


def _write_number(axes: Axes, number: int, boxes: Sequence[Box], narrow: float) -> None:
    """Write the number of a job into the largest box of each connected area."""
    largest = [max(area, key=_size) for area in connected_areas(boxes)]
    for box in largest:
        x, y, width, height = box
        if width < narrow and box != max(largest, key=_size):
            continue
        axes.text(
            x + width / 2,
            y + height / 2,
            str(number),
            ha="center",
            va="center",
            fontsize=9,
            fontweight="bold",
            color=INK,
            clip_on=True,
        )


def _size(box: Box) -> float:
    return box[2] * box[3]


def connected_areas(boxes: Sequence[Box]) -> list[list[Box]]:
    """Partition boxes into connected areas; boxes are connected if they share part of an edge."""
    areas: list[list[Box]] = []
    for box in boxes:
        touched = [area for area in areas if any(_touch(box, other) for other in area)]
        areas = [area for area in areas if area not in touched]
        areas.append([box, *(other for area in touched for other in area)])
    return areas


def _touch(one: Box, other: Box) -> bool:
    rows = one[1] < other[1] + other[3] and other[1] < one[1] + one[3]
    return rows and one[0] <= other[0] + other[2] and other[0] <= one[0] + one[2]


def _draw_waiting(axes: Axes, jobs: Sequence[JobInfo], origin: float) -> None:
    waits = [np.array(span) - origin for job in jobs for span in waiting_spans(job)]
    times, counts = steps(np.ravel(waits), [1, -1] * len(waits))
    axes.fill_between(times, counts, step="post", color=drawing.WAITING, alpha=0.75, linewidth=0)
    axes.set_ylim(0, max(2, counts.max(initial=0) + 0.5))
    axes.set_ylabel("waiting", fontsize=8)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    drawing.reduce_frame(axes)
    axes.tick_params(labelsize=8)


def _legend(kinds: Mapping[int, str]) -> list[Patch]:
    order = list(dict.fromkeys(kinds.values()))
    handles = []
    for kind, (light, dark) in zip(order, _SHADES, strict=False):
        middle = to_hex(((np.array(light) + np.array(dark)) / 2).tolist())
        handles.append(Patch(facecolor=middle, edgecolor=INK, linewidth=0.9, label=kind))
    handles.append(
        Patch(
            facecolor="white",
            edgecolor=INK,
            hatch="////",
            linewidth=0.5,
            label="starting",
        )
    )
    handles.append(Patch(facecolor=drawing.WAITING, alpha=0.75, label="waiting jobs"))
    return handles
