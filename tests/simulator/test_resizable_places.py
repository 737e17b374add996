"""Resizable jobs have places: a selection chooses their processors, and results say which."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from one_machine import run
from paths import SMALL_TRACE

from reshape.__main__ import main
from reshape.errors import ConfigError
from reshape.speedup import parse
from reshape.topology import Topology
from scheduler.config import machine_file as platform
from scheduler.model.events import JobSpec
from scheduler.model.network import Mesh, Tree
from scheduler.model.procset import ProcSet
from scheduler.policies.scenarios import scenario
from simulator.engine.jobs import SimJob
from simulator.results import jobs_csv, pictures
from simulator.results.placement import mean_dispersal, mean_distance
from simulator.workload_models.workload import Workload

TREE = "nodes: 64\nnetwork: {topology: tree, k: 2, levels: 6}\n"
RESIZING = ("--policy", "fcfs-pr", "--resizable", 0.7, "--speedup", "amdahl:serial=0.01")


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree.yaml"
    path.write_text(TREE)
    return path


def growing(iterations: int = 4) -> SimJob:
    """A job that starts on two processors and takes four at its first resize point."""
    spec = JobSpec(2, 1000.0, 4, Topology.parse("list:2,4"))
    return SimJob(0.0, spec, 10.0 * iterations, iterations, parse("amdahl:serial=0"))


def rigid() -> SimJob:
    return SimJob(0.0, JobSpec(2, 1000.0), 100.0)


@pytest.mark.parametrize(
    ("jobs", "end", "places"),
    [
        ([growing()], 5 + 3 * 2.5, [(0, "0-1"), (5, "0-3")]),
        ([growing(), rigid()], 5 + 5 + 2 * 5, [(0, "0-1"), (5, "0-1 4-5"), (10, "0-1")]),
    ],
)
def test_an_iteration_gains_if_the_processors_are_contiguous_then(
    jobs: list[SimJob], end: float, places: list[tuple[float, str]]
) -> None:
    """The expansion around job 2 gains nothing and is undone."""
    schedule = run(
        Workload(8, jobs), 8, scenario("max-b-pr"), counted=False, contiguity_speedup=0.5
    )
    assert schedule.ended[0] == end
    assert schedule.places is not None
    assert [(at, str(held)) for at, held in schedule.places[1]] == places
    assert schedule.allocated is not None
    assert str(schedule.allocated[1]) == "0-1"


def test_places_are_kept_on_request_only() -> None:
    schedule = run(Workload(8, [growing()]), 8, scenario("max-b-pr"))
    assert schedule.places is schedule.allocated is None
    kept = run(Workload(8, [growing()]), 8, scenario("max-b-pr"), counted=False)
    assert schedule.held is not None
    assert kept.held is not None
    assert len(kept.held[1]) > 1
    assert [*schedule.held[1]] == [(at, len(held)) for at, held in kept.held[1]]


@pytest.mark.parametrize("select", ["few-nodes", "tree", "table-first-fit"])
def test_no_processor_belongs_to_two_jobs_at_a_time(
    select: str, tree: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--machine", tree, "--select", select, "--set", "dispersal=true", "--jobs", 120)
    done = simulate(SMALL_TRACE, *RESIZING, *options, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["expansions"] > 0
    assert facts["contractions"] > 0
    assert 0 <= facts["external_fragmentation"] < 1
    assert facts["internal_fragmentation"] == 0
    schedule, _ = jobs_csv.read(out / "jobs.csv")
    assert schedule.sizes is not None
    assert schedule.places is not None
    assert schedule.allocated is not None
    by_processor: dict[int, list[tuple[float, float]]] = {}
    for _, begin, end, held in schedule.place_spans():
        for processor in held:
            by_processor.setdefault(processor, []).append((begin, end))
    for spans in by_processor.values():
        for (_, end), (begin, _) in pairwise(sorted(spans)):
            assert end <= begin
    network = Tree(2, 6)
    assert [*schedule.places] == [*schedule.sizes] == [*schedule.allocated]
    for number, places in schedule.places.items():
        assert [(at, len(held)) for at, held in places] == [*schedule.sizes[number]]
        assert places[0][1] == schedule.allocated[number]
        if select == "tree":
            assert network.contiguous(places[0][1])
    with (out / "jobs.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["mean_distance"]]
    kept = schedule.places.values()
    rigid_ones = [(row, each[0][1]) for row, each in zip(rows, kept, strict=True) if len(each) == 1]
    assert rigid_ones
    for row, held in rigid_ones:
        assert float(row["mean_distance"]) == pytest.approx(mean_distance(network, held))


def test_dispersal_is_a_mean_over_time() -> None:
    """A ring of eight: 0 and 1 for 10 s, 0 and 4 for 30 s, and a wait between two runs."""
    ring = Mesh((8,), True)
    kept = [
        (0.0, ProcSet.parse("0-1")),
        (10.0, ProcSet()),
        (15.0, ProcSet.parse("0 4")),
    ]
    assert mean_dispersal(ring, kept, 45.0)[0] == (10 * 1 + 30 * 4) / 40
    assert np.isnan(mean_dispersal(ring, (), np.nan)).all()
    assert mean_dispersal(ring, kept[:1], 0.0)[0] == 1


def test_a_workload_file_on_a_machine_with_a_network(tree: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(
        "jobs:\n"
        '  - {at: 0, processors: 2, max_processors: 4, topology: "list:2,4", walltime: 1000,\n'
        '     iterations: 4, iteration_s: 10, speedup: "amdahl:serial=0"}\n'
        "  - {at: 1, processors: 4, walltime: 100, iteration_s: 50}\n"
    )
    out = tmp_path / "out"
    options = ("--machine", tree, "--select", "tree", "--set", "event_order=sequential")
    done = simulate(jobs, "--policy", "max-b-pr", *options, "--out", out)
    assert done.exit_code == 0, done.output
    found, _ = jobs_csv.read(out / "jobs.csv")
    assert found.places is not None
    assert [(at, str(held)) for at, held in found.places[1]] == [(0, "0-1"), (10, "0-3")]
    assert [(at, str(held)) for at, held in found.places[2]] == [(1, "4-7")]
    assert pictures.gantt(pictures.Scene(found, 8, "tree")).axes[0].collections


def test_runs_that_contiguity_shortens_are_not_cut_beforehand(tree: Path) -> None:
    """With the rule `cut`, a job whose run would exceed its request ends at the request."""
    options = ("--machine", tree, "--select", "tree", "--jobs", 60, "--json")
    shorter = json.loads(
        simulate(SMALL_TRACE, *RESIZING, *options, "--set", "contiguity.speedup=0.5").stdout
    )
    plain = json.loads(simulate(SMALL_TRACE, *RESIZING, *options).stdout)
    assert shorter["mean_execution_s"] < plain["mean_execution_s"]


def test_exclusive_nodes_are_refused() -> None:
    machine = msgspec.structs.replace(platform.flat(8), exclusive=True)
    with pytest.raises(ConfigError, match="exclusive nodes do not apply to resizable jobs"):
        run(Workload(8, [growing()]), machine, scenario("max-b-pr"))
