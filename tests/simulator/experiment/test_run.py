"""Files and pictures of a finished simulation."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from paths import SMALL_TRACE as SMALL
from small_experiments import CENTRES, COLUMNS

from reshape.errors import ReshapeError
from simulator import Experiment, Jobs, simulate
from simulator.traces import swf


def test_files(tmp_path: Path) -> None:
    ran = simulate(COLUMNS)
    ran.write(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"jobs.csv", "metrics.json"}
    with (tmp_path / "out" / "jobs.csv").open() as file:
        waits = [float(row["waiting_time"]) for row in csv.DictReader(file)]
    assert waits == ran.jobs["wait_s"].tolist()
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == ran.summary
    (tmp_path / "file").write_text("")
    with pytest.raises(ReshapeError, match="cannot be made"):
        ran.write(tmp_path / "file" / "out")


@pytest.mark.parametrize("picture", ["gantt", "load", "queue"])
def test_pictures(tmp_path: Path, picture: str) -> None:
    path = tmp_path / "picture.svg"
    ran = simulate(COLUMNS)
    ran.plot(path, picture)
    first = path.read_bytes()
    assert first.startswith(b"<?xml")
    ran.plot(path, picture)
    assert path.read_bytes() == first


def test_pictures_that_cannot_be_drawn(tmp_path: Path) -> None:
    ran = simulate(COLUMNS)
    for name, picture, says in (
        ("a.png", "gant", "unknown picture 'gant'; did you mean gantt"),
        ("a.jpg", "gantt", r"a.jpg: a picture is a .png or .svg file"),
        ("no/a.png", "gantt", "there is no directory"),
    ):
        with pytest.raises(ReshapeError, match=says):
            ran.plot(tmp_path / name, picture)


def test_a_chart_in_axes_of_ones_own() -> None:
    import matplotlib as mpl  # late: only this test needs it here
    from matplotlib.figure import Figure

    mpl.use("agg")
    axes = Figure().subplots()
    simulate(COLUMNS, select="first-fit").gantt(axes)
    assert axes.patches or axes.collections or axes.images


def test_a_trace_with_its_waits(tmp_path: Path) -> None:
    ran = Experiment(Jobs.read(SMALL).first(50)).run(whole_trace=True)
    (tmp_path / "waits.swf").write_bytes(ran.swf())
    waits = swf.read(tmp_path / "waits.swf").columns["wait"]
    assert waits.mean() == pytest.approx(ran.metrics["mean_wait_s"])
    for other in (simulate(Jobs.drawn("prio", jobs=3)), simulate(COLUMNS, machine=CENTRES)):
        with pytest.raises(ReshapeError, match="only the jobs of a trace on one machine"):
            other.swf()


def test_a_job_that_cannot_start_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(
        "processors: 4\njobs:\n  - {at: 0, processors: 8, walltime: 120, iteration_s: 5}\n"
    )
    (note,) = simulate(path).notes
    assert "job 1 requests 8 processors, the machine has 4" in note


def test_representation() -> None:
    text = repr(simulate(COLUMNS))
    assert text.startswith("Simulation('columns', jobs=12, mean_wait_s=")


@pytest.mark.parametrize(
    ("header", "size", "words"),
    [
        ("; MaxProcs: 8\n", 8, ""),
        ("; MaxProcs: 0\n; MaxNodes: 9\n", 9, "has 9 processors, the MaxNodes of the header"),
        ("; MaxNodes: 9\n", 9, "has 9 processors, the MaxNodes of the header, which has no MaxPr"),
        ("", 4, "has 4 processors, as many as the largest job requests; processors (--proc"),
    ],
)
def test_a_guessed_size_of_the_machine_is_noted(
    header: str, size: int, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "jobs.swf"
    path.write_text(f"{header}1 0 -1 100 2 -1 -1 2 200\n2 5 -1 100 4 -1 -1 -1 200\n")
    run = simulate(path)
    assert run.processors == size
    assert run.metrics["jobs"] == 2
    guesses = [note for note in run.notes if note.startswith("the machine has")]
    assert len(guesses) == bool(words)
    assert words in "".join(guesses)
    assert simulate(path, processors=size).notes == run.notes[len(guesses) :]


def test_columns_have_a_machine_of_their_largest_job() -> None:
    (note,) = simulate(COLUMNS).notes
    assert "8 processors, as many as the largest job requests; processors (--processors)" in note
    assert simulate(COLUMNS, processors=8).notes == []


def test_a_comma_separated_table_is_a_trace_with_notes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job,submit,wait,run,procs\n1,0,-1,100,2\n2,5,-1,100,4\n")
    with pytest.raises(ReshapeError, match=r"jobs.csv:1: field 1 \(job number\): 'job' is not a"):
        simulate(path)
    guess, report = simulate(Jobs.read(path, lenient=True)).notes
    assert "4 processors, as many as the largest job requests" in guess
    assert "1 malformed lines skipped" in report
