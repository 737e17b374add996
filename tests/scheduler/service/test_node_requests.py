"""Features of nodes and whole nodes in a service without processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import OWNER, Desk

from scheduler.config.settings import NodeConfig, PartitionConfig
from scheduler.journal.replay import compare
from scheduler.protocol import messages as m

NODES = (
    NodeConfig("n1", 2),
    NodeConfig("n2", 2, features=("gpu", "fast")),
    NodeConfig("n3", 2, features=("gpu",)),
)


def ask(desk: Desk, message: m.Message) -> m.Message:
    (answer,) = desk.ask(b"client", message, OWNER)
    return answer


def submit(desk: Desk, n: int = 1, **more: object) -> m.Message:
    fields = {"argv": ["solve"], "processors": n, "walltime_s": 60.0} | more
    return ask(desk, m.Submit(submission=m.Submission(**fields)))  # type: ignore[arg-type]


def places(desk: Desk) -> dict[int, tuple[str, int]]:
    answer = ask(desk, m.ListJobs())
    assert isinstance(answer, m.JobListing)
    return {job.job: (job.nodes, job.requested) for job in answer.jobs}


def test_jobs_get_the_nodes_that_they_request(tmp_path: Path) -> None:
    desk = Desk(tmp_path, NODES, scenario="easy")
    for node in NODES:
        desk.hello(node=node.name)
    submit(desk, constraint="fast")
    submit(desk, exclusive=True, script=True)
    submit(desk, constraint="fast", exclusive=True, n=2)
    submit(desk)
    expected = {1: ("n2", 1), 2: ("n1", 2), 3: ("", 2), 4: ("n3", 1)}
    assert places(desk) == expected
    answer = ask(desk, m.ListJobs(job=3))
    assert isinstance(answer, m.JobListing)
    assert answer.jobs[0].on_nodes == "whole nodes with fast"
    table = ask(desk, m.ListMachine(part="nodes"))
    assert isinstance(table, m.Nodes)
    assert [node.features for node in table.nodes] == [[], ["gpu", "fast"], ["gpu"]]
    desk.turn()
    comparison = compare(desk.components.journal.batches())
    assert comparison.difference is None
    assert comparison.decisions > 3
    desk.components.journal.close()
    again = Desk(tmp_path, NODES, scenario="easy")
    assert places(again) == expected
    assert again.components.core.jobs[3].spec.nodes is not None
    ask(again, m.ChangeJobs.one(1, m.CancelJob()))
    again.hello([m.GroupStatus(job=1, group=1, alive=False)], node="n2")
    assert places(again)[3] == ("n2", 2)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"constraint": "gpu&old"}, "there are no nodes with gpu&old; nodes have fast, gpu"),
        ({"constraint": "gpu&"}, "'' in 'gpu&' is no feature"),
        ({"constraint": "gpu", "n": 5}, "5 processors of nodes with gpu, and these have 4"),
        ({"exclusive": True, "n": 3}, "3 do not fill nodes of 2: ask for -n 4"),
        ({"exclusive": True, "n": 2, "max_processors": 4}, "is not resized: leave --max and --min"),
        ({"exclusive": True, "n": 2, "min_processors": 1}, "is not resized: leave --max and --min"),
        ({"exclusive": True, "n": 7, "script": True}, "the machine has 6"),
    ],
)
def test_what_no_node_can_give_is_refused(
    tmp_path: Path, fields: dict[str, object], why: str
) -> None:
    told = submit(Desk(tmp_path, NODES), **fields)  # type: ignore[arg-type]
    assert isinstance(told, m.Failure)
    assert why in told.message


def test_machines_that_cannot_give_whole_nodes(tmp_path: Path) -> None:
    def refusal(name: str, nodes: tuple[NodeConfig, ...] = NODES, **options: object) -> str:
        told = submit(Desk(tmp_path / name, nodes, **options), 2, exclusive=True)
        assert isinstance(told, m.Failure)
        return told.message

    assert "the nodes here have 2, 3" in refusal("a", (*NODES, NodeConfig("n4", 3)))
    shared = {"a": PartitionConfig(), "b": PartitionConfig(processors=5)}
    assert "partition a has 1 of the 2 processors of node n3" in refusal("b", partitions=shared)
    contiguous = {"selection": "contiguous"}
    assert "do not go with the service's selection" in refusal("c", parameters=contiguous)
