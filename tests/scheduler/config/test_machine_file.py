"""Machine files, contiguity and fragmentation through the public interface."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from one_machine import run
from paths import SMALL_TRACE

from reshape.errors import ConfigError
from scheduler.config import machine_file as platform
from scheduler.config.sources import load_config
from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted, NodeJoined, NodeLost
from scheduler.model.machine import Machine
from scheduler.model.network import Mesh, Tree
from scheduler.model.orders import Kill, Order, Start
from scheduler.model.procset import ProcSet
from scheduler.policies.scenarios import scenario
from scheduler.state.view import Reservation
from simulator.engine.physics import ContiguityGain
from simulator.traces import swf
from simulator.traces.normalise import Rules

SMALL = SMALL_TRACE
FILE = """\
nodes: 14
network:
  topology: tree
  k: 4
  levels: 2
  not_installed: 5 12
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_machine_file_is_read(tmp_path: Path) -> None:
    machine = platform.read(written(tmp_path / "m.yaml", FILE))
    assert (machine.processors, machine.network) == (14, Tree(4, 2))
    assert str(machine.machines({}, counted=False)[""].free) == "0-4 6-11 13-15"
    assert machine.machines({}, counted=True)[""].free_count == 14
    named = "nodes: [a, b, c]\nprocessors_per_node: 2\nexclusive: true\n"
    named += "network: {topology: tree, k: 2, levels: 2}\n"
    machine = platform.read(written(tmp_path / "n.yaml", named))
    assert machine.places == {
        "a": ProcSet.span(0, 2),
        "b": ProcSet.span(2, 2),
        "c": ProcSet.span(4, 2),
    }
    assert str(machine.machines({}, counted=False)[""].free) == "0-5"
    flat = platform.read(written(tmp_path / "f.yaml", "nodes: 3\nprocessors_per_node: 4\n"))
    assert (flat.processors, flat.network) == (12, None)
    assert list(flat.places) == ["node0", "node1", "node2"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "nodes: 14",
            "nodes: 0",
            r"m.yaml:1: nodes: a machine has at least one node; .*--processors 0",
        ),
        ("nodes: 14", "nodes: [a, b, a]", r"m.yaml:1: nodes\[2\]: two nodes are named 'a'"),
        ("nodes: 14", "nodes: [a, 3]", r"m.yaml:1: nodes\[1\]: expected str, got 3"),
        ("nodes: 14", "nodes: 14\nfeatures: {gpu: [node5]}", r"m.yaml:2: features.gpu: .*node5"),
        ("nodes: 14", "node: 14", r"m.yaml:1: node: unknown field; did you mean nodes"),
        ("topology: tree", "topology: ring", r"m.yaml:3: network.topology: must be tree or mesh"),
        ("topology: tree", "topology: torus", r"m.yaml:2: network: .* torus is described by dims"),
        ("  k: 4\n", "", r"m.yaml:2: network: .* tree is described by k and levels"),
        ("k: 4", "k: 1", r"m.yaml:2: network: k must be >= 2, got 1"),
        ("levels: 2", "levels: two", r"m.yaml:5: network.levels: "),
        ("5 12", "5-x", r"m.yaml:6: network.not_installed: '5-x' in '5-x' is no interval"),
        (
            "5 12",
            "16",
            r"m.yaml:6: network.not_installed: 16 are not leaves of this tree, which has 0-15",
        ),
        ("5 12", "5", r"m.yaml:6: network.not_installed: it leaves 15 of 16 leaves for 14 nodes"),
        ("  not_installed: 5 12\n", "", None),
        ("nodes: 14", "nodes: 17", r"it leaves 14 of 16 leaves for 17 nodes"),
    ],
)
def test_invalid_machine_files_are_refused(
    tmp_path: Path, old: str, new: str, says: str | None
) -> None:
    file = written(tmp_path / "m.yaml", FILE.replace(old, new))
    if says is None:
        assert str(platform.read(file).numbers) == "0-13"
        return
    with pytest.raises(ConfigError, match=says):
        platform.read(file)


TORUS = "nodes: 14\nnetwork:\n  topology: torus\n  dims: [4, 4]\n  not_installed: 5 12\n"


