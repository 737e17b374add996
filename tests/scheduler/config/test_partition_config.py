"""Partitions of a configuration and of a machine file: nodes, limits and scenarios."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reshape.errors import ConfigError, ReshapeError
from scheduler.config import machine_file
from scheduler.config.checks import idle_core
from scheduler.config.partitions import PartitionConfig, PartitionLimits, shares
from scheduler.config.sources import load_config
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.scenarios import scenario

NODES = "nodes: [{name: n1, processors: 4}, {name: n2, processors: 4}, {name: n3, processors: 2}]\n"
SITE = (
    NODES
    + """
scenario: conservative
passes: {max_jobs: 70}
queues: {main: , late: {parameters: {order: sjf}}}
partitions:
  batch:
  short:
    nodes: [n3]
    max_walltime_s: "10:00"
    default_walltime_s: "1:00"
    scenario: steady
    parameters: {order.wait_weight: 2, backfill.reservations: 2, backfill.max_jobs: 9}
  half: {processors: 3, max_processors: 2, parameters: {backfill.max_jobs: 8}}
"""
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "site.yaml"


def test_partitions_are_read(file: Path) -> None:
    file.write_text(SITE.replace("{parameters: {order: sjf}}", "{parameters: {resizing: pba-pr}}"))
    config = load_config(file, {})
    assert config.shares() == {
        "n1": {"half": 3, "batch": 1},
        "n2": {"batch": 4},
        "n3": {"short": 2},
    }
    short = config.partitions["short"]
    assert (short.max_walltime_s, short.default_walltime_s) == (600, 60)
    parts = config.composed().partitions
    assert list(parts) == ["batch", "short", "half"]
    assert (parts["batch"].backfill.reservations, parts["batch"].backfill.max_jobs) == (None, 70)
    assert parts["short"].order == Aging(wait_weight=2)
    assert [parts[name].backfill.max_jobs for name in ("short", "half")] == [9, 8]
    for name, own in parts.items():
        assert own.resizing_of("late") is not None, name
    sizes = {part.name: part.machine.processors for part in idle_core(config).partitions}
    assert sizes == {"batch": 5, "short": 2, "half": 3}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: {nodes: [n1]}\n  b: {nodes: [n1]}", "4: b.nodes", "node n1 is in partition a already"),
        ("a: {nodes: [n4]}\n  b:", "3: a.nodes", "there is no node 'n4'"),
        (
            "a: {nodes: 1}\n  b: {nodes: 3}",
            "4: b.nodes",
            "3 nodes wanted, other partitions leave 2",
        ),
        ("a: {processors: 11}", "3: a.processors", "11 wanted, other partitions leave 10"),
        ("a: {nodes: 2}", "2: ", "2 processors of n3 are in no partition"),
        ("a:\n  b:", "4: b", "both a and b would have all nodes"),
        ("a: {nodes: 3}\n  b:", "4: b", "other partitions leave no processors for it"),
        ("a: {nodes: 1, processors: 1}\n  b:", "3: a.processors", "either nodes or processors"),
        ("redirection:", "3: redirection", "which a redirection group has"),
        ("a b:", "3: a b", "letters, digits"),
        ("a: {nodes: 0}", "3: a.nodes", "0"),
        ("a: {node: [n1]}", "3: a.node", "did you mean nodes?"),
        ("a: {max_walltime_s: soon}", "3: a.max_walltime_s", "soon"),
        ("a: {max_walltime_s: 5, default_walltime_s: 6}", "3: a.default", "above max_walltime_s"),
        ("a: {scenario: eazy}", "3: a.scenario", "did you mean"),
        ("a: {parameters: {order.wait_weight: 2}}", "3: a.parameters.order.wait_weight", "order"),
        ("a: {parameters: {order: {wait_weight: 2}}}", "3: a.parameters", "with dots"),
        ("a: {parameters: {redirection.theta: 3}}", "", "start again in another partition"),
        (
            "a:\n  b: {nodes: 1, parameters: {redirection.partition: b, redirection.theta: 3}}",
            None,
            "",
        ),
    ],
)
def test_errors_name_field_and_fix(file: Path, text: str, place: str | None, words: str) -> None:
    file.write_text(f"{NODES}partitions:\n  {text}\nscenario: easy\n")
    if place is None:
        assert load_config(file, {}).composed().partitions["b"].redirection is None
        return
    with pytest.raises(ConfigError) as raised:
        load_config(file, {})
    assert f"site.yaml:{place}" in str(raised.value).replace("partitions.", "")
    assert words in str(raised.value)


def test_redirection_without_partitions_names_none(file: Path) -> None:
    file.write_text(f"{NODES}scenario: easy\nparameters: {{redirection.partition: b}}\n")
    with pytest.raises(ConfigError, match=r"there is no partition 'b'"):
        load_config(file, {})


MACHINE = """
nodes: [a, b, c, d]
processors_per_node: 4
resources_per_node: {gib: 8}
partitions:
  batch: {scenario: fcfs}
  short: {nodes: [b], max_walltime_s: "1:00"}
  half: {processors: 6}
