"""The redirection rule: its parameters, their errors, and its counts."""

from __future__ import annotations

import msgspec
import pytest

from reshape.errors import ConfigError
from scheduler.core.core import Core
from scheduler.model.events import JobSpec, NodeJoined
from scheduler.model.job import Job
from scheduler.model.machine import Machine, Node
from scheduler.model.network import Tree
from scheduler.model.procset import ProcSet
from scheduler.policies.redirection import Counters, Redirection
from scheduler.policies.scenarios import by_partition, from_data, scenario, to_data


def job(number: int, processors: int, walltime_s: float, started_at: float = 0.0) -> Job:
    made = Job(number, JobSpec(processors, walltime_s), 0.0)
    made.started_at = started_at
    return made


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("theta", -1, "theta must be >= 0, got -1"),
        ("theta", "many", "redirection.theta: expected int, got 'many'"),
        ("alpha", 1, "alpha must be > 0 and < 1, got 1"),
        ("processors", 0, "processors must be >= 1, got 0"),
        ("conflict", "longest", "unknown conflict policy 'longest'"),
        ("conflict", "longest_walltime", "did you mean longest-walltime"),
        ("filter", "size", "filter"),
        ("counts", "all", "redirection.counts: must be waiting or submitted"),
        ("scenario", "eazy", "redirection.scenario: unknown scenario 'eazy'; did you mean easy"),
        ("teta", 3, "redirection.teta: unknown field 'teta'; did you mean theta?"),
    ],
)
def test_errors_name_the_field_and_the_value(field: str, value: object, words: str) -> None:
    with pytest.raises(ConfigError, match="redirection") as raised:
        scenario("easy", {f"redirection.{field}": value})
    assert words in str(raised.value)


def test_the_size_of_the_group_follows_from_alpha_or_processors() -> None:
    assert Redirection(alpha=0.29).group_size(100) == 29
    assert Redirection().group_size(100) == 15
    assert Redirection(processors=7).group_size(3) == 7
    with pytest.raises(ValueError, match="give alpha or processors, not both"):
        Redirection(alpha=0.1, processors=2)
    with pytest.raises(ValueError, match=r"alpha 0.1 of 9 processors is less than 1"):
        Redirection(alpha=0.1).group_size(9)


def test_the_rule_can_be_set_by_options_and_written_as_data() -> None:
    chosen = scenario("easy", {"redirection.theta": "25", "redirection.scenario": "fcfs"})
    assert chosen.redirection == Redirection(theta=25, scenario="fcfs")
    assert from_data(msgspec.json.decode(msgspec.json.encode(to_data(chosen)))) == chosen
    assert by_partition(chosen)["redirection"] == scenario("fcfs")
    assert scenario("easy", {"redirection": {"theta": 1}}).redirection == Redirection(theta=1)
    assert scenario("easy", {"redirection": "none"}) == scenario("easy", {"redirection": None})


@pytest.mark.parametrize(
    ("conflict", "number"),
    [
        ("longest-walltime", 3),
        ("most-counted", 2),
        ("fewest-processors", 1),
        ("most-processors", 2),
        ("latest-start", 4),
        ("latest-end", 4),
    ],
)
def test_the_conflict_policy_chooses_one_job(conflict: str, number: int) -> None:
    jobs = [
        (job(4, 2, 50.0, 90.0), 3),
        (job(3, 2, 100.0, 10.0), 3),
        (job(2, 8, 50.0, 10.0), 5),
        (job(1, 1, 100.0 - 1, 10.0), 4),
    ]
    assert Redirection(conflict=conflict).choose(jobs)[0].id == number
    assert Redirection(conflict=conflict).choose(jobs[::-1])[0].id == number


