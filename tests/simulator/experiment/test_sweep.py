"""Sweeps: order of the grid, means and comparisons, files, and what happens when a point fails."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from math import isnan, nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from command_line import invoke
from small_experiments import COLUMNS, TREE, trace_text
from waiting import LIMIT_S, wait_until

from reshape.errors import ConfigError, ReshapeError
from reshape.mpi import clean_environment, mpiexec_path
from scheduler.policies.api import Job, QueueOrder
from simulator import Experiment, Jobs, SweepTable, sweep
from simulator.experiment.tables import Columns


class Counting(QueueOrder, msgspec.Struct, frozen=True):
    """First come, first served; each simulation appends a line to a file."""

    ages = False

    file: str
    number: int = 0

    def key(self, job: Job, now: float) -> float:
        if job.id == 1:
            with open(self.file, "a") as file:
                file.write(f"{self.number}\n")
        return job.queued_at


class Raising(QueueOrder, msgspec.Struct, frozen=True):
    """An order that fails, or ends its process, at one of its values."""

    ages = False

    number: int = 0
    fails_at: int = -1
    is_killed: bool = False
    waits_at: int = -1

    def key(self, job: Job, now: float) -> float:
        if self.number == self.waits_at:
            threading.Event().wait()
        if self.number == self.fails_at:
            if self.is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise LookupError("no order today")
        return job.queued_at


class Mine(QueueOrder, msgspec.Struct, frozen=True):
    """Jobs by the product of their request and a factor."""

    ages = False

    factor: float

    def key(self, job: Job, now: float) -> float:
        return self.factor * job.processors


def of(columns: dict[str, Any], *axes: str) -> SweepTable:
    table = SweepTable({name: np.array(values) for name, values in columns.items()})
    table.axes = axes
    return table


def points_in(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def rows_of(table: Columns) -> list[dict[str, Any]]:
    return [*table.lines()]


def test_the_last_axis_varies_fastest() -> None:
    grid = {"scenario": ["fcfs", "easy"], "load": (0.5, 0.9), "processors": range(8, 10)}
    table = sweep(Experiment(COLUMNS), grid, workers=1, progress=False)
    assert table.axes == ("scenario", "load", "processors")
    assert table["scenario"].tolist() == ["fcfs"] * 4 + ["easy"] * 4
    assert table["load"].tolist() == [0.5, 0.5, 0.9, 0.9] * 2
    assert table["processors"].tolist() == [8, 9] * 4
    row = rows_of(table)[6]
    ran = Experiment(COLUMNS, scenario="easy", load=0.9, processors=8).run()
    assert {name: row[name] for name in ran.metrics if name in row} == ran.metrics


def test_processes_give_the_same_as_one() -> None:
    made = Experiment(Jobs.drawn("lublin", jobs=40, processors=32))
    grid = {"scenario": ["fcfs", "easy"], "seed": range(3)}
    tables = [sweep(made, grid, workers=n, progress=False) for n in (1, 2)]
    for name in tables[0]:
        assert tables[0][name].tolist() == tables[1][name].tolist()
    assert len(set(tables[0]["mean_wait_s"].tolist())) > 3


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({"seed": [1]}, "seed: nothing is drawn: .* (at seed=1)"),
        ({"scenario": ["easy", "fcfs"], "backfill_order": ["sjf"]},
         "backfill_order: Sjf has no effect in scenario fcfs.* (at scenario=fcfs, "),
        ({"scenario": ["easy", "esy"]}, "scenario: unknown scenario 'esy'.* (at scenario=esy)"),
        ({"scenari": ["easy"]}, "scenari: unknown field; did you mean scenario"),
        ({"scenario": []}, "scenario: has no values; give at least one"),
        ({"scenario": "easy"}, "scenario: must be a list of values, got 'easy'"),
        ({"load": 0.5}, "load: must be a list of values, got 0.5"),
        ({"machine": TREE}, "machine: must be a list of values, got"),
    ],
)  # fmt: skip
def test_an_axis_that_cannot_be(grid: dict[str, Any], says: str) -> None:
    import re

    with pytest.raises(ConfigError, match=re.sub(r"([()])", r"\\\1", says)):
        sweep(Experiment(COLUMNS), grid, workers=1, progress=False)


def test_workers_are_at_least_one() -> None:
    for workers in (0, -1, 1.5):
        says = f"workers: must be a whole number >= 1, got {workers}"
        with pytest.raises(ConfigError, match=says):
            sweep(Experiment(COLUMNS), {"load": [0.5]}, workers=workers)  # type: ignore[arg-type]


def test_jobs_are_no_experiment() -> None:
    with pytest.raises(ConfigError, match=r"an Experiment, got Jobs; write Experiment\(jobs\)"):
        sweep(Jobs(COLUMNS), {"load": [0.5]})  # type: ignore[arg-type]


@pytest.mark.parametrize("executor", [None, lambda: ThreadPoolExecutor(1)])
def test_axes_below_a_field(executor: Any) -> None:
    base = Experiment(Jobs(COLUMNS).with_resizable(speedup="amdahl:serial=0.02"))
    grid = {
        "scenario": ["easy", "malleable"],
        "jobs.resizable.expand_least": np.array([0.25, 1]),
        "scenario.max_restarts": [1, 2],
    }
    table = sweep(base, grid, workers=1, executor=executor, progress=False)
    assert table["jobs.resizable.expand_least"].tolist() == [0.25, 0.25, 1.0, 1.0] * 2
    whole = base.jobs.with_resizable(speedup="amdahl:serial=0.02", expand_least=0.25)
    alone = Experiment(whole, scenario="malleable").run().metrics["mean_wait_s"]
    assert table["mean_wait_s"].tolist()[4:6] == [alone, alone]
    means = table.mean("mean_wait_s", by=["scenario", "jobs.resizable.expand_least"])
    assert means.rows == 4


def test_labels() -> None:
    mine = [Raising(1), Raising(1), {"policy": "sjf"}, None, "fcfs"]
    table = sweep(Experiment(COLUMNS), {"queue_order": mine}, workers=1, progress=False)
    shown = "Raising(number=1, fails_at=-1, is_killed=False, waits_at=-1)"
    assert table["queue_order"].tolist() == [
        f"{shown} #1", f"{shown} #2", "policy=sjf", "", "fcfs",
    ]  # fmt: skip
    loads = sweep(Experiment(COLUMNS), {"load": [None, 0.5]}, workers=1, progress=False)
    assert loads["load"].tolist() == ["", 0.5]
    compared = loads.compare("makespan_s", "load", baseline=None)
    assert compared["load"].tolist() == [0.5]


def test_numbers_of_numpy_are_the_numbers_of_an_axis() -> None:
    grid = {"seed": np.arange(2), "load": np.array([0.5, 0.75], np.float32)}
    table = sweep(Experiment(Jobs.drawn("lublin", jobs=9)), grid, workers=1, progress=False)
    assert table["seed"].tolist() == [0, 0, 1, 1]
    assert table["load"].tolist() == [0.5, 0.75] * 2
    assert [row["seed"] for row in rows_of(table.mean("mean_wait_s", "seed"))] == [0, 1]
    (row,) = rows_of(table.compare("mean_wait_s", "seed", baseline=np.int64(0)))
    assert (row["seed"], row["n"]) == (1, 2)
    depths = [{"name": "easy", "backfill.reservations": depth} for depth in np.arange(2)]
    of_scenarios = sweep(Experiment(COLUMNS), {"scenario": depths}, workers=1, progress=False)
    assert of_scenarios["scenario"].tolist() == [
        "name=easy, backfill.reservations=0", "name=easy, backfill.reservations=1",
    ]  # fmt: skip


def test_means_with_intervals_by_hand() -> None:
    table = of({"scenario": ["a", "a", "a", "b", "b", "b"], "seed": [1, 2, 3] * 2,
                "wait": [1.0, 2.0, 3.0, 4.0, nan, 8.0]}, "scenario", "seed")  # fmt: skip
    first, second = rows_of(table.mean("wait", "scenario"))
    # Student's t at 97.5 %: 4.302653 with 2 degrees of freedom, 12.7062 with 1.
    half = 4.302653 * 1.0 / 3**0.5
    assert (first["scenario"], first["wait"], first["n"]) == ("a", 2.0, 3)
    assert (first["low"], first["high"]) == pytest.approx((2 - half, 2 + half), rel=1e-5)
    half = 12.7062 * 8**0.5 / 2**0.5
    assert (second["wait"], second["n"]) == (6.0, 2)
    assert (second["low"], second["high"]) == pytest.approx((6 - half, 6 + half), rel=1e-4)
    whole = rows_of(table.mean("wait", by=["seed", "scenario"]))
    assert [(row["seed"], row["scenario"], row["n"]) for row in whole] == [
        (1, "a", 1), (1, "b", 1), (2, "a", 1), (2, "b", 0), (3, "a", 1), (3, "b", 1),
    ]  # fmt: skip
    assert isnan(whole[0]["low"])


def test_comparisons_are_paired_by_all_other_axes() -> None:
    table = of({"scenario": ["a", "a", "b", "b"], "seed": [1, 2] * 2,
                "wait": [10.0, 100.0, 11.0, 103.0]}, "scenario", "seed")  # fmt: skip
    (row,) = rows_of(table.compare("wait", "scenario", baseline="a"))
    # Differences 1 and 3: mean 2, standard deviation 2**0.5, t 12.7062 with 1 degree of freedom.
    assert (row["scenario"], row["difference"], row["n"]) == ("b", 2.0, 2)
    assert (row["low"], row["high"]) == pytest.approx((2 - 12.7062, 2 + 12.7062), rel=1e-4)
    assert row["ratio"] == pytest.approx(114 / 110)


def test_wrong_names_in_means_and_comparisons() -> None:
    table = of({"seed": [1, 2], "wait": [1.0, 2.0]}, "seed")
    for call, says in (
        (lambda: table.mean("wait", "sed"), "the sweep has no axis 'sed'; it has seed"),
        (lambda: table.mean("wat", "seed"), "the sweep has no metric 'wat'; it has wait"),
        (lambda: table.compare("seed", "seed", 1), "the sweep has no metric 'seed'; it has wait"),
        (lambda: table.compare("wait", "wait", 1), "the sweep has no axis 'wait'; it has seed"),
        (lambda: table.compare("wait", "seed", 5), r"seed has no value 5; it has \[1, 2\]"),
    ):
        with pytest.raises(KeyError, match=says):
            call()


def test_a_number_that_does_not_exist_is_nan() -> None:
    """No job can start: there is no mean wait."""
    text = "processors: 4\njobs:\n  - {at: 0, processors: 8, walltime: 60, iteration_s: 1}\n"
    path = Path("large.yaml")
    path.write_text(text)
    table = sweep(Experiment(path), {"tau_s": [1, 2]}, workers=1, progress=False)
    assert np.isnan(table["mean_wait_s"]).all()
    assert table.mean("mean_wait_s", "tau_s")["n"].tolist() == [0, 0]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_file_keeps_what_is_done(tmp_path: Path, workers: int) -> None:
    count, file = tmp_path / "count", tmp_path / "sweep.jsonl"

    def go(numbers: range) -> SweepTable:
        orders = [Counting(str(count), number) for number in numbers]
        grid = {"queue_order": orders}
        return sweep(Experiment(COLUMNS), grid, workers=workers, file=file, progress=False)

    first = go(range(3))
    assert sorted(count.read_text().split()) == ["0", "1", "2"]
    again = go(range(3))
    assert sorted(count.read_text().split()) == ["0", "1", "2"]
    for name in first:
        assert first[name].tolist() == again[name].tolist()
    assert go(range(5)).rows == 5
    assert sorted(count.read_text().split()) == ["0", "1", "2", "3", "4"]


def test_the_file_is_in_the_order_of_the_grid(tmp_path: Path) -> None:
    """Whatever order the points ended in, the same sweep gives the same bytes."""
    one, other = tmp_path / "one", tmp_path / "other"
    for file, loads in ((one, [0.6]), (one, [0.5, 0.6]), (other, [0.5, 0.6])):
        sweep(Experiment(COLUMNS), {"load": loads}, workers=1, file=file, progress=False)
    assert one.read_bytes() == other.read_bytes()


def test_a_point_that_raises_names_the_point_and_keeps_the_others(tmp_path: Path) -> None:
    file = tmp_path / "sweep.jsonl"
    for workers in (1, 2):
        orders = [Raising(number, fails_at=2) for number in range(4)]
        with pytest.raises(ReshapeError) as error:
            sweep(Experiment(COLUMNS), {"queue_order": orders}, workers=workers, file=file,
                  on_error="raise", progress=False)  # fmt: skip
        said = str(error.value)
        assert said.startswith("at queue_order=Raising(number=2")
        assert "failed in key with LookupError: no order today" in said
        assert re.search(r"test_sweep.py:\d+\)", said), "the error names the line"
        assert points_in(file) >= 1
    assert points_in(file) < 4


def test_a_point_that_raises_ends_the_others_though_sigterm_is_ignored(tmp_path: Path) -> None:
    """Forked processes inherit that from a program, and one of them never ends by itself."""
    orders = [Raising(number, fails_at=2, waits_at=1) for number in range(4)]
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with pytest.raises(ReshapeError, match="no order today"):
            sweep(Experiment(COLUMNS), {"queue_order": orders}, workers=2, on_error="raise",
                  progress=False)  # fmt: skip
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_point_whose_process_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "sweep.jsonl"
    orders = [Raising(number, fails_at=3, is_killed=True) for number in range(4)]
    says = r"at queue_order=Raising\(number=3.*: its process was killed, or ended itself"
    with pytest.raises(ReshapeError, match=says):
        sweep(Experiment(COLUMNS), {"queue_order": orders}, workers=2, file=file,
              on_error="raise", progress=False)  # fmt: skip
    assert points_in(file) == 3
    orders[3] = Raising(3)
    table = sweep(Experiment(COLUMNS), {"queue_order": orders}, workers=2, file=file,
                  progress=False)  # fmt: skip
    assert table.rows == points_in(file) == 4


def test_a_file_that_is_none(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("this is no file of results, but a text of some length\n" * 50)
    with pytest.raises(ReshapeError, match=f"{text}:1: is not a finished run"):
        sweep(Experiment(COLUMNS), {"load": [0.5]}, workers=1, file=text, progress=False)
    assert text.read_text().startswith("this is no file"), "it stays as it was"
    text.write_text("notes in one line, without an end of it")
    with pytest.raises(ReshapeError, match=f"{text}: its end is not a run; give the name of a new"):
        sweep(Experiment(COLUMNS), {"load": [0.5]}, workers=1, file=text, progress=False)
    assert text.read_text().startswith("notes in one line"), "nor is it taken for a cut line"


def test_a_point_that_fails_is_a_row_of_nan_and_is_tried_again(tmp_path: Path) -> None:
    file, orders = tmp_path / "sweep.jsonl", [Raising(number, fails_at=2) for number in range(4)]
    for workers in (1, 2):
        with pytest.warns(RuntimeWarning, match="1 point of 4 failed, see the column error"):
            table = sweep(Experiment(COLUMNS), {"queue_order": orders}, workers=workers,
                          file=file, progress=False)  # fmt: skip
        assert np.isnan(table["mean_wait_s"]).tolist() == [False, False, True, False]
        assert [bool(text) for text in table["error"]] == [False, False, True, False]
        assert "no order today" in table["error"][2]
        assert points_in(file) == 3
        with pytest.raises(KeyError, match="no metric 'error'"):
            table.mean("error", "queue_order")
    orders[2] = Raising(2)
    table = sweep(Experiment(COLUMNS), {"queue_order": orders}, workers=1, file=file,
                  progress=False)  # fmt: skip
    assert "error" not in table
    assert np.isfinite(table["mean_wait_s"]).all()


def spawned() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def forked() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))


def local_orders() -> list[QueueOrder]:
    """Orders of classes that no other process can import, as those of a notebook."""
    checked: set[float] = set()

    class Weighted(QueueOrder, msgspec.Struct, frozen=True, kw_only=True):
        ages = False
        weights: list[float] = msgspec.field(default_factory=lambda: [1.0])
        power: float

        def __post_init__(self) -> None:
            assert isinstance(self, Weighted)
            checked.add(self.power)

        def key(self, job: Job, now: float) -> float:
            assert self.power in checked
            return sum(self.weights) * job.processors**self.power

    class Reversed(Weighted, frozen=True):
        sign: int = -1

        def key(self, job: Job, now: float) -> float:
            return self.sign * super().key(job, now)

    return [Weighted(power=1), Reversed(power=2, weights=[3.0, 4.0]), Reversed(1, power=0.5)]


def test_an_executor_gives_the_same_as_forked_processes() -> None:
    """Spawned processes share nothing with this one, and threads everything."""
    made = Experiment(Jobs.drawn("lublin", jobs=40, processors=32))
    grid = {"queue_order": ["sjf", Mine(2.0), *local_orders()], "seed": range(2)}
    expected = sweep(made, grid, workers=2, progress=False)
    assert "error" not in expected
    with ThreadPoolExecutor(2) as threads:
        tables = [sweep(made, grid, executor=threads, workers=3, progress=False)]
    tables.append(sweep(made, grid, executor=spawned, workers=2, progress=False))
    for table in tables:
        assert [*table] == [*expected]
        for name in table:
            assert table[name].tolist() == expected[name].tolist()


class OneWorker(Executor):
    """Runs each call at once, and notes how many bytes it was sent."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sizes.append(len(pickle.dumps(args)))
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_the_base_experiment_is_sent_once() -> None:
    many = {name: list(values) * 1000 for name, values in COLUMNS.items()}
    worker = OneWorker()
    made = Experiment(Jobs(many).first(20))
    sweep(made, {"tau_s": [1, 2, 3, 4]}, executor=worker, workers=1, progress=False)
    first, *others = worker.sizes
    assert first > 100_000
    assert max(others) < 2_000


