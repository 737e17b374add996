"""Which hosts, ranks and CPUs the processors of a group become, in a service without processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desk import Desk

from scheduler.config.settings import NodeConfig
from scheduler.protocol import messages as m


def submitted(desk: Desk, **fields: Any) -> m.Message:
    submission = m.Submission(argv=["solve"], walltime_s=60.0, **fields)
    (answer,) = desk.ask(b"client", m.Submit(submission=submission))
    return answer


def start(desk: Desk) -> m.StartGroup:
    (order,) = [order for _, order in desk.sent if isinstance(order, m.StartGroup)]
    return order


def test_a_process_has_several_processors(tmp_path: Path) -> None:
    nodes = [NodeConfig("local", 4)]
    desk = Desk(tmp_path, nodes, binding="all")
    desk.hello(cores=[[0, 8], [1, 9], [2, 10], [3, 11]])
    assert submitted(desk, processors=4, per_process=2) == m.Submitted(job=1)
    order = start(desk)
    assert order.size == 2
    assert order.cpus == {0: [0, 1, 8, 9], 1: [2, 3, 10, 11]}
    assert order.environment["OMP_NUM_THREADS"] == "2"
    (told,) = desk.ask(b"client", m.ListJobs(job=1))
    assert isinstance(told, m.JobListing)
    assert [(place.rank, place.core) for place in told.jobs[0].ranks] == [(0, 0), (1, 2)]

    token = order.environment["RESHAPE_TOKEN"]
    for size, answer in ((4, m.Failure), (2, m.Welcome)):
        hello = m.Hello(job=1, group=1, token=token, size=size, pid=1)
        (said,) = desk.ask(b"job", hello)
        assert isinstance(said, answer)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"processors": 3, "per_process": 2}, "--per-process 2 does not divide the 3 processors"),
        ({"processors": 2, "per_process": 0}, "--per-process 0 does not divide the 2 processors"),
        (
            {"processors": 2, "per_process": 2, "max_processors": 4},
            "leave --max, --min and --topology",
        ),
    ],
)
def test_processors_of_a_process_that_are_refused(
    tmp_path: Path, fields: dict[str, Any], told: str
) -> None:
    desk = Desk(tmp_path)
    desk.hello()
    refused = submitted(desk, **fields)
    assert isinstance(refused, m.Failure)
    assert told in refused.message


@pytest.mark.parametrize(
    ("nodes", "count", "placement", "hosts", "ranks"),
    [
        ([3, 3], 4, "block", ["n1", "n2"], [0, 1]),
        ([5, 3], 6, "block", ["n1", "n2"], [0, 0, 1]),
        ([5, 3], 6, "cyclic", ["n1", "n2"], [0, 1, 0]),
        ([1, 4], 4, "block", ["n2"], []),
    ],
)
def test_processes_of_two_processors_over_hosts(
    tmp_path: Path, nodes: list[int], count: int, placement: str, hosts: list[str], ranks: list[int]
) -> None:
    """The processors of a process are on one node; a node may keep a processor idle for that."""
    names = [f"n{number}" for number in range(1, len(nodes) + 1)]
    configured = [
        NodeConfig(name, size, launcher="none") for name, size in zip(names, nodes, strict=True)
    ]
    desk = Desk(tmp_path, configured)
    for name in names:
        desk.hello(node=name, host=name, address=f"{name}.example")
    submitted(desk, processors=count, per_process=2, placement=placement)
    order = start(desk)
    assert order.size == count // 2
    assert order.rank_hosts == ranks
    assert order.hosts == (hosts if ranks else [])
    placements = desk.components.startup.placements
    assert placements.nodes_of(desk.components.core.jobs[1], 1) == hosts
    (told,) = desk.ask(b"client", m.ListJobs(job=1))
    assert isinstance(told, m.JobListing)
    places = [place.node for place in told.jobs[0].ranks]
    assert places == ([hosts[host] for host in ranks] or ["n2", "n2"])


def test_processes_that_no_node_can_have(tmp_path: Path) -> None:
    nodes = [NodeConfig("n1", 3, launcher="none"), NodeConfig("n2", 3, launcher="none")]
    desk = Desk(tmp_path, nodes)
    requests: list[tuple[dict[str, Any], str]] = [
        ({"processors": 4, "per_process": 4}, "the largest node has 3 processors"),
        ({"processors": 6, "per_process": 2}, "these have 4: ask for fewer"),
        ({"processors": 4, "per_process": 2, "exclusive": True}, "does not divide the 3"),
    ]
    for fields, why in requests:
        refused = submitted(desk, **fields)
        assert isinstance(refused, m.Failure)
        assert why in refused.message
    by_place = Desk(tmp_path / "contiguous", nodes, parameters={"selection": "contiguous"})
    refused = submitted(by_place, processors=4, per_process=2)
    assert isinstance(refused, m.Failure)
    assert "--per-process do not go with the service's selection" in refused.message
