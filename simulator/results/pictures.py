"""Pictures of a schedule: Gantt chart, load and queue, readable for ten jobs or a million.

Details below the size of a pixel are averaged, so that a picture stays small and correct: a Gantt
chart of many jobs becomes an image in which the darkness of a pixel is the share of it that jobs
cover, and a line of many steps shows the mean of each pixel's span with the largest value above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from scheduler import pictures as drawing
from simulator.results.jobs_csv import job_names
from simulator.results.schedule import Schedule

Floats: TypeAlias = NDArray[np.float64]
#: More rectangles than this become an image; its rows and columns.
MOST_BOXES = 1500
IMAGE = 500, 1400
#: More steps than this are averaged over spans; number of spans.
SPANS = 1000
#: Up to this number of jobs, each is labelled with its number.
MOST_NUMBERS = 60
_SIZES = matplotlib.colormaps["viridis_r"]
_UNITS = (("s", 1.0), ("min", 60.0), ("h", 3600.0), ("days", 86400.0))


class Scene(NamedTuple):
    """Data and axes that all pictures of a schedule share.

    Parameters
    ----------
    processors : of the machine.
    about : added to the title, such as workload and policy.
    """

    schedule: Schedule
    processors: int
    about: str

    @property
    def origin(self) -> float:
        """Time of the first submission of a job that ran, seconds."""
        return float(self.schedule.jobs.submitted[self.schedule.ran].min())

    @property
    def span(self) -> float:
        """From the first submission to the last end, seconds; not 0."""
        return float(np.nanmax(self.schedule.ended)) - self.origin or 1.0

    @property
    def unit(self) -> tuple[str, float]:
        """Unit of the axis of time, and its seconds."""
        return next((unit for unit in reversed(_UNITS) if self.span >= 3 * unit[1]), _UNITS[0])

    def figure(self, what: str, height: float) -> Figure:
        """Begin a picture."""
        return drawing.new_figure(height, f"{what}: {self.about}")

    def dress(self, axes: Axes, label: str) -> None:
        """Label the axes."""
        drawing.reduce_frame(axes)
        axes.set_facecolor(drawing.GROUND)
        axes.set_xlim(0, self.span / self.unit[1])
        axes.set_ylabel(label)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))

    def name_time(self, axes: Axes) -> None:
        """Label the axis of time."""
        axes.set_xlabel(f"time since the first submission ({self.unit[0]})")

    def norm(self) -> LogNorm:
        """Scale of the sizes of jobs."""
        return LogNorm(1, max(2, int(self.schedule.size_spans().processors.max())))


def gantt(scene: Scene) -> Figure:
    """Who ran when and where, the colour being the size; where is not known: how many ran."""
    figure = scene.figure("Schedule", 5.2)
    draw_gantt(scene, figure.subplots())
    return figure


def draw_gantt(scene: Scene, axes: Axes) -> None:
    """Draw a Gantt chart into axes, and the legend of its colours beside them."""
    figure, schedule = axes.figure, scene.schedule
    if schedule.allocated is None:
        _stacked(axes, scene)
        figure.legend(
            title="processors of a job", loc="outside right upper", frameon=False, reverse=True
        )
    else:
        boxes, owners, sizes = _boxes(scene)
        colours = _SIZES(scene.norm()(sizes))[:, :3]
        if len(boxes) > MOST_BOXES:
            _image(axes, scene, boxes, colours)
        else:
            _rectangles(axes, scene, boxes, colours, owners)
        axes.set_ylim(-0.5, scene.processors - 0.5)
        scale = ScalarMappable(scene.norm(), _SIZES)
        bar = figure.colorbar(scale, ax=axes, label="processors of the job", pad=0.01, aspect=40)
        largest = int(schedule.jobs.processors[schedule.ran].max())
        powers = range(int(np.log2(max(2, largest))) + 1)
        bar.set_ticks([2**power for power in powers], labels=[str(2**power) for power in powers])
        bar.minorticks_off()
    scene.dress(axes, "processor" if schedule.allocated is not None else "processors in use")
    scene.name_time(axes)


def load(scene: Scene) -> Figure:
    """Processors in use, and processors that waiting jobs request."""
    figure = scene.figure("Load", 5.2)
    used, demand = figure.subplots(2, 1, sharex=True)
    _area(used, scene, scene.schedule.in_use(), "#2a6f97", peaks=False)
    used.axhline(scene.processors, color=drawing.INK, linewidth=0.9, linestyle=(0, (4, 2)))
    used.set_ylim(0, 1.08 * scene.processors)
    scene.dress(used, "processors in use")
    used.set_title(f"dashed: the machine, {scene.processors}", loc="right", fontsize=9)
    _area(demand, scene, scene.schedule.waiting(processors=True), drawing.WAITING)
    scene.dress(demand, "processors wanted\nby waiting jobs")
    scene.name_time(demand)
    return figure


def queue(scene: Scene) -> Figure:
    """Number of waiting jobs."""
    figure = scene.figure("Queue", 3.6)
    axes = figure.subplots()
    _area(axes, scene, scene.schedule.waiting(), drawing.WAITING)
    scene.dress(axes, "jobs waiting")
    scene.name_time(axes)
    return figure


PICTURES: dict[str, Callable[[Scene], Figure]] = {"gantt": gantt, "load": load, "queue": queue}


def _boxes(scene: Scene) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Rectangles as left, low, right, high in units of the axes, and the job and size of each."""
    spans = scene.schedule.place_spans()
    intervals = [held.intervals for _, _, _, held in spans]
    of = np.repeat(np.arange(len(intervals)), [len(parts) for parts in intervals])
    ranges = np.array([pair for parts in intervals for pair in parts], dtype=np.float64)
    ranges = ranges.reshape(-1, 2)
    times = np.array([(begin, end) for _, begin, end, _ in spans], dtype=np.float64)
    times = (times.reshape(-1, 2) - scene.origin) / scene.unit[1]
    columns = times[of, 0], ranges[:, 0] - 0.5, times[of, 1], ranges[:, 1] + 0.5
    jobs = np.array([(job, held.count()) for job, _, _, held in spans], dtype=np.int64)
    jobs = jobs.reshape(-1, 2)[of]
    return np.stack(columns, axis=1), jobs[:, 0], jobs[:, 1]


