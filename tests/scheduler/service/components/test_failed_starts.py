"""Jobs whose programs never began wait again, and a node that cannot start jobs drains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import OWNER, Desk

from scheduler.config.settings import NodeConfig
from scheduler.journal.replay import compare
from scheduler.model.job import Job, JobState
from scheduler.protocol import messages as m

LACK = "cannot start: /dev/shm has 3 MiB free"
NODES = {"a": 2, "b": 1, "c": 1}


def begin(folder: Path) -> Desk:
    """Start a service with three nodes."""
    nodes = [NodeConfig(name, count, launcher="none") for name, count in NODES.items()]
    desk = Desk(folder, nodes)
    for name in NODES:
        hello(desk, name)
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A service with three nodes; in the end, a replay of its journal decides the same."""
    desk = begin(tmp_path / "service")
    yield desk
    assert compare(desk.components.journal.batches()).difference is None
    desk.components.journal.close()


def hello(desk: Desk, node: str, *groups: m.GroupStatus, ends: bool = False) -> None:
    desk.ask(b"ann", m.ServerInfo())  # the turn before
    desk.hello(groups, node, incarnation=f"agent of {node}", ends=ends)


def submit(desk: Desk, processors: int = 1) -> Job:
    job = m.Submission(argv=["true"], processors=processors, walltime_s=60.0)
    desk.ask(b"user", m.Submit(submission=job))
    jobs = desk.components.core.jobs
    return jobs[max(jobs)]


def nodes_of(desk: Desk, job: Job) -> str:
    """Nodes on which a job holds processors."""
    by_node = desk.components.core.machine.by_node
    return " ".join(name for held in job.groups.values() for name in by_node(held))


def ended(job: Job, fault: m.Fault = "") -> m.GroupStatus:
    """Status of the last group of a job, which its node could not start."""
    why = LACK if fault else ""
    return m.GroupStatus(
        job.id, max(job.groups), False, exit_code=126, why=why, began=False, fault=fault
    )


def fail(desk: Desk, job: Job, fault: m.Fault) -> str:
    """Let the start of a job fail; return the node."""
    node = nodes_of(desk, job)
    hello(desk, node, ended(job, fault))
    hello(desk, node)  # it has removed what the job has left
    return node


def reasons(desk: Desk) -> dict[str, str]:
    """Reasons of the nodes that drain."""
    table = desk.components.nodes.table()
    return {node.name: node.reason for node in table if node.state in ("drng", "drain")}


def test_a_node_that_fails_to_start_two_jobs_drains_and_loses_none(desk: Desk) -> None:
    first, second, third = submit(desk), submit(desk), submit(desk)
    assert [nodes_of(desk, job) for job in (first, second, third)] == ["a", "a", "b"]
    assert fail(desk, first, "node") == "a"
    assert nodes_of(desk, first) == "c"
    assert first.requeued_why == (
        f"group 1 ended with exit code 126:0, a: {LACK}; its program had not begun on a; attempt 1"
        " of 3"
    )
    fourth = submit(desk)
    assert fourth.state is JobState.PENDING, "nothing starts on a node that has just failed"
    assert not reasons(desk)
    assert fail(desk, second, "node") == "a"
    assert second.state is JobState.PENDING
    assert reasons(desk) == {"a": f"jobs 1, 2 could not start here: {LACK}"}


def drain(desk: Desk) -> Job:
    """Let node a fail to start two jobs, so that it drains; return the one that waits."""
    first, second = submit(desk), submit(desk)
    submit(desk)
    fail(desk, first, "node")
    fail(desk, second, "node")
    assert list(reasons(desk)) == ["a"]
    return second


def probe(desk: Desk, at: float) -> m.ProbeNode | None:
    """Let the service ask for a probe that is due; return what it sends to the agent of a."""
    desk.sent.clear()
    if events := desk.components.nodes.probe(at):
        desk.driver.decide(events)
    orders = [order for to, order in desk.sent if to == b"agent a"]
    assert all(isinstance(order, m.ProbeNode) for order in orders)
    return orders[0] if orders else None


def node(desk: Desk, name: str = "a") -> m.NodeInfo:
    return next(info for info in desk.components.nodes.table() if info.name == name)


def report(desk: Desk, serial: int, failure: str) -> None:
    """Report how a probe of node a has ended."""
    desk.hello((), "a", incarnation="agent of a", probe=serial, probe_failure=failure)


def test_a_node_that_drains_is_resumed_when_a_probe_passes(desk: Desk) -> None:
    waits = drain(desk)
    cause = f"2 are on nodes that drain (a: jobs 1, 2 could not start here: {LACK})"
    assert cause in desk.components.applications.pending_reason(waits.id)[0].text
    assert node(desk).drained_by == "the service"
    now = desk.components.clock()
    assert probe(desk, now) is None
    pauses, last = [], now
    for at in range(1, 200):
        order = probe(desk, now + at + 0.5)
        if order is not None:
            assert order.processes == 2
            report(desk, order.serial, "no room")
            pauses.append(round(now + at - last))
            last = now + at
    assert pauses == [1, 1, 2, 4, 8, 16, 32, 60, 60]
    assert node(desk).reason.endswith(f"{LACK}; the last probe: no room")
    order = probe(desk, now + 300)
    assert order is not None
    report(desk, order.serial - 1, "")  # an earlier one
    assert probe(desk, now + 301) is None
    assert waits.state is JobState.PENDING
    report(desk, order.serial, "")
    assert probe(desk, now + 302) is None
    assert (node(desk).state, node(desk).drained_by) == ("mix", "")
    assert nodes_of(desk, waits) == "a", "nothing is withheld from jobs any more"