def test_meshes_and_tori_are_read(tmp_path: Path) -> None:
    machine = platform.read(written(tmp_path / "t.yaml", TORUS))
    assert (machine.processors, machine.network) == (14, Mesh((4, 4), wraps=True))
    assert str(machine.machines({}, counted=False)[""].free) == "0-4 6-11 13-15"
    assert "node4" in machine.places
    ring = "nodes: 3\nprocessors_per_node: 2\nnetwork: {topology: mesh, dims: [4]}\n"
    machine = platform.read(written(tmp_path / "r.yaml", ring))
    assert machine.network == Mesh((4,), processors_per_node=2)
    assert str(machine.numbers) == "0-5"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[4, 4]", "[]", r"m.yaml:2: network: dims must name at least one dimension"),
        ("[4, 4]", "[4, 0]", r"m.yaml:2: network: dims must be >= 1, got \[4, 0\]"),
        ("[4, 4]", "4", r"m.yaml:4: network.dims: "),
        ("[4, 4]", "[9999, 9999]", r"m.yaml:2: network: a mesh has at most 16777216 nodes"),
        ("[4, 4]", "[4, 4]\n  k: 4", r"m.yaml:2: network: .* torus is described by dims"),
        ("5 12", "16", r"m.yaml:5: network.not_installed: 16 are not positions of this torus"),
        ("5 12", "5", r"leaves 15 of 16 positions for 14 nodes; list all positions without a node"),
    ],
)
def test_invalid_meshes_are_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    file = written(tmp_path / "m.yaml", TORUS.replace(old, new))
    with pytest.raises(ConfigError, match=says):
        platform.read(file)


def test_more_nodes_than_positions_are_refused(tmp_path: Path) -> None:
    text = "nodes: 17\nnetwork: {topology: mesh, dims: [4, 4]}\n"
    with pytest.raises(
        ConfigError, match=r"17 nodes do not fit on the 16 positions of a mesh of 4"
    ):
        platform.read(written(tmp_path / "m.yaml", text))


def test_more_nodes_than_leaves_are_refused(tmp_path: Path) -> None:
    text = "nodes: 17\nnetwork: {topology: tree, k: 4, levels: 2}\n"
    with pytest.raises(ConfigError, match=r"m.yaml:1: nodes: 17 nodes do not fit on the 16 leaves"):
        platform.read(written(tmp_path / "m.yaml", text))
    with pytest.raises(ValueError, match="17 nodes do not fit on a network for 16"):
        platform.on_network(Tree(4, 2), 17)


def trace_of(tmp_path: Path, rows: list[tuple[int, int, int, int]]) -> swf.Trace:
    """Trace of (submit, run, processors, requested time)."""
    lines = [
        f"{i} {at} -1 {run_s} {n} -1 -1 {n} {asked}" + " -1" * 9
        for i, (at, run_s, n, asked) in enumerate(rows, 1)
    ]
    return swf.read(written(tmp_path / "t.swf", "\n".join(lines) + "\n"))


def test_selections_that_refuse_delay_jobs(tmp_path: Path) -> None:
    """Four of eight processors are free, two below each switch of the first level."""
    rows = [(0, 100, 2, 100), (0, 10, 2, 10), (0, 100, 2, 100), (0, 10, 2, 10), (20, 10, 4, 10)]
    trace = trace_of(tmp_path, rows)
    easy = scenario("easy", {"selection": "tree"})
    schedule = run(trace, platform.on_network(Tree(4, 2), 8), easy, counted=False)
    assert schedule.started.tolist() == [0, 0, 0, 0, 100]
    assert [str(p) for p in schedule.allocated.values()] == ["0-1", "2-3", "4-5", "6-7", "0-3"]
    # 4 processors wanted from 20 to 100, of 8 for 110 s
    assert schedule.fragmentation["external_fragmentation"] == pytest.approx(4 * 80 / (8 * 110))
    assert schedule.fragmentation["internal_fragmentation"] == 0
    relaxed = scenario("easy", {"selection": "tree-relaxed"})
    schedule = run(trace, platform.on_network(Tree(4, 2), 8), relaxed, counted=False)
    assert schedule.started.tolist() == [0, 0, 0, 0, 20]
    assert str(schedule.allocated[5]) == "2-3 6-7"
    assert schedule.fragmentation["external_fragmentation"] == 0


