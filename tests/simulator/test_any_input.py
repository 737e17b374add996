"""Any bytes in an input file give a value, or one error that names the file."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st
from mutated import mutated
from paths import SMALL_TRACE
from small_experiments import trace_text

from reshape.__main__ import main
from reshape.errors import ReshapeError
from scheduler.config import machine_file
from scheduler.text.located import Located
from simulator import Experiment
from simulator.experiment.jobs import processors_of
from simulator.many_centres.rules import described_centres
from simulator.pools import read_waits
from simulator.results import jobs_csv
from simulator.results.pictures import PICTURES, Scene
from simulator.traces import swf
from simulator.traces.normalise import normalise
from simulator.workload_models import advance_reservations, workload_file

TRACE = (
    b"; Version: 2.2\n; MaxProcs: 8\n; Resources: gpu=4\n; Shared: bandwidth=10\n"
    b"1 0 -1 30 4 -1 -1 4 60 -1 1 1 1 -1 0 1 -1 -1 2 5\n"
    b"2 5 -1 60 2 1.5 7 2 60 -1 1 2 1 -1 0 1 1 9 0 1\n; a comment\n"
    b"3 10 -1 20 8 -1 -1 8 40 -1 1 1 1 -1 0 1 -1 -1 1 0\n"
)
WORKLOAD = b"""\
processors: 16
cost: {start_s: 0.4, join_s: 0.05, bytes_per_s: 1e9}
start_s: 0.5
end_s: 0.1
jobs:
  - {at: 0, processors: 2, min_processors: 1, max_processors: 8, topology: "arbitrary:step=2",
     walltime: "5:00", iterations: 20, iteration_s: 4, speedup: "prio:alpha=0.9", data_mib: 64,
     phases: [{iteration: 5, minimum: 4}, {iteration: 15, maximum: 2}]}
  - {at: 3, processors: 4, walltime: 120, iteration_s: 90, partition: batch, user: ann,
     demand: {bandwidth: 5}, performance: "amdahl:serial=0.1"}
  - {at: 3, processors: 1, walltime: 60, iteration_s: 9, dependency: "afterok:1", begin_s: 50}
  - {at: 4, processors: 1, walltime: 1h, iteration_s: 9, array: "0-9:3%3", priority: 2}
"""
EXPERIMENTS = (
    b"""\
jobs:
  trace: trace.swf
  first: 10
  rules: {overrun: extend, larger: cap}
  resizable: {share: 0.5, speedup: "amdahl:serial=0.02", cost: "start_s=2"}
processors: 8
scenario: {name: pba-pr, resizing: {min_benefit: 0.1}, backfill.max_jobs: 5}
load: 0.9
seed: 3
""",
    b"""\
jobs: {columns: {submit_s: [0, 1], processors: [1, 2], run_s: [5, 2.5]}}
machine: {nodes: 8, network: {topology: tree, k: 2, levels: 3}}
select: tree
queue_order: {policy: aging}
contiguity: {speedup: 0.2, exponent: 2}
tau_s: 10
warm_up_s: 0.5
advance_reservations: [{name: course, start: 40, duration: "0:30", processors: 4}]
""",
    b"""\
jobs: {model: lublin, options: {jobs: 20, processors: 16, load: 0.8, estimates: tsafrir}}
machine: {centres: [{name: A, processors: 16}, {name: B, processors: 16, scenario: fcfs}]}
assign: less-waittime
dispatch: {ask: 1}
seed: 1
""",
    b"jobs: trace.swf\npool: {nodes: 0-4, processors: 4, time_limit: 1000}\npool_wait: 30\n",
    b"jobs: {workload: jobs.yaml}\nsharing: {windows: changes, demand_error: 0.1}\n"
    b"machine: machine.yaml\n",
)
MACHINES = (
    b"""\
nodes: [alpha, beta, gamma]
processors_per_node: 4
resources_per_node: {memory_gib: 64}
shared_per_node: {bandwidth: 6000}
shared_penalty: ratio
features: {gpu: [alpha]}
launcher: ssh
partitions:
  batch:
  short: {nodes: 1, max_walltime_s: "1:00:00", scenario: fcfs, parameters: {backfill.max_jobs: 4}}