def _rectangles(
    axes: Axes, scene: Scene, boxes: Floats, colours: Floats, owners: NDArray[np.int64]
) -> None:
    corners = boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
    axes.add_collection(
        PolyCollection([*corners], facecolors=colours, edgecolors="white", linewidths=0.4)
    )
    if scene.schedule.ran.sum() > MOST_NUMBERS:
        return
    names = job_names(scene.schedule)
    for (left, low, right, high), colour, owner in zip(boxes, colours, owners, strict=True):
        wide = (right - left) * scene.unit[1] > 0.03 * scene.span
        if wide and high - low > 0.03 * scene.processors:
            dark = float(np.dot(colour, (0.3, 0.6, 0.1))) < 0.5
            axes.text(
                (left + right) / 2,
                (low + high) / 2,
                names[owner],
                ha="center",
                va="center",
                fontsize=8,
                color="white" if dark else drawing.INK,
                clip_on=True,
            )


def _image(axes: Axes, scene: Scene, boxes: Floats, colours: Floats) -> None:
    rows, columns = min(IMAGE[0], scene.processors), IMAGE[1]
    width = scene.span / scene.unit[1]
    scale = columns / width, rows / scene.processors
    pixels = (boxes + np.array([0, 0.5, 0, 0.5])) * (*scale, *scale)
    pixels = np.clip(pixels, 0, (columns, rows, columns, rows))
    ground = matplotlib.colors.to_rgb(drawing.GROUND)
    axes.imshow(
        blend(pixels, colours, (rows, columns), ground),
        extent=(0, width, -0.5, scene.processors - 0.5),
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )


def _stacked(axes: Axes, scene: Scene) -> None:
    """Processors in use by jobs of up to 1, 4, 16, ... processors, above one another."""
    sizes = scene.schedule.size_spans().processors
    classes = np.ceil(np.log2(np.maximum(sizes, 1)) / 2).astype(np.int64)
    floor, edges = np.zeros(SPANS), _edges(scene)
    for power in range(int(classes.max()) + 1):
        if not (classes == power).any():
            continue
        means, _ = scene.schedule.in_use(classes == power).between(edges)
        least, most = 4**power // 4 + 1, min(4**power, int(sizes.max()))
        colour = _SIZES(power / max(1, int(classes.max())))  # the last class may be narrow
        name = f"{least}-{most}" if least < most else str(most)
        x = (edges - scene.origin) / scene.unit[1]
        axes.stairs(floor + means, x, baseline=floor, fill=True, color=colour, label=name)
        floor = floor + means
    axes.axhline(scene.processors, color=drawing.INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.set_ylim(0, 1.08 * scene.processors)


def _edges(scene: Scene) -> Floats:
    return np.linspace(scene.origin, scene.origin + scene.span, SPANS + 1)


def _area(
    axes: Axes, scene: Scene, drawn: drawing.Series, colour: str, *, peaks: bool = True
) -> None:
    """Draw every step, or means over spans of time where there are too many."""
    if len(drawn.times) <= SPANS:
        edges, values = np.append(drawn.times, drawn.times[-1]), drawn.values
    else:
        edges = _edges(scene)
        values, largest = drawn.between(edges)
        if peaks:
            x = (edges - scene.origin) / scene.unit[1]
            axes.stairs(largest, x, color=drawing.INK, linewidth=0.4)
            axes.set_title("area: mean, line: largest of each span", loc="right", fontsize=9)
    x = (edges - scene.origin) / scene.unit[1]
    axes.stairs(values, x, fill=True, color=colour, alpha=0.75)
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))


def blend(
    boxes: Floats, colours: Floats, shape: tuple[int, int], ground: tuple[float, float, float]
) -> Floats:
    """Paint rectangles that do not overlap; a pixel is the mean of what covers it.

    Parameters
    ----------
    boxes : (n, 4) left, low, right, high in pixels, within the image.
    colours : (n, 3) red, green, blue from 0 to 1.
    shape : rows, columns; row 0 is the lowest.
    ground : colour of uncovered pixels.

    Returns
    -------
    (rows, columns, 3) float64 from 0 to 1
    """
    # What a rectangle adds to the ground: its colour, minus the ground it hides.
    weights = colours - np.asarray(ground)
    channels = [drawing.covered(boxes, weights[:, channel], shape) for channel in range(3)]
    image: Floats = np.clip(np.stack(channels, axis=2) + np.asarray(ground), 0.0, 1.0)
    return image