def test_only_contiguous_jobs_run_faster(tmp_path: Path) -> None:
    rows = [(0, 100, 2, 100), (0, 10, 2, 10), (0, 100, 2, 100), (0, 10, 2, 10), (20, 100, 4, 100)]
    relaxed = scenario("easy", {"selection": "tree-relaxed"})
    machine, run_s = platform.on_network(Tree(4, 2), 8), ContiguityGain(0.2).run_times_in(None)
    trace = trace_of(tmp_path, rows)
    schedule = run(trace, machine, relaxed, counted=False, contiguity_speedup=0.2)
    assert (schedule.ended - schedule.started).tolist() == [80, 8, 80, 8, 100]
    assert run_s(10, ProcSet.parse("0-3")) == 8
    assert run_s(10, ProcSet.parse("0-2 4")) == 10
    with pytest.raises(ValueError, match="speedup must be >= 0 and < 1, got 1"):
        ContiguityGain(1)


def test_a_faster_run_is_cut_when_it_reaches_its_walltime(tmp_path: Path) -> None:
    """Runs of 100 s and 200 s with a walltime of 90 s: 20 % faster, the first one ends in time."""
    trace = trace_of(tmp_path, [(0, 100, 1, 90), (0, 200, 1, 90), (0, 50, 1, 90)])
    easy = scenario("easy", {"selection": "tree"})
    machine = platform.on_network(Tree(2, 2), 4)
    schedule = run(trace, machine, easy, counted=False, contiguity_speedup=0.2)
    assert (schedule.ended - schedule.started).tolist() == [80, 90, 40]
    assert schedule.killed.tolist() == [False, True, False]


def test_exclusive_jobs_hold_whole_nodes(tmp_path: Path) -> None:
    """Five processors on nodes of four hold eight."""
    machine = platform.read(
        written(tmp_path / "m.yaml", "nodes: 3\nprocessors_per_node: 4\nexclusive: true\n")
    )
    trace = trace_of(tmp_path, [(0, 10, 5, 10), (0, 10, 4, 10), (0, 10, 1, 10)])
    first_fit = scenario("easy", {"selection": "first-fit"})
    schedule = run(trace, machine, first_fit, counted=False)
    assert [str(p) for p in schedule.allocated.values()] == ["0-7", "8-11", "0-3"]
    assert schedule.fragmentation["internal_fragmentation"] == pytest.approx(
        (3 + 3) * 10 / (12 * 20)
    )
    counted = run(trace, machine, first_fit)
    assert np.array_equal(counted.started, schedule.started)


def test_resources_of_the_nodes_override_those_of_the_trace(tmp_path: Path) -> None:
    """Jobs of 8 GiB: two at a time in the 16 GiB of the trace, three on three nodes of 8 GiB."""
    line = "{} 0 -1 10 1 -1 -1 1 10 -1 1 1 1 -1 -1 -1 -1 -1 {}"
    rows = [line.format(number, gib) for number, gib in enumerate((8, 8, 8, 20), 1)]
    trace = swf.read(written(tmp_path / "t.swf", "; Resources: gib=16\n" + "\n".join(rows) + "\n"))
    schedule = run(trace, 3, scenario("easy"))
    assert (schedule.started.tolist(), schedule.report.larger) == ([0, 0, 10], 1)
    nodes = "nodes: 3\nresources_per_node: {gib: 8, licences: 1}\n"
    machine = platform.read(written(tmp_path / "m.yaml", nodes))
    assert machine.resources == {"gib": 24, "licences": 3}
    schedule = run(trace, machine, scenario("easy"))
    assert (schedule.started.tolist(), schedule.report.larger) == ([0, 0, 0, 10], 0)
    with pytest.raises(ConfigError, match=r"m.yaml:1: resources_per_node.gib: expected int"):
        platform.read(written(tmp_path / "m.yaml", "{nodes: 3, resources_per_node: {gib: -8}}"))


