"""Agents of one node that report in turn: which of them serves it, and which one ends."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from desk import Desk
from waiting import wait_until

from reshape.errors import ConfigError
from scheduler.config.partitions import PartitionConfig
from scheduler.config.settings import Deadlines, NodeConfig
from scheduler.journal.replay import compare
from scheduler.model.events import NodeJoined, ResizePoint
from scheduler.model.job import JobState
from scheduler.protocol import messages as m


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "service", [NodeConfig("a", 2, launcher="none")])
    yield desk
    desk.components.journal.close()


def report(desk: Desk, name: str, address: str = "10.0.0.1") -> list[m.Message]:
    """Report as an agent of the node, which has a name of its own."""
    return desk.hello(node="a", incarnation=name, host="localhost", address=address)


def losses(desk: Desk) -> int:
    """Number of times that the node was lost."""
    query = "SELECT count(*) FROM events WHERE kind='NodeLost'"
    return int(next(desk.components.journal.rows(query))[0])


def test_an_agent_that_was_replaced_ends(desk: Desk) -> None:
    """If each report replaced the other agent, the jobs of the node would be lost each time."""
    report(desk, "first")
    submit(desk)
    report(desk, "second")
    before = losses(desk)
    for _ in range(2):
        stop, refusal = report(desk, "first")
        assert isinstance(stop, m.AgentStop)
        assert stop.is_replaced, "the other agent uses the shared memory of the host"
        assert isinstance(refusal, m.Failure)
        assert "node a is served by an agent that was started after this one" in refusal.message
        assert any(isinstance(answer, m.Done) for answer in report(desk, "second"))
    assert losses(desk) == before


def test_hosts_of_the_same_name_are_told_apart_by_their_addresses(desk: Desk) -> None:
    report(desk, "first")
    (refusal,) = report(desk, "second", address="10.0.0.2")
    assert isinstance(refusal, m.Failure)
    assert refusal.message == (
        "node a is served by an agent on localhost (10.0.0.1), and not on localhost (10.0.0.2): end"
        " one, or give each its own node"
    )
    assert any(isinstance(answer, m.Done) for answer in report(desk, "first"))


def test_a_node_that_was_lost_says_for_how_long_its_agent_was_silent(tmp_path: Path) -> None:
    nodes = [NodeConfig("a", 2, launcher="none")]
    desk = Desk(tmp_path / "service", nodes, deadlines=Deadlines(node_lost_s=0.01))
    report(desk, "first")

    def node() -> m.NodeInfo:
        desk.driver.tick(start_agents=False, heard_all=True)
        (answer,) = desk.ask(b"x", m.ListMachine(part="nodes"))
        assert isinstance(answer, m.Nodes)
        return answer.nodes[0]

    wait_until(lambda: node().state == "down")
    assert node().reason == "its agent was silent for 0 s"
    report(desk, "first")
    (info,) = desk.ask(b"x", m.ServerInfo())
    assert isinstance(info, m.Info)
    assert info.nodes == [("a", 2, "up")]
    assert desk.components.monitor.fault_of("a") == ""
    desk.components.journal.close()


def test_a_silent_node_gets_no_job_until_it_reports(tmp_path: Path) -> None:
    nodes = [NodeConfig("a", 1, launcher="none"), NodeConfig("b", 1, launcher="none")]
    deadlines = Deadlines(heartbeat_s=0.01, node_lost_s=inf)
    desk = Desk(tmp_path / "service", nodes, deadlines=deadlines)
    core = desk.components.core

    def silent() -> set[str]:
        """Tick; return the names of the exclusions of silent nodes. Node a reports, b does not."""
        desk.hello(node="a", incarnation="a", host="h")
        desk.driver.tick(start_agents=False, heard_all=True)
        return set(core.exclusions)

    desk.hello(node="b", incarnation="b", host="h")
    wait_until(lambda: silent() == {"silent agent of node b"})
    silent()
    query = "SELECT count(*) FROM events WHERE kind='SilenceChanged'"
    desk.turn()
    assert next(desk.components.journal.rows(query))[0] == 1, "one event for each silence"
    desk.driver.decide([NodeJoined(core.now, "b", 1)])  # as if it were granted until another time
    assert not core.exclusions
    assert silent() == {"silent agent of node b"}
    jobs = [submit(desk) for _ in range(2)]
    assert [core.jobs[job].state for job in jobs] == [JobState.STARTING, JobState.PENDING]
    desk.hello(node="b", incarnation="b", host="h")
    assert not silent()
    assert core.jobs[jobs[1]].state is JobState.STARTING
    assert compare(desk.components.journal.batches()).difference is None
    desk.components.journal.close()


def test_a_node_stays_silent_when_the_service_restarts(tmp_path: Path) -> None:
    """A service that has just started has not heard of any agent."""
    nodes = [NodeConfig(name, 1, launcher="none") for name in "ab"]
    deadlines = Deadlines(heartbeat_s=0.01, node_lost_s=600.0)

    def silent(desk: Desk) -> set[str]:
        desk.hello(node="a", incarnation="a", host="h")
        desk.driver.tick(start_agents=False, heard_all=True)
        return set(desk.components.core.exclusions)

    desk = Desk(tmp_path / "service", nodes, deadlines=deadlines)
    desk.hello(node="b", incarnation="b", host="h")
    wait_until(lambda: silent(desk) == {"silent agent of node b"})
    desk.turn()
    desk.components.journal.close()
    desk = Desk(tmp_path / "service", nodes, deadlines=deadlines)
    assert silent(desk) == {"silent agent of node b"}
    jobs = [submit(desk) for _ in range(2)]
    states = [desk.components.core.jobs[job].state for job in jobs]
    assert states == [JobState.STARTING, JobState.PENDING]
    desk.hello(node="b", incarnation="b", host="h")
    assert not silent(desk)
    desk.components.journal.close()


@pytest.mark.parametrize("is_held", [False, True])
def test_an_end_that_a_replaced_agent_knew_is_the_end_of_the_job(
    tmp_path: Path, is_held: bool
) -> None:
    """Also if the node first waits for another agent, which may know a restart point of a job."""
    nodes = [NodeConfig("a", 2, launcher="none"), NodeConfig("b", 3, launcher="none")]
    desk = Desk(tmp_path / "service", nodes, scenario="fcfs-pr")
    for node in "ab":
        desk.hello(node=node, incarnation=node, host="h")
    short = submit(desk)
    resized = submit(desk, processors=2, max_processors=5)  # on both nodes
    alive = [m.GroupStatus(job=job, group=1, alive=True) for job in (short, resized)]
    desk.hello(alive, node="a", incarnation="a", host="h")
    core = desk.components.core
    assert core.jobs[short].state is core.jobs[resized].state is JobState.RUNNING
    if is_held:
        desk.driver.decide([ResizePoint(core.now, resized, 1, 1.0)])
        assert core.jobs[resized].state is JobState.EXPANDING
    desk.turn()
    desk.components.journal.close()
    desk = Desk(tmp_path / "service", nodes, scenario="fcfs-pr")
    core, ends = desk.components.core, [m.GroupStatus(job=short, group=1, alive=False)]

    def report() -> None:
        desk.hello(ends, node="a", incarnation="other", host="h", folders=[short, resized])

    report()
    if is_held:
        assert not core.machine.nodes["a"].up
        assert core.jobs[short].state is JobState.RUNNING
        desk.hello(node="b", incarnation="b", host="h")
        report()
    ended = desk.components.journal.recorded_job(short)
    assert ended is not None
    assert ended.state is JobState.COMPLETED
    desk.components.journal.close()


def submit(desk: Desk, processors: int = 1, **fields: int) -> int:
    submission = m.Submission(["true"], processors, 60.0, **fields)
    (answer,) = desk.ask(b"x", m.Submit(submission=submission))
    assert isinstance(answer, m.Submitted)
    return answer.job


def test_a_configured_node_that_was_removed_is_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when its line was left out of the configuration for a while."""
    a, b = (NodeConfig(name, 2, launcher="none") for name in "ab")
    for nodes in ([a, b], [a], [a, b]):
        assert "node b was removed" not in caplog.text
        desk = Desk(tmp_path / "service", nodes)
        desk.components.journal.close()
    assert "node b was removed: reshape node resume b takes it back" in caplog.text