def test_a_probe_without_an_answer_is_ordered_again(desk: Desk) -> None:
    drain(desk)
    now = desk.components.clock()
    first, second = probe(desk, now + 2), probe(desk, now + 4)
    assert first is not None
    assert second == first


def test_a_node_that_drains_again_is_probed_later(desk: Desk) -> None:
    waits = drain(desk)
    now = desk.components.clock()
    order = probe(desk, now + 2)
    assert order is not None
    report(desk, order.serial, "")
    probe(desk, now + 2.1)
    third = submit(desk)
    for job in (waits, third):
        fail(desk, job, "node")
    assert list(reasons(desk)) == ["a"]
    now = desk.components.clock()
    assert probe(desk, now + 1.9) is None
    assert probe(desk, now + 2.1) is not None


def test_only_a_drain_by_the_service_ends_by_itself(desk: Desk) -> None:
    drain(desk)
    desk.ask(b"ann", m.ChangeMachine(change=m.DrainNode("b", "memory")))
    (taken,) = desk.ask(b"ann", m.ChangeMachine(change=m.DrainNode("a", "a fan")))
    assert isinstance(taken, m.Done)
    infos = {info.name: (info.reason, info.drained_by) for info in desk.components.nodes.table()}
    assert infos["a"] == ("a fan", f"user {OWNER.user}")
    assert infos["b"] == ("memory", f"user {OWNER.user}")
    assert probe(desk, desk.components.clock() + 5) is None
    (again,) = desk.ask(b"ann", m.ChangeMachine(change=m.DrainNode("a")))
    assert isinstance(again, m.Failure)


def test_a_service_that_starts_again_knows_who_drains(tmp_path: Path) -> None:
    desk = begin(tmp_path / "service")
    drain(desk)
    desk.ask(b"ann", m.ChangeMachine(change=m.DrainNode("b", "memory")))
    desk.components.journal.close()
    desk = begin(tmp_path / "service")
    by = [info.drained_by for info in desk.components.nodes.table()]
    assert by == ["the service", f"user {OWNER.user}", ""]
    now = desk.components.clock()
    probe(desk, now)
    order = probe(desk, now + 2)
    assert order is not None
    report(desk, order.serial, "")
    probe(desk, now + 2.1)
    assert list(reasons(desk)) == ["b"]
    desk.components.journal.close()


def test_a_start_that_fails_for_a_reason_of_the_job_ends_it(desk: Desk) -> None:
    for _ in range(3):
        job = submit(desk)
        fail(desk, job, "job")
        assert (job.state, job.exit_code, job.requeues) == (JobState.FAILED, 126, 0)
    assert not reasons(desk)


def test_a_job_that_fails_everywhere_for_no_known_reason_drains_no_node(desk: Desk) -> None:
    first, second = submit(desk), submit(desk)
    assert fail(desk, first, "") == "a"
    assert fail(desk, first, "") == "b"
    assert fail(desk, second, "") == "a"
    assert not reasons(desk)
    assert nodes_of(desk, first) == "c"
    third = submit(desk)
    assert third.state is JobState.PENDING


def test_jobs_that_fail_on_one_node_only_drain_it_without_a_known_reason(desk: Desk) -> None:
    first, second = submit(desk), submit(desk)
    fail(desk, first, "")
    fail(desk, second, "")
    assert list(reasons(desk)) == ["a"]


def test_a_group_that_is_ended_on_order_before_it_began_has_not_failed(desk: Desk) -> None:
    """A job may end while a group that is to join it starts."""
    for _ in range(3):
        job = submit(desk)
        why = "the job ended before this group joined"
        status = m.GroupStatus(job.id, 1, False, signal=9, why=why, began=False, fault="order")
        hello(desk, nodes_of(desk, job), status)
    assert not reasons(desk)


def test_a_start_on_several_nodes_fails_for_the_one_at_fault(desk: Desk) -> None:
    jobs = submit(desk, 2), submit(desk, 2)
    assert [nodes_of(desk, job) for job in jobs] == ["a", "b c"]
    other = jobs[1]
    hello(desk, "c", ended(other, "node"))
    killed = m.GroupStatus(other.id, 1, False, signal=15, why=f"c: {LACK}", began=False)
    hello(desk, "b", killed)
    assert (other.requeues, other.failed_starts) == (1, 1)
    assert "its program had not begun on c;" in other.requeued_why
    hello(desk, "a", ended(jobs[0], "job"))
    single = [submit(desk) for _ in range(2)]
    assert [nodes_of(desk, job) for job in (other, *single)] == ["a", "b", ""]


def test_a_job_of_an_agent_that_ends_waits_again_if_it_never_began(desk: Desk) -> None:
    for _ in range(5):
        job = submit(desk, 2)
        assert nodes_of(desk, job) == "a"
        hello(desk, "a", ends=True)
        desk.ask(b"user", m.ChangeJobs.one(job.id, m.CancelJob()))
        hello(desk, "a")
    job = submit(desk)
    for _ in range(5):
        hello(desk, nodes_of(desk, job), ends=True)
        hello(desk, "a")
    assert (job.state, job.failed_starts) == (JobState.STARTING, 0)


@pytest.mark.parametrize("began", [False, True])
def test_a_job_of_an_agent_that_ends_has_failed_if_it_may_have_begun(
    desk: Desk, began: bool
) -> None:
    job = submit(desk)
    hello(desk, "a", m.GroupStatus(job=job.id, group=1, alive=True, began=began))
    assert job.state is JobState.RUNNING
    hello(desk, "a", ends=True)
    assert job.state is JobState.NODE_FAIL