def test_a_point_that_ends_its_process_is_found_on_fresh_executors(tmp_path: Path) -> None:
    file = tmp_path / "sweep.jsonl"
    orders = [Raising(number, fails_at=2, is_killed=True) for number in range(4)]
    grid = {"queue_order": orders}
    with pytest.warns(RuntimeWarning, match="1 point of 4 failed"):
        table = sweep(Experiment(COLUMNS), grid, executor=forked, workers=2, file=file,
                      progress=False)  # fmt: skip
    assert [bool(text) for text in table["error"]] == [False, False, True, False]
    assert "its process was killed, or ended itself" in table["error"][2]
    with forked() as given, pytest.raises(ReshapeError, match="give a function that makes"):
        sweep(Experiment(COLUMNS), grid, executor=given, workers=2, file=file, progress=False)
    assert points_in(file) == 3


def test_a_worker_whose_file_differs_refuses_the_point(tmp_path: Path) -> None:
    path = tmp_path / "t.swf"
    path.write_text(trace_text(COLUMNS))

    class Elsewhere(OneWorker):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            path.write_text(trace_text(COLUMNS | {"run_s": [1] * 12}))
            return super().submit(fn, *args, **kwargs)

    with pytest.raises(ReshapeError, match=r"t\.swf on .* is not the file of the sweep; copy it"):
        sweep(Experiment(path), {"load": [0.5]}, executor=Elsewhere(), workers=1,
              on_error="raise", progress=False)  # fmt: skip