def test_a_configuration_without_a_node_on_which_a_job_runs_is_refused(tmp_path: Path) -> None:
    """The job would start again while its processes on that node still run."""
    a, b = (NodeConfig(name, 2, launcher="none") for name in "ab")
    desk = Desk(tmp_path / "service", [a, b])
    desk.hello(node="b")
    desk.ask(b"x", m.Submit(submission=m.Submission(["true"], 1, 60.0, requeue=True)))
    desk.components.journal.close()
    refusal = "job 1 holds processors of node b, which has no line any more: serve with the line"
    with pytest.raises(ConfigError, match=refusal):
        Desk(tmp_path / "service", [a])
    desk = Desk(tmp_path / "service", [a, b])
    desk.hello(node="b", groups=[m.GroupStatus(job=1, group=1, alive=False, exit_code=0)])
    desk.components.journal.close()
    Desk(tmp_path / "service", [a]).components.journal.close()


def test_a_job_on_a_removed_node_that_is_not_served_any_more_ends(tmp_path: Path) -> None:
    """As on a node of a Slurm allocation that has ended; no agent can report on the job."""
    nodes = [NodeConfig("a", 1, launcher="none"), NodeConfig("b", 2, launcher="slurm")]
    desk = Desk(tmp_path / "service", nodes)
    desk.hello(node="b")
    desk.ask(b"x", m.Submit(submission=m.Submission(["true"], 2, 60.0)))
    desk.ask(b"x", m.ChangeMachine(change=m.DrainNode(node="b")))
    desk.ask(b"x", m.ChangeMachine(change=m.RemoveNode(node="b")))
    assert desk.components.core.jobs[1].state is JobState.STARTING
    desk.components.journal.close()
    desk = Desk(tmp_path / "service", nodes[:1])
    desk.turn()
    assert desk.components.core.jobs[1].state is JobState.NODE_FAIL
    desk.components.journal.close()


