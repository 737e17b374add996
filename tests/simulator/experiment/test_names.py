"""The names that programs and notebooks use, and what importing them loads.

A change here changes the interface: it belongs into the changelog.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import simulator
from simulator import Experiment, Jobs, Simulation, SweepTable
from simulator.experiment.jobs import JobFields
from simulator.workload_models.workload import Resizable

NAMES = ["Experiment", "Jobs", "Simulation", "SweepTable", "simulate", "sweep"]
FIELDS = (
    "jobs", "processors", "machine", "partition_field", "scenario", "queue_order",
    "backfill_order", "estimates", "select", "event_order", "feedback", "contiguity", "dispersal",
    "sharing", "advance_reservations", "assign", "dispatch", "pool", "pool_wait", "load", "seed",
    "tau_s", "warm_up_s", "cool_down_s", "quotes",
)  # fmt: skip
MEMBERS: dict[type, set[str]] = {
    Experiment: {"from_file", "of_tree", "replace", "run", "save", "data"},
    Jobs: {
        "columns", "data", "drawn", "draws", "fields", "first", "load", "of", "read",
        "with_resizable", "with_rules",
    },
    Simulation: {
        "allocations", "files", "gantt", "jobs", "metrics", "notes", "plot", "quotes",
        "reservations", "resizes", "summary", "swf", "tables", "write",
    },
    SweepTable: {"axes", "compare", "mean"},
}  # fmt: skip
COLUMNS = (
    "job", "user", "submit_s", "processors", "walltime_s", "expected_s", "start_s", "end_s",
    "wait_s", "run_s", "turnaround_s", "bounded_slowdown", "state", "nominal_run_s",
)  # fmt: skip


def test_public_names() -> None:
    assert {*simulator.__all__} >= {*NAMES}
    for name in simulator.__all__:
        assert getattr(simulator, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Experiments'"):
        simulator.Experiments  # noqa: B018


def test_fields_of_an_experiment() -> None:
    assert Experiment.__struct_fields__ == FIELDS


def test_fields_of_its_file() -> None:
    assert JobFields.__struct_fields__ == (
        "trace", "workload", "model", "columns", "options", "lenient", "rules", "first",
        "resizable",
    )  # fmt: skip
    assert Resizable.__struct_fields__ == (
        "share", "speedup", "iterations", "expand_most", "expand_least", "expand_step", "data_mib",
        "cost", "performance",
    )  # fmt: skip


@pytest.mark.parametrize("cls", MEMBERS, ids=lambda cls: cls.__name__)
def test_members(cls: type) -> None:
    assert {name for name in vars(cls) if not name.startswith("_")} >= MEMBERS[cls]


def test_columns_of_the_jobs() -> None:
    ran = simulator.simulate({"submit_s": [0], "processors": [1], "run_s": [5]})
    assert tuple(ran.jobs) == COLUMNS


def test_importing_loads_little() -> None:
    """`import simulator` loads neither NumPy nor the core, and a simulation no Matplotlib."""
    program = (
        "import sys, simulator\n"
        "heavy = ('numpy', 'msgspec', 'yaml', 'scheduler.core', 'simulator.engine')\n"
        "print(*(name for name in heavy if name in sys.modules))\n"
        "simulator.simulate({'submit_s': [0], 'processors': [1], 'run_s': [5]}).metrics\n"
        "rare = ('matplotlib', 'mpi4py', 'zmq', 'yaml', 'click', 'rich', 'sqlite3')\n"
        "rare += ('simulator.many_centres.centres', 'simulator.pools')\n"
        "print(*(name for name in rare if name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n\n"
