"""Dispersal of allocations against twins that look at every pair, and the gain that it gives."""

from __future__ import annotations

import csv
import json
from itertools import combinations
from math import inf
from pathlib import Path

import numpy as np
import pytest
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from meshes import MESHES
from paths import SMALL_TRACE

from scheduler.model.network import Mesh, Network, Tree
from scheduler.model.procset import ProcSet
from simulator.engine.physics import ContiguityGain
from simulator.results.placement import (
    compact_distance,
    extent,
    mean_distance,
    network_distance,
)

NETWORKS = st.one_of(
    st.builds(Tree, st.integers(2, 4), st.integers(1, 3), st.integers(1, 3)),
    MESHES,
)


@st.composite
def places(draw: st.DrawFn) -> tuple[Network, ProcSet]:
    network = draw(NETWORKS)
    numbers = draw(st.sets(st.integers(0, network.processors - 1), min_size=1, max_size=20))
    return network, ProcSet.of(numbers)


def links(network: Network, one: int, other: int) -> int:
    """Links between the nodes of two processors."""
    a, b = (number // network.processors_per_node for number in (one, other))
    if isinstance(network, Tree):
        level = 0
        while a != b:
            a, b, level = a // network.k, b // network.k, level + 1
        return 2 * level
    total = 0
    here, there = (np.unravel_index(node, network.dims) for node in (a, b))
    for x, y, size in zip(here, there, network.dims, strict=True):
        apart = abs(int(x) - int(y))
        total += min(apart, size - apart) if network.wraps else apart
    return total


@given(places())
def test_the_mean_distance_equals_its_twin(place: tuple[Network, ProcSet]) -> None:
    network, processors = place
    pairs = [links(network, a, b) for a, b in combinations(processors, 2)]
    expected = sum(pairs) / len(pairs) if pairs else 0.0
    assert mean_distance(network, processors) == pytest.approx(expected)


@given(places())
def test_the_extent_equals_its_twin(place: tuple[Network, ProcSet]) -> None:
    """Of a torus the smallest window of each dimension, at any beginning."""
    network, processors = place
    if isinstance(network, Tree):
        farthest = max(links(network, a, b) for a in processors for b in processors)
        assert extent(network, processors) == farthest // 2
        return
    nodes = {number // network.processors_per_node for number in processors}
    sides = []
    for axis, size in enumerate(network.dims):
        used = {int(np.unravel_index(node, network.dims)[axis]) for node in nodes}
        begins = range(size) if network.wraps else [min(used)]
        sides.append(min(max((c - begin) % size for c in used) + 1 for begin in begins))
    assert network.sides(processors) == tuple(sides)
    assert extent(network, processors) == max(sides)


def test_distances_by_hand() -> None:
    ring, line = Mesh((8,), wraps=True), Mesh((8,))
    assert mean_distance(ring, ProcSet.parse("0 7")) == 1
    assert mean_distance(line, ProcSet.parse("0 7")) == 7
    assert mean_distance(ring, ProcSet.parse("0 4")) == 4
    assert (extent(ring, ProcSet.parse("0 7")), extent(line, ProcSet.parse("0 7"))) == (2, 8)
    square = Mesh((4, 4))
    assert compact_distance(square, 4) == mean_distance(square, ProcSet.parse("0-1 4-5"))
    assert compact_distance(square, 4) == pytest.approx(4 / 3)
    assert network_distance(Mesh((2, 2))) == pytest.approx(4 / 3)


@given(places(), st.floats(0, 0.9), st.floats(0, 8))
def test_the_gain_falls_with_the_distance(
    place: tuple[Network, ProcSet], speedup: float, exponent: float
) -> None:
    """Between the constant factor and none; the constant factor is the special case."""
    network, processors = place
    constant = ContiguityGain(speedup).run_times_in(network)(100.0, processors)
    assert constant == (100 * (1 - speedup) if network.contiguous(processors) else 100.0)
    by_distance = ContiguityGain(speedup, exponent).run_times_in(network)(100.0, processors)
    assert 100 * (1 - speedup) - 1e-9 <= by_distance <= constant + 1e-9
    steeper = ContiguityGain(speedup, 2 * exponent).run_times_in(network)(100.0, processors)
    assert steeper >= by_distance - 1e-9
    everywhere = ContiguityGain(speedup, 0.0).run_times_in(network)(100.0, processors)
    assert everywhere == pytest.approx(100 * (1 - speedup))


def test_wrong_exponents() -> None:
    with pytest.raises(ValueError, match="exponent must be >= 0, got -1"):
        ContiguityGain(0.2, -1.0)
    with pytest.raises(ValueError, match="needs a machine with a network"):
        ContiguityGain(0.2, 1.0).run_times_in(None)
    assert ContiguityGain(0.2).exponent == inf


TORUS = "nodes: 64\nexclusive: {}\nnetwork: {{topology: torus, dims: [8, 8]}}\n"


def test_the_columns_and_metrics_of_a_simulation(tmp_path: Path) -> None:
    (tmp_path / "torus.yaml").write_text(TORUS.format("false"))
    (tmp_path / "whole.yaml").write_text(TORUS.format("true"))
    torus = Mesh((8, 8), wraps=True)
    found = {}
    for machine in ("torus", "whole"):
        for select in ("submesh", "first-fit"):
            out = tmp_path / machine / select
            chosen = ("--machine", tmp_path / f"{machine}.yaml", "--select", select)
            done = invoke("simulate", SMALL_TRACE, *chosen, "--out", out, "--json")
            found[machine, select] = json.loads(done.stdout)
            with (out / "jobs.csv").open() as file:
                rows = [row for row in csv.DictReader(file) if row["mean_distance"]]
            assert rows
            for row in rows:
                processors = ProcSet.parse(row["allocated_resources"])
                assert float(row["mean_distance"]) == mean_distance(torus, processors)
                assert float(row["extent"]) == extent(torus, processors)
                if select == "submesh":
                    assert torus.contiguous(processors)
            means = [float(row["mean_distance"]) for row in rows]
            assert found[machine, select]["mean_distance"] == pytest.approx(sum(means) / len(means))
    assert found["torus", "submesh"]["mean_distance"] < found["torus", "first-fit"]["mean_distance"]
    assert found["torus", "submesh"]["internal_fragmentation"] == 0
    assert found["whole", "submesh"]["internal_fragmentation"] > 0
    assert found["whole", "first-fit"]["internal_fragmentation"] == 0
    gain = ("--set", "contiguity.speedup=0.5", "--set", "contiguity.exponent=1")
    chosen = ("--machine", tmp_path / "torus.yaml", "--select", "first-fit")
    faster = json.loads(invoke("simulate", SMALL_TRACE, *chosen, *gain, "--json").stdout)
    constant = json.loads(invoke("simulate", SMALL_TRACE, *chosen, *gain[:2], "--json").stdout)
    runs = [each["mean_turnaround_s"] - each["mean_wait_s"] for each in (faster, constant)]
    assert runs[0] < runs[1]


def test_dispersal_on_a_tree_is_an_option(tmp_path: Path) -> None:
    (tmp_path / "tree.yaml").write_text("nodes: 64\nnetwork: {topology: tree, k: 4, levels: 3}\n")
    chosen = ("--machine", tmp_path / "tree.yaml", "--select", "tree", "--json")
    plain = json.loads(invoke("simulate", SMALL_TRACE, *chosen).stdout)
    measured = json.loads(
        invoke("simulate", SMALL_TRACE, *chosen, "--set", "dispersal=true").stdout
    )
    assert "mean_extent" not in plain
    assert 0 < measured["mean_distance"] <= 2 * measured["mean_extent"] <= 6
    refused = invoke("simulate", SMALL_TRACE, "--set", "dispersal=true", code=2)
    assert "give a machine with one, and select" in refused.stderr