def test_a_configuration_without_a_partition_in_which_a_job_waits_is_refused(
    tmp_path: Path,
) -> None:
    """The job would wait without an end, and be in another partition after the next start."""
    a, b = (NodeConfig(name, 2, launcher="none") for name in "ab")
    x, y = (PartitionConfig(nodes=[name]) for name in "ab")
    desk = Desk(tmp_path / "service", [a, b], partitions={"x": x, "y": y})
    for partition in "xy":
        submission = m.Submission(["true"], 1, 60.0, partition=partition, hold=True)
        desk.ask(b"x", m.Submit(submission=submission))
    desk.components.journal.close()
    refusal = "partition y has no line any more, but job 2 of it has not ended"
    with pytest.raises(ConfigError, match=refusal):
        Desk(tmp_path / "service", [a], partitions={"x": x})


def test_an_agent_of_a_node_without_a_line_ends(tmp_path: Path) -> None:
    """It may still run processes of jobs that the service does not have there."""
    desk = Desk(tmp_path / "service", [NodeConfig("a", 2, launcher="none")])
    stop, refusal = desk.hello(node="b")
    assert isinstance(stop, m.AgentStop)
    assert isinstance(refusal, m.Failure)
    assert refusal.message == "node 'b' is not configured; there are a"
    assert [type(answer) for answer in desk.hello(node="b", ends=True)] == [m.Failure]
    desk.components.journal.close()