""",
    b"nodes: 240\nexclusive: true\n"
    b"network: {topology: tree, k: 4, levels: 4, not_installed: 240-255}\n",
    b"nodes: 12\nnetwork: {topology: torus, dims: [4, 4], not_installed: 0-3}\n",
)
CENTRES = b"""\
centres:
  - name: CTC
    processors: 412
    cpu_factor: 1.5
    units_per_hour: 420
    cost_per_unit: 1.12
    set: {backfill_order: sjf}
  - {name: SDSC, processors: 128, scenario: fcfs}
"""
RESERVATIONS = b"""\
reservations:
  - {name: course, start: 40, duration: "2:00:00", processors: 8, jobs: "7 9-12", requested: 0}
  - {name: other, start: 4e2, duration: 30, nodes: [n1, n2], users: [ann, 7]}
"""


def check(read: Callable[[Path], Any], path: Path, data: bytes, *places: str) -> None:
    """Read bytes: a value, or an error in one line that names the file or one of the places."""
    path.write_bytes(data)
    try:
        read(path)
    except ReshapeError as error:
        text = str(error)
        assert any(place in text for place in (str(path), *places)), text
        assert len(text) < 12_000
        assert "Traceback" not in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inputs")
    (made / "trace.swf").write_bytes(TRACE)
    (made / "jobs.yaml").write_bytes(WORKLOAD)
    (made / "machine.yaml").write_bytes(MACHINES[0])
    return made


def read_trace(path: Path) -> None:
    for lenient in (False, True):
        trace = swf.read(path, lenient=lenient)
        size, _ = processors_of(trace)
        normalise(trace, size or 8, labels=True)
        swf.encode(trace)


@given(mutated([TRACE, b"\n".join(SMALL_TRACE.read_bytes().split(b"\n")[:40])]))
@examples(300)
def test_traces(folder: Path, data: bytes) -> None:
    check(read_trace, folder / "mutated.swf", data)


def test_headers_are_bounded(folder: Path) -> None:
    path = folder / "large.swf.gz"
    named = " ".join(f"r{i}=1" for i in range(101))
    for text, says in (
        ((b"; " + b"x" * 10_000 + b"\n") * 1700, "more than 16 MiB of comments; is it a trace?"),
        (f"; Resources: {named}\n".encode(), "swf.gz:1: 101 resources are named, at most 100 may"),
    ):
        path.write_bytes(gzip.compress(text, 1))
        with pytest.raises(ReshapeError, match=says):
            swf.read(path)


@given(mutated([TRACE]), st.booleans(), st.data())
@examples(150)
def test_packed_traces(folder: Path, text: bytes, whole: bool, data: st.DataObject) -> None:
    packed = gzip.compress(text, mtime=0)
    if not whole:
        packed = data.draw(mutated([packed], most=2))
    check(read_trace, folder / "mutated.swf.gz", packed)


@given(mutated([WORKLOAD]))
@examples(300)
@example(b"jobs: !!int ''")
def test_workload_files(folder: Path, data: bytes) -> None:
    check(workload_file.read, folder / "mutated.yaml", data)


@given(mutated(EXPERIMENTS))
@examples(400)
@example(b"jobs: trace.swf\nscenario: {name: pba-pr, resizing: {min_benefit: {of: 1}}}\n")
@example(b"jobs: trace.swf\nscenario: {name: pba-pr, resizing.less.of: 1}\n")
@example(b"jobs: trace.swf\nscenario: {name: pba-pr, resizing: 3}\n")
@example(b"jobs: " + b"9" * 5000)
@example(b"jobs: {trace: " + b"a" * 300 + b"}")
@example(b"jobs: trace.swf\nmachine: missing.yaml\n")
def test_experiments(folder: Path, data: bytes) -> None:
    check(Experiment.from_file, folder / "mutated.yaml", data, str(folder))


@given(mutated(MACHINES))
@examples(300)
def test_machine_files(folder: Path, data: bytes) -> None:
    check(machine_file.read, folder / "mutated.yaml", data)


@given(mutated([CENTRES]))
@examples(150)
def test_files_of_centres(folder: Path, data: bytes) -> None:
    check(lambda path: described_centres(Located.read(path)), folder / "mutated.yaml", data)


@given(mutated([RESERVATIONS]))
@examples(150)
@example(b'reservations: [{name: a, start: 0, duration: 1, processors: 1, jobs: "0-99999999999"}]')
def test_files_of_reservations(folder: Path, data: bytes) -> None:
    reads = lambda path: advance_reservations.described(Located.read(path))  # noqa: E731
    check(reads, folder / "mutated.yaml", data)


@given(mutated([trace_text(with_waits=True).encode()]))
@examples(100)
def test_recorded_waits_of_a_pool(folder: Path, data: bytes) -> None:
    check(lambda path: read_waits(str(path)), folder / "mutated.swf", data)


@pytest.fixture(scope="module")
def results(folder: Path) -> Path:
    """Results with all columns that there are."""
    arguments = ["simulate", str(folder / "trace.swf"), "--policy", "fcfs-pr", "--resizable", "1"]
    arguments += ["--select", "first-fit", "--out"]
    done = CliRunner().invoke(main, [*arguments, str(folder / "results")])
    assert done.exit_code == 0, done.output
    return folder / "results"


@pytest.mark.parametrize("column", ["sizes", "places", "starting_time", "finish_time"])
@pytest.mark.parametrize("value", ["", "nan", "inf", "1e300", "0:-4", "0:99999999999", "0:"])
def test_a_wrong_field_of_a_job(results: Path, column: str, value: str) -> None:
    lines = (results / jobs_csv.NAME).read_text().splitlines()
    row = next(csv.reader(lines[1:2]))
    row[lines[0].split(",").index(column)] = value
    path = results.parent / "wrong.csv"
    path.write_text("\n".join([lines[0], ",".join(row)]))
    with pytest.raises(ReshapeError, match=rf"wrong.csv:2: {column}: '.*' is not a valid value"):
        jobs_csv.read(path)


@given(st.data())
@examples(300)
def test_tables_of_jobs(results: Path, data: st.DataObject) -> None:
    changed = data.draw(mutated([(results / jobs_csv.NAME).read_bytes()]))
    check(jobs_csv.read, results.parent / "mutated.csv", changed)


@given(st.data())
@examples(100)
def test_comparisons(results: Path, data: st.DataObject) -> None:
    valid = (results / jobs_csv.NAME).read_bytes()
    path = results.parent / "compared.csv"
    path.write_bytes(data.draw(mutated([valid])))
    done = CliRunner().invoke(main, ["compare", str(results), str(path), "--json"])
    assert_told(done, path)


def draw(path: Path) -> None:
    """All pictures of a table of jobs, without the files, which take seconds each."""
    schedule, name = jobs_csv.read(path)
    scene = Scene(schedule, max(8, schedule.least_processors), name)
    for picture in PICTURES.values():
        picture(scene)


@given(st.data())
@examples(60)
def test_pictures_of_jobs(results: Path, data: st.DataObject) -> None:
    changed = data.draw(mutated([(results / jobs_csv.NAME).read_bytes()], most=2))
    check(draw, results.parent / "mutated.csv", changed)


@given(mutated([b'{"processors": 8, "policy": "easy", "redirected": 1}']))
@examples(20)
@example(b"")
@example(b"[" * 100_000)
@example(b'{"processors": 8.5}')
@example(b'{"processors": 1e999}')
def test_metrics_of_a_page(results: Path, data: bytes) -> None:
    changed = results.parent / "changed"
    changed.mkdir(exist_ok=True)
    (changed / jobs_csv.NAME).write_bytes((results / jobs_csv.NAME).read_bytes())
    (changed / "metrics.json").write_bytes(data)
    done = CliRunner().invoke(main, ["report", str(changed), "-o", str(changed / "page.html")])
    assert_told(done, changed)


def assert_told(done: Any, path: Path) -> None:
    """A command that succeeds, or ends with an error in one line that names the file."""
    if done.exit_code == 0:
        return
    assert isinstance(done.exception, SystemExit), done.exc_info
    assert done.exit_code == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("reshape: error: ")]
    assert str(path) in line
