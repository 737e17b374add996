"""Pictures: what they average is right, and any schedule becomes small files, always the same."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner, Result
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import SYNTHETIC_TRACE

from reshape.__main__ import main
from scheduler.model.procset import ProcSet
from scheduler.pictures import Series
from simulator.experiment.experiment import Experiment
from simulator.experiment.jobs import Jobs
from simulator.results import jobs_csv
from simulator.results.schedule import Schedule
from simulator.traces.trace_jobs import TraceJobs

TRACE = SYNTHETIC_TRACE
CHANGES = st.lists(st.tuples(st.integers(0, 20), st.integers(-3, 3)), min_size=1, max_size=12)
EDGES = st.lists(st.integers(-4, 24), min_size=2, max_size=8, unique=True).map(sorted)
BOX = st.tuples(*[st.integers(0, 12)] * 4).map(
    lambda b: (min(b[0], b[2]) / 3, min(b[1], b[3]) / 3, max(b[0], b[2]) / 3, max(b[1], b[3]) / 3)
)


def reshape(*arguments: object, code: int = 0) -> Result:
    """Run the command in this process, which loads matplotlib but once."""
    done = CliRunner().invoke(main, [*map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


@given(CHANGES, EDGES)
def test_means_and_maxima_between_edges(changes: list[tuple[int, int]], edges: list[int]) -> None:
    """Times are whole, so that halves of unit intervals see every value."""
    times, amounts = np.array(changes, dtype=float).T
    drawn = Series.of(times, np.full(len(times), 1e6), amounts)

    def at(moment: float) -> int:
        return sum(amount for when, amount in changes if when <= moment)

    means, largest = drawn.between(np.array(edges, dtype=float))
    for i, (begin, end) in enumerate(pairwise(edges)):
        halves = np.arange(begin, end) + 0.5
        values = [at(half) for half in halves]
        assert means[i] == pytest.approx(np.mean(values))
        if min(values) >= 0:
            assert largest[i] == max(values)


@examples(50)
@given(st.lists(st.tuples(BOX, st.tuples(*[st.floats(0, 1)] * 3)), max_size=4))
def test_an_image_is_as_dark_as_it_is_covered(drawn: list[tuple]) -> None:
    from simulator.results import pictures  # late: matplotlib is slow to load

    ground = (0.9, 0.8, 0.7)
    boxes = np.array([box for box, _ in drawn], dtype=float).reshape(-1, 4)
    colours = np.array([colour for _, colour in drawn], dtype=float).reshape(-1, 3)
    expected = np.zeros((4, 4, 3)) + ground
    for (left, low, right, high), colour in zip(boxes, colours, strict=True):
        for row in range(4):
            for column in range(4):
                wide = max(0.0, min(right, column + 1) - max(left, column))
                tall = max(0.0, min(high, row + 1) - max(low, row))
                expected[row, column] += wide * tall * (colour - ground)
    painted = pictures.blend(boxes, colours, (4, 4), ground)
    assert painted == pytest.approx(np.clip(expected, 0, 1), abs=1e-9)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    reshape("simulate", TRACE, "--select", "first-fit", "--out", folder)
    return folder


def test_the_areas_are_those_of_the_metrics(results: Path) -> None:
    schedule, workload = jobs_csv.read(results / "jobs.csv")
    assert workload == "synthetic"
    metrics = json.loads((results / "metrics.json").read_text())
    begin, end = schedule.jobs.submitted.min(), schedule.ended.max()
    (used,), (most,) = schedule.in_use().between(np.array([begin, end]))
    assert used / metrics["processors"] == pytest.approx(metrics["utilization"])
    assert most <= metrics["processors"]
    (wait,), _ = schedule.waiting().between(np.array([begin, end]))
    assert wait * (end - begin) == pytest.approx(metrics["mean_wait_s"] * metrics["jobs"])


@pytest.mark.parametrize("jobs", [40, 1500])
def test_pictures_of_few_and_many_jobs_are_small_and_always_the_same(
    jobs: int, tmp_path: Path
) -> None:
    """Thousands of rectangles become an image, a few dozen stay rectangles."""
    select = "count" if jobs == 40 else "first-fit"
    run = Experiment(Jobs.read(TRACE).first(jobs), select=select).run()
    for picture in ("gantt", "load", "queue"):
        for form in ("png", "svg"):
            path = tmp_path / f"{picture}.{form}"
            run.plot(path, picture)
            data = path.read_bytes()
            assert 5_000 < len(data) < 1_000_000
            if form == "svg":
                assert ElementTree.fromstring(data).tag.endswith("svg")
            else:
                assert data.startswith(b"\x89PNG")
    run.plot(tmp_path / "again.svg", "queue")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "queue.svg").read_bytes()


def two_seconds_each(starts: list[float], sizes: list[int], **fields: Any) -> Schedule:
    """Jobs of these sizes that start when they are submitted and run for two seconds."""
    n, times, run = np.arange(1, len(sizes) + 1), np.array(starts), np.full(len(sizes), 2.0)
    jobs = TraceJobs.of(n, times, run, np.array(sizes))
    return Schedule(jobs, sum(sizes), times, times + run, jobs.cut, **fields)


def test_each_class_of_sizes_has_a_colour() -> None:
    """The last class has few sizes: 257 to 272."""
    from simulator.results import pictures  # late: matplotlib is slow to load

    schedule = two_seconds_each([0, 1, 2, 3, 4, 5], [1, 3, 16, 60, 256, 272])
    figure = pictures.gantt(pictures.Scene(schedule, 1000, "sizes"))
    colours = [tuple(patch.get_facecolor()) for patch in figure.legends[0].get_patches()]
    assert len(colours) == len(set(colours)) == 6
    steps_apart = [max(abs(np.subtract(a, b))) for a, b in pairwise(colours)]
    assert min(steps_apart) > 0.05


def test_a_job_on_two_ranges_of_processors_is_two_rectangles() -> None:
    from simulator.results import pictures  # late: matplotlib is slow to load

    held = {1: ProcSet.parse("0-1 4-5"), 2: ProcSet.parse("2-3")}
    schedule = two_seconds_each([0.0, 5.0], [4, 2], allocated=held)
    axes = pictures.gantt(pictures.Scene(schedule, 8, "few")).axes[0]
    drawn = [path.get_extents() for c in axes.collections for path in c.get_paths()]
    assert len(drawn) == 3


def test_the_size_of_the_machine_is_a_whole_number(results: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_bytes((results / "jobs.csv").read_bytes())
    for wrong in ("0", "true", '"8"', "1e9", "[]"):
        (tmp_path / "metrics.json").write_text(f'{{"processors": {wrong}}}')
        says = "metrics.json: processors must be a whole number >= 1, got"
        page = tmp_path / "page.html"
        assert says in reshape("report", tmp_path, "-o", page, code=1).stderr