@pytest.mark.long
def test_a_sweep_on_loky() -> None:
    loky = pytest.importorskip("loky")
    orders = [Raising(number, fails_at=2, is_killed=True) for number in range(4)]
    with pytest.warns(RuntimeWarning, match="1 point of 4 failed"):
        table = sweep(Experiment(COLUMNS), {"queue_order": orders}, workers=2, progress=False,
                      executor=lambda: loky.get_reusable_executor(2))  # fmt: skip
    assert [bool(text) for text in table["error"]] == [False, False, True, False]


def test_its_file_becomes_a_page_and_a_damaged_line_is_named(tmp_path: Path) -> None:
    file, page = tmp_path / "sweep.jsonl", tmp_path / "sweep.html"
    axes = {"load": [0.5, 0.6]}
    sweep(Experiment(COLUMNS), axes, workers=1, file=file, progress=False)
    invoke("report", file, "-o", page)
    assert "sweep.jsonl" in page.read_text()
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:20])  # it is still being written
    invoke("report", file, "-o", page)
    file.write_bytes(first[:40] + b"\n" + second)
    assert f"{file}:1: is not a point of a sweep" in invoke("report", file, code=1).stderr


def test_progress_is_shown_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    sweep(Experiment(COLUMNS), {"load": [0.5, 0.6]}, workers=1)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "sweep: 2 runs\nsweep: 2 of 2 runs done\n"
    sweep(Experiment(COLUMNS), {"load": [0.5, 0.6]}, workers=1, progress=False)
    assert capsys.readouterr() == ("", "")