def test_counting_and_first_fit_give_equal_schedules() -> None:
    trace, rules = swf.read(SMALL), Rules(overrun="keep")
    easy = scenario("easy", {"backfill.kill_at_reservation": True})
    counted = run(trace, 64, easy, rules)
    numbered = run(trace, platform.on_network(Tree(4, 3), 64), easy, rules, counted=False)
    assert np.array_equal(counted.started, numbered.started)
    assert numbered.fragmentation["external_fragmentation"] == 0


def test_the_simulate_command_takes_a_machine_file(tmp_path: Path) -> None:
    machine = written(
        tmp_path / "m.yaml", "nodes: 64\nnetwork: {topology: tree, k: 4, levels: 3}\n"
    )
    command = [sys.executable, "-m", "reshape", "simulate", str(SMALL), "--machine", str(machine)]

    def reshape(*options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done

    out = tmp_path / "out"
    done = reshape(
        "--select", "tree", "--set", "contiguity.speedup=0.3", "--json", "--out", str(out)
    )
    found = json.loads(done.stdout)
    assert 0 <= found["external_fragmentation"] < 1
    assert json.loads((out / "metrics.json").read_text())["internal_fragmentation"] == 0
    with (out / "jobs.csv").open() as file:
        for row in csv.DictReader(file):
            assert Tree(4, 3).contiguous(ProcSet.parse(row["allocated_resources"]))
    says = reshape("--select", "tre", code=2).stderr
    assert "unknown selection 'tre'; did you mean tree" in says
    assert "leave processors out" in reshape("--processors", "8", code=2).stderr
    assert (
        "give select as well, such as tree"
        in reshape("--set", "contiguity.speedup=0.1", code=2).stderr
    )
    says = reshape("--select", "tree", "--policy", "conservative", code=2).stderr
    assert "conservative promises numbers of processors, not places" in says
    command[-2:] = []
    assert "needs a machine with a network" in reshape("--select", "tree", code=2).stderr


def test_features_of_the_nodes_of_a_service(tmp_path: Path) -> None:
    text = "nodes: [a, b]\nfeatures: {gpu: [b], fast: [b, a]}\n"
    file = str(written(tmp_path / "m.yaml", text))
    config = load_config(None, {"machine": file})
    assert [node.features for node in config.nodes] == [("fast",), ("gpu", "fast")]
    own = written(tmp_path / "c.yaml", "nodes: [{name: a, processors: 1, features: [a b]}]\n")
    with pytest.raises(ConfigError, match="'a b' has other characters than letters"):
        load_config(own, {})


def test_live_nodes_in_a_network() -> None:
    """Nodes that are lost and return keep their leaves; a selection uses only nodes that are up."""
    places = {name: ProcSet.span(4 * i, 4) for i, name in enumerate("abcd")}
    network = Tree(2, 2, 4)
    core = Core(scenario("easy", {"selection": "tree"}), Machine(network=network, places=places))

    def placed(orders: list[Order]) -> dict[int, str]:
        found = {}
        for order in orders:
            if isinstance(order, Start):
                parts = core.machine.by_node(order.processors).items()
                found[order.job] = ",".join(f"{name}:{len(part)}" for name, part in parts)
        return found

    joined = [NodeJoined(0, name, 4) for name in "dbx"]
    assert core.handle(joined) == []
    assert str(core.machine.free) == "4-7 12-19", "a node without a place is numbered behind"
    jobs = [JobSubmitted(1, i, JobSpec(n, 25.0 * n)) for i, n in enumerate([8, 4, 4, 2, 3], 1)]
    assert placed(core.handle(jobs)) == {2: "b:4", 3: "d:4"}, "8 together there are none as yet"
    assert core.reason_pending(1).rule == "NoPlace"
    assert core.reason_pending(4).rule == "Resources"
    assert placed(core.handle([NodeJoined(2, "c", 4)])) == {4: "c:2"}, "it ends before 101"
    assert core.partitions[0].view.reservation() == Reservation(1, 101, 4), "x is left over"
    assert core.reason_pending(5).rule == "Priority"
    (kill,) = [o for o in core.handle([NodeLost(3, "d")]) if isinstance(o, Kill)]
    assert kill.job == 3
    orders = core.handle([JobEnded(4, 3, signal=9)])
    assert placed(orders) == {}
    why = core.reason_pending(1)
    assert (why.rule, "d is down" in why.sentence) == ("ReqNodeNotAvail", True), "c and d would do"