"""


def test_a_machine_file_names_partitions_for_the_service_and_the_simulator(file: Path) -> None:
    (file.parent / "m.yaml").write_text(MACHINE)
    platform = machine_file.read(file.parent / "m.yaml")
    machines = platform.machines(platform.resources, counted=False)
    assert {name: str(machine.free) for name, machine in machines.items()} == {
        "batch": "10-15",
        "short": "4-7",
        "half": "0-3 8-9",
    }
    assert [machine.pools.installed for machine in machines.values()] == [[12], [8], [12]]
    rules = platform.scenario(scenario("easy"))
    assert platform.scenario(rules) == rules
    assert rules.partitions["batch"] == scenario("fcfs")
    assert rules.partitions["half"] == scenario("easy")
    file.write_text("machine: m.yaml\nscenario: easy\n")
    config = load_config(file, {})
    assert config.partitions == platform.partitions
    assert config.shares() == shares(platform.partitions, platform.by_node)
    file.write_text("machine: m.yaml\npartitions: {a: }\n")
    with pytest.raises(ConfigError, match=r"site.yaml:2: partitions: .* names partitions too"):
        load_config(file, {})


LIMITS = PartitionLimits(
    {
        "batch": PartitionConfig(),
        "short": PartitionConfig(max_walltime_s=60),
        "half": PartitionConfig(max_processors=4),
    },
    {"batch": 8, "short": 12, "half": 6},
)


@pytest.mark.parametrize(
    ("name", "sizes", "walltime_s", "says"),
    [
        (
            "batch",
            (9, 9),
            50,
            "the request for 9 processors for 00:00:50 is beyond the limits of partition batch, 8"
            " processors: ask for less, or name a partition that accepts it: short",
        ),
        (
            "half",
            (2, 6),
            90,
            "2 to 6 processors for 00:01:30 is beyond the limits of partition half, 6 processors,"
            " 4 for a job: ask for less, or name a partition that accepts it: batch",
        ),
        ("short", (12, 12), 61, "12 processors, walltimes up to 00:01:00: no partition accepts it"),
        (
            "shrt",
            (5, 5),
            60,
            "there is no partition 'shrt'; did you mean short?; the request for 5 processors for"
            " 00:01:00 would be accepted by batch, short",
        ),
        (
            "none",
            (1, 1),
            1e9,
            "the request for 1 processor for 11574-01:46:40 would be accepted by batch",
        ),
    ],
)
def test_a_refusal_names_the_partitions_that_would_accept(
    name: str, sizes: tuple[int, int], walltime_s: float, says: str
) -> None:
    with pytest.raises(ReshapeError) as raised:
        LIMITS.check(name, *sizes, walltime_s)
    assert says in str(raised.value)


def test_a_request_without_a_partition_is_for_the_first() -> None:
    assert LIMITS.check("", 8, 8, 1e6) == "batch"
    assert [LIMITS.largest(name) for name in ("", "short", "half")] == [8, 12, 4]
    assert msgspec.to_builtins(PartitionConfig(nodes=["a"]))["nodes"] == ["a"]