#: A queue order that waits at one of its values with WAITS, for a minute unless its process ends.
WAITING = """
import os, time
import msgspec
from scheduler.policies.api import QueueOrder

class Waiting(QueueOrder, msgspec.Struct, frozen=True):
    ages = False
    number: int
    def key(self, job, now):
        if self.number == 60 and "WAITS" in os.environ:
            for _ in range(6000):
                time.sleep(0.01)
        return job.queued_at
"""
#: Starts workers of dask, sweeps over 200 points on them, and prints how many rows it has.
ON_DASK = """
import simulator as sim
from distributed import Client
from waiting_order import Waiting

if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        jobs = sim.Jobs(submit_s=[0, 0, 3], processors=[1, 2, 1], run_s=[5, 5, 2])
        orders = [Waiting(number) for number in range(100)]
        grid = {"scenario": ["fcfs", "easy"], "queue_order": orders}
        table = sim.sweep(sim.Experiment(jobs), grid, workers=8, file="s", progress=False,
                          executor=client.get_executor)
        print("rows", table.rows)
"""


@pytest.mark.long
def test_a_sweep_on_workers_of_dask_that_is_killed_continues(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "waiting_order.py").write_text(WAITING)
    (tmp_path / "program.py").write_text(ON_DASK)
    command = [sys.executable, "program.py"]
    # By default dask gives up a worker that a loaded machine does not start within 30 s.
    patient = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": f"{LIMIT_S}s"}
    begun = subprocess.Popen(command, env=patient | {"WAITS": "1"}, start_new_session=True)
    wait_until(
        lambda: (
            begun.poll() is not None
            or ((tmp_path / "s").exists() and points_in(tmp_path / "s") >= 20)
        )
    )
    assert begun.poll() is None
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    assert 20 <= points_in(tmp_path / "s") < 200
    again = subprocess.run(
        command, env=patient, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == "rows 200"
    assert points_in(tmp_path / "s") == 200


#: Sweeps on the ranks of an mpiexec, of which the first one hands out the points.
ON_MPI = """
import simulator as sim
from mpi4py.futures import MPIPoolExecutor

if __name__ == "__main__":
    jobs = sim.Jobs(submit_s=[0, 0, 3], processors=[1, 2, 1], run_s=[5, 5, 2])
    grid = {"scenario": ["fcfs", "easy"], "tau_s": range(5)}
    table = sim.sweep(sim.Experiment(jobs), grid, workers=2, progress=False,
                      executor=MPIPoolExecutor)
    print("rows", table.rows)
"""


@pytest.mark.long
def test_a_sweep_on_ranks_of_mpi(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(ON_MPI)
    command = [mpiexec_path(), "-n", "3", sys.executable, "-m", "mpi4py.futures", "program.py"]
    done = subprocess.run(
        command,
        env=clean_environment(os.environ),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "rows 10"


#: Defined in `__main__`, as in a notebook: the third point waits until it is interrupted.
PROGRAM = """
import os, sys, time
import msgspec
import simulator as sim
from scheduler.policies.api import QueueOrder

class Waiting(QueueOrder, msgspec.Struct, frozen=True):
    ages = False
    number: int
    def key(self, job, now):
        if job.id == 1:
            os.write(1, f"{self.number}\\n".encode())
        if self.number == 2 and sys.argv[2] == "wait":
            for _ in range(6000):  # one minute, if the test is killed before it interrupts
                time.sleep(0.01)
        return job.queued_at

orders = [Waiting(number) for number in range(4)]
jobs = sim.Jobs(submit_s=[0, 0], processors=[1, 1], run_s=[5, 5])
grid = {"queue_order": orders}
table = sim.sweep(sim.Experiment(jobs), grid, workers=int(sys.argv[1]), file="s", progress=False)
print("rows", table.rows)
"""


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_an_interrupted_sweep_continues(tmp_path: Path, workers: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", str(workers)]
    begun = subprocess.Popen(
        [*command, "wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert begun.stdout is not None
    seen = set()
    while "2" not in seen or (workers == 2 and not seen >= {"0", "1"}):
        line = begun.stdout.readline()
        assert line, "it has ended: " + begun.communicate(timeout=LIMIT_S)[1]
        seen.add(line.strip())
    while points_in(tmp_path / "s") < 2:  # stored before the third one is waited for
        os.sched_yield()
    os.killpg(begun.pid, signal.SIGINT)  # as a terminal does
    _, told = begun.communicate(timeout=LIMIT_S)
    assert begun.returncode != 0
    assert "KeyboardInterrupt" in told
    done = points_in(tmp_path / "s")
    assert done in (2, 3)
    again = subprocess.run(
        [*command, "go"], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    *computed, last = again.stdout.splitlines()
    assert last == "rows 4"
    assert "2" in computed
    assert len(computed) == 4 - done
    assert points_in(tmp_path / "s") == 4


def test_a_trace_that_changed_is_computed_again(tmp_path: Path) -> None:
    path, file = tmp_path / "t.swf", tmp_path / "s"
    waits = []
    for run_s in (30, 90):
        path.write_text(trace_text(COLUMNS | {"run_s": [run_s] * 12}))
        table = sweep(Experiment(path), {"load": [0.5]}, workers=1, file=file, progress=False)
        waits.append(table["makespan_s"].tolist())
    assert waits[0] != waits[1]
    assert points_in(file) == 2