def test_counts_of_the_running_jobs() -> None:
    counters = Counters(Redirection(theta=1))
    counters.add(job(1, 4, 10.0))
    assert counters.arrived(job(9, 5, 1.0), 8) == []
    counters.arrived(job(10, 4, 1.0), 8)
    counters.add(job(2, 4, 10.0))
    assert (counters.counts[1], counters.counts[2]) == (1, 0)
    assert [(over.id, count) for over, count in counters.arrived(job(11, 1, 1.0), 8)] == [(1, 2)]
    assert counters.arrived(job(12, 1, 1.0), 3) == [], "neither finds room"
    counters.reset()
    assert (counters.counts[1], counters.counts[2]) == (0, 0)
    counters.forget(1)
    assert list(counters.counts) == [2]


def test_counts_go_on_after_a_restart() -> None:
    """Both jobs count the same arrivals, and the second one started later."""
    rule = Redirection(theta=100)
    first, second, counters, resumed = job(1, 1, 5), job(2, 1, 5), Counters(rule), Counters(rule)
    counters.add(first)
    counters.arrived(job(8, 1, 5), 8)
    counters.arrived(job(9, 1, 5), 8)
    counters.add(second)
    counters.arrived(job(10, 1, 5), 8)
    assert counters.counts == {1: 3, 2: 1}
    for each, count in ((first, 3), (second, 1)):
        resumed.add(each, count)
    resumed.arrived(job(11, 1, 5), 8)
    assert resumed.counts == {1: 4, 2: 2}


def test_a_job_keeps_its_count_when_its_request_changes() -> None:
    """By wall time, a running job counts the arrivals that request at least as much."""
    counters = Counters(Redirection(theta=2, filter="walltime"))
    short, long = job(1, 1, 5.0), job(2, 1, 50.0)
    counters.add(short)
    counters.arrived(job(8, 1, 5.0), 8)
    counters.add(long)
    counters.arrived(job(9, 1, 50.0), 8)
    assert counters.counts == {1: 2, 2: 1}
    long.change_request(msgspec.structs.replace(long.spec, walltime_s=5.0))
    assert [over.id for over, _ in counters.arrived(job(10, 1, 5.0), 8)] == [1]
    short.change_request(msgspec.structs.replace(short.spec, walltime_s=50.0))
    counters.arrived(job(11, 1, 5.0), 8)
    assert counters.counts == {1: 3, 2: 3}
    counters.add(job(3, 1, 50.0))
    short.change_request(msgspec.structs.replace(short.spec, walltime_s=5.0))
    counters.reset()
    assert counters.counts == {1: 0, 2: 0, 3: 0}
    for number in (1, 2, 3):
        counters.forget(number)
    assert counters.counts == {}


def test_the_machines_of_the_groups_must_share_their_numbering() -> None:
    with pytest.raises(ValueError, match="must share their numbering"):
        Core(scenario("easy"), Machine([("a", 2)]), {"other": Machine([("b", 2)])})


def test_both_groups_keep_the_places_of_a_tree() -> None:
    """What a node gives to each group is numbered side by side, in the place of the node."""
    places = {name: ProcSet.span(4 * i, 4) for i, name in enumerate("ab")}
    like = Machine(network=Tree(2, 1, 4), places=places)
    tree = scenario("easy", {"selection": "tree", "redirection.processors": 2})
    nodes = [Node(name, count=4, resources={"gib": 8}) for name in "ab"]
    live = Core(tree, Machine(network=like.space.network, places=places))
    live.handle(
        [
            NodeJoined(0.0, "b", 4, {"gib": 8}, shares={"redirection": 2}),
            NodeJoined(0.0, "a", 4, {"gib": 8}),
        ]
    )
    for core in (live, Core.on(tree, nodes, like, {"b": {"redirection": 2}})):
        machines = core.partitions[0].machine, core.partitions[1].machine
        assert [str(machine.free) for machine in machines] == ["0-5", "6-7"]
        assert [machine.pools.there for machine in machines] == [[12], [4]]
        assert core.machine.resources == {"gib": (16, 16)}
        assert core.machine.nodes["b"].resources == {"gib": 8}
