"""Dependencies and begin times in workload files, decided by the core as in a live service."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_machine import run

from reshape.errors import ConfigError
from scheduler.config import machine_file
from scheduler.core.core import Core
from scheduler.journal.journal_format import encode_order
from scheduler.model.events import Event
from scheduler.model.job import FINAL
from scheduler.model.machine import Machine
from scheduler.model.orders import Order, WakeAt
from scheduler.policies.scenarios import scenario
from scheduler.state.records import decode_core, decode_job, encode_core, encode_job
from simulator.experiment.experiment import simulate
from simulator.workload_models.workload_file import encode, read

JOBS = """
processors: 4
jobs:
  - {at: 0, processors: 4, walltime: 100, iteration_s: 60}
  - {at: 1, processors: 1, walltime: 20, iteration_s: 30, name: over}
  - {at: 2, processors: 2, walltime: 50, iteration_s: 20, dependency: "afterok:1,afternotok:2"}
  - {at: 3, processors: 2, walltime: 50, iteration_s: 20, dependency: "after:3"}
  - {at: 4, processors: 1, walltime: 50, iteration_s: 5, begin_s: 30}
  - {at: 5, processors: 1, walltime: 50, iteration_s: 5, dependency: "afterok:2"}
  - {at: 6, processors: 1, walltime: 50, iteration_s: 5, dependency: "afterok:2",
     kill_on_invalid_dep: true}
  - {at: 7, processors: 1, walltime: 50, iteration_s: 5, dependency: "afterany:7?afterok:6",
     begin_s: 150}
  - {at: 8, processors: 2, walltime: 50, iteration_s: 5, array: "0-9:3%3", begin_s: 160}
  - {at: 9, processors: 1, walltime: 50, iteration_s: 5, dependency: "afterok:9"}
  - {at: 9, processors: 1, walltime: 50, iteration_s: 4, dependency: "afterok:9_[0,3]"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.yaml"
    path.write_text(JOBS)
    return path


def test_a_file_with_dependencies_is_simulated_and_written_again(file: Path) -> None:
    workload = read(file)
    started = run(workload, machine_file.flat(4), scenario("easy")).started.tolist()
    assert started[:5] == [0, 60, 80, 80, 60]
    assert started[5] != started[5], "it waits for what can never be"
    assert started[6] != started[6], "it ends without a start"
    assert started[7] == 150
    assert started[8] != started[8], "an array itself does not start"
    assert started[9:13] == [160, 160, 165, 165]
    assert started[13:] == [170, 170], "its tasks have all processors until then"
    again = file.with_name("again.yaml")
    again.write_bytes(encode(workload, "the same"))
    assert read(again) == workload


def test_an_array_is_no_job_that_could_not_start(file: Path) -> None:
    run = simulate(file)
    assert run.metrics["unstarted"] == 2
    (note,) = run.notes
    assert note.startswith("2 jobs could not start and count in no mean: job 6 requests 1")
    assert "job 9" not in note
    assert run.jobs["state"].tolist()[5:10] == [
        *["unstarted"] * 2,
        "completed",
        "array",
        "completed",
    ]


def test_a_restored_core_decides_the_same_at_each_instant(file: Path) -> None:
    """A service that is started again after any event goes on as if it had not ended."""
    instants: list[tuple[list[Event], list[Order]]] = []
    run(
        read(file),
        machine_file.flat(4),
        scenario("easy"),
        watch=lambda at, events, orders: instants.append((events, orders)),
    )
    core = Core(scenario("easy"), Machine([("machine", 4)]))
    for events, orders in instants:
        answer = core.handle(events)
        told = [encode_order(order) for order in answer if not isinstance(order, WakeAt)]
        assert told == [encode_order(order) for order in orders if not isinstance(order, WakeAt)]
        kept = [job for job in core.jobs.values() if job.state not in FINAL]
        core = Core.restored(
            decode_core(encode_core(core.record())),
            [decode_job(encode_job(job)) for job in kept],
            core.scenario,
            Machine(),
        )


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ('dependency: "afterok:2"', "names job 2, and this is job 2 in the order of submission"),
        ('dependency: "afterok:9"', "names job 9, and this is job 2"),
        ('dependency: "afterok:1_0"', "there is no task 1_0: job 1 is no array"),
        ('dependency: "ok:1"', "'ok:1' is no dependency"),
        ("begin_s: .inf", "begin_s: must be >= 0 and <= 1e"),
        ("kill_on_invalid_dep: true", "has no effect without dependency"),
    ],
)
def test_an_invalid_condition_is_refused(tmp_path: Path, field: str, why: str) -> None:
    path = tmp_path / "jobs.yaml"
    plain = "processors: 1, walltime: 9, iteration_s: 1"
    path.write_text(f"jobs:\n  - {{at: 0, {plain}}}\n  - {{at: 1, {plain}, {field}}}\n")
    with pytest.raises(ConfigError, match=rf"jobs\.yaml:3.*jobs\[1\].*{why}"):
        read(path)
