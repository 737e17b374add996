"""Admission of submissions: sizes, queues with limits, users with priorities, text."""

from __future__ import annotations

import re
from math import inf, nan
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.topology import Topology
from scheduler.config.partitions import PartitionConfig
from scheduler.config.settings import NodeConfig, QueueConfig, ServeConfig
from scheduler.model.events import JobSpec
from scheduler.protocol.job_requests import LONGEST_WALLTIME_S
from scheduler.protocol.messages import Submission
from scheduler.service.components.admission import Admission

NODES = (NodeConfig("a", 4), NodeConfig("b", 4))
SITE = ServeConfig(
    nodes=NODES,
    users={"ann": "platinum", "bob": "gold", "eve": 5.0},
    queues={
        "main": QueueConfig(),
        "express": QueueConfig(
            priority="gold", max_processors=4, max_walltime_s=600, users=("ann", "eve")
        ),
        "night": QueueConfig(priority=-50),
    },
)


def admit(config: ServeConfig = SITE, user: str = "bob", **fields: object) -> JobSpec:
    plain: dict[str, object] = {"argv": ["true"], "processors": 2, "walltime_s": 60.0}
    return Admission(config).admit(Submission(user=user, **(plain | fields)))  # type: ignore[arg-type]


def test_a_plain_submission() -> None:
    spec = admit(name="x", max_processors=6, topology=Topology("power-of-2"))
    assert spec == JobSpec(
        2, 60.0, 6, Topology("power-of-2"), "x", "bob", "main", 100.0, executable="true"
    )


@pytest.mark.parametrize(
    ("user", "asked", "queue", "priority"),
    [
        ("ann", None, "", 1000),
        ("ann", "gold", "", 100),
        ("ann", 5, "", 5),
        ("bob", None, "night", 50),
        ("bob", -10, "night", -60),
        ("ann", None, "express", 1100),
        ("eve", None, "express", 105),
        ("dan", None, "", 0),
        ("dan", -1, "", -1),
    ],
)
def test_the_priority_is_the_sum_of_user_and_queue(
    user: str, asked: float | str | None, queue: str, priority: float
) -> None:
    assert admit(user=user, priority=asked, queue=queue).priority == priority


def test_without_configured_users_any_priority_is_admitted() -> None:
    free = ServeConfig(nodes=NODES)
    assert admit(free).priority == 0
    assert admit(free, priority="platinum").priority == 1000
    assert admit(free, priority=5000.0).priority == 5000


@pytest.mark.parametrize(
    ("user", "fields", "says"),
    [
        ("bob", {"priority": "platinum"}, "priority platinum is 1000, and user bob has 100: ask"),
        ("dan", {"priority": 1}, "priority 1 is 1, and user dan has 0"),
        ("bob", {"priority": "glod"}, "there is no priority 'glod'; did you mean gold?"),
        ("bob", {"priority": nan}, "a priority must be a finite number, got nan"),
        ("bob", {"queue": "nigth"}, "there is no queue 'nigth'; did you mean night?"),
        ("bob", {"queue": "express"}, "user bob may not submit to queue express, only ann, eve"),
        (
            "ann",
            {"queue": "express", "processors": 5},
            "of 4 processors at most, this one asks for 5",
        ),
        (
            "ann",
            {"queue": "express", "max_processors": 8},
            "4 processors at most, this one asks for 8",
        ),
        ("ann", {"queue": "express", "walltime_s": 601.0}, "walltimes of 00:10:00 at most"),
        ("ann", {"walltime_s": inf}, "has to have an end, as neither the partition nor the queue"),
        ("ann", {"walltime_s": nan}, "must be above 0 s, got nan"),
        ("ann", {"walltime_s": 0}, "must be above 0 s"),
        ("ann", {"processors": 9}, "asks for 9 processors, the machine has 8"),
        ("ann", {"processors": 0}, "at least 1 processor, got 0"),
        ("ann", {"max_processors": 1}, "--max 1 is below the 2 processors"),
        ("ann", {"min_processors": 0}, "--min must be at least 1, got 0"),
        ("ann", {"min_processors": 3}, "--min 3 is above the 2 processors of -n"),
        ("ann", {"min_processors": 1, "script": True}, "leave --max and --min out"),
        ("ann", {"min_processors": 1, "per_process": 2}, "leave --max, --min and --topology out"),
        (
            "ann",
            {"processors": 7, "min_processors": 5, "topology": Topology.parse("list:2,4,8")},
            "topology list:2,4,8 cannot start on 5 to 7 processors; nearest: 4 or 8",
        ),
        ("ann", {"argv": []}, "no program to run"),
        ("ann", {"name": "two\nlines"}, "name 'two\\nlines' holds a control character"),
        ("ann", {"output": "a\x1b[31m"}, "output 'a\\x1b[31m' holds a control character"),
        ("ann", {"name": "x" * 257}, "has 257 characters, at most 256 are accepted"),
        ("ann", {"key": "x" * 201}, "key xxxx"),
        ("ann", {"key": "x" * 201}, "has 201 characters, at most 200 are accepted"),
        ("ann", {"umask": 0o1000}, "the umask must be from 0 to 0777, got 0o1000"),
        ("ann", {"limits": {"NPROC": 1}}, "there is no resource limit 'NPROC': known are AS, CORE"),
        ("ann", {"limits": {"CORE": -2}}, "the limit CORE must be >= 0, or -1 for none, got -2"),
        ("ann", {"output": ""}, "the name of the output is empty: name a file, or leave it out"),
        ("ann", {"cwd": ""}, "the name of the working directory is empty: give it"),
        ("ann", {"argv": [""]}, "the name of the program is empty: give it"),
        ("ann", {"output": "x" * 4096}, "has 4096 characters, at most 4095 are accepted"),
        ("ann", {"argv": ["x" * (128 << 10)]}, "has 131072 characters, and the system passes"),
        ("ann", {"environment": {"A": "x" * (128 << 10)}}, "at most 131071 to a program"),
        ("ann", {"argv": ["x" * 100_000] * 70}, "at most 6291456 to a program"),
        ("ann", {"argv": ["echo", "a\0b"]}, "contains a null character"),
        ("ann", {"environment": {"A=B": "x"}}, "the environment variable 'A=B'"),
        ("ann", {"environment": {"A": "x\0"}}, "variable A contains a null character"),
        ("ann", {"processors": 3, "topology": Topology("power-of-2")}, "3"),
    ],
)
def test_a_refusal_names_value_and_fix(user: str, fields: dict[str, object], says: str) -> None:
    with pytest.raises(ReshapeError) as caught:
        admit(user=user, **fields)
    assert says in str(caught.value)
    assert not says.endswith("?") or str(caught.value).endswith("?"), "known names come twice"


def test_a_maximum_beyond_the_machine_is_cut_to_it() -> None:
    topology = Topology("arbitrary", divides=12)
    spec = admit(user="ann", max_processors=1_000_000_000, topology=topology)
    assert spec.max_processors == 8
    assert admit(user="ann", max_processors=6).max_processors == 6


def test_a_job_with_a_minimum_is_malleable() -> None:
    spec = admit(processors=8, min_processors=2)
    assert (spec.min_processors, spec.max_processors) == (2, None), "of the whole machine"
    assert spec.malleable
    assert spec.largest == 8
    spec = admit(processors=4, min_processors=2, max_processors=8)
    assert (spec.min_processors, spec.max_processors) == (2, 8)
    assert admit(processors=6, min_processors=3, topology=Topology("power-of-2")).malleable
    assert admit(processors=4, min_processors=2, array="0-3").malleable
    none = admit(min_processors=2)
    assert none == admit()
    assert not none.resizable


PARTITIONED = ServeConfig(
    nodes=NODES,
    queues={"main": QueueConfig(default_walltime_s=1800)},
    partitions={
        "batch": PartitionConfig(nodes=["a"]),
        "short": PartitionConfig(nodes=["b"], max_walltime_s=600, default_walltime_s=300),
        "brief": PartitionConfig(processors=1, max_walltime_s=900),
    },
)
PARTITIONED = msgspec.structs.replace(PARTITIONED, nodes=(*NODES, NodeConfig("c", 1)))


@pytest.mark.parametrize(
    ("walltime_s", "partition", "resolved"),
    [
        (LONGEST_WALLTIME_S, "short", 600),
        (LONGEST_WALLTIME_S, "brief", 900),
        (LONGEST_WALLTIME_S, "batch", inf),
        (0.0, "short", 300),
        (0.0, "brief", 900),
        (0.0, "batch", 1800),
        (0.0, "", 1800),
        (70.0, "short", 70),
    ],
)
def test_the_walltime_of_a_submission(walltime_s: float, partition: str, resolved: float) -> None:
    submission = Submission(["true"], 1, walltime_s, partition=partition)
    assert Admission(PARTITIONED).walltime_s(submission) == resolved
    limited = msgspec.structs.replace(PARTITIONED, queues={"q": QueueConfig(max_walltime_s=650)})
    if walltime_s == LONGEST_WALLTIME_S:
        assert Admission(limited).walltime_s(submission) == min(resolved, 650)


def test_a_submission_names_its_partition() -> None:
    assert admit(PARTITIONED).partition == "batch", "the first one"
    spec = admit(PARTITIONED, partition="short", processors=4)
    assert (spec.partition, spec.processors) == ("short", 4)
    grows = admit(PARTITIONED, partition="short", max_processors=1000)
    assert grows.max_processors == 4, "of its partition"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"partition": "short", "walltime_s": 700.0}, "accepts it: batch"),
        ({"processors": 5}, "no partition accepts it: ask for less"),
        ({"partition": "shrot"}, "there is no partition 'shrot'; did you mean short?"),
    ],
)
def test_a_submission_beyond_the_limits_of_its_partition(
    fields: dict[str, object], says: str
) -> None:
    with pytest.raises(ReshapeError) as caught:
        admit(PARTITIONED, **fields)
    assert says in str(caught.value)
    with pytest.raises(ReshapeError, match="no partition 'short', as the service has none"):
        admit(partition="short")


def test_nodes_of_pools_join_the_first_partition() -> None:
    admission = Admission(PARTITIONED)
    submission = Submission(["true"], 6, 60.0)
    with pytest.raises(ReshapeError, match="beyond the limits of partition batch, 4 processors"):
        admission.admit(submission)
    admission.add_nodes(["p1"], 2)
    assert admission.admit(submission).partition == "batch"
    admission.remove_nodes(["p1"])
    with pytest.raises(ReshapeError, match="beyond the limits"):
        admission.admit(submission)


def outcome(admission: Admission, submission: Submission) -> JobSpec | str:
    try:
        return admission.admit(submission)
    except ReshapeError as error:
        return str(error)


SUBMISSIONS = st.builds(
    Submission,
    argv=st.sampled_from((["true"], ["true", "1"], ["true", "a\0"], ["/bin/echo", "1"], [])),
    processors=st.sampled_from((2, 9)),
    walltime_s=st.just(60.0),
    user=st.sampled_from(("ann", "bob")),
    priority=st.sampled_from((None, "gold", "platinum")),
    name=st.sampled_from(("", "a", "b", "\n")),
    output=st.sampled_from(("out", "%j.out", "%q.out")),
    cwd=st.sampled_from(("/data", "/srv/own")),
    environment=st.sampled_from(
        ({}, {"A": "1"}, {"A=B": "1"}, {"RESHAPE_RESTART_FROM": "/srv/own/1"})
    ),
    key=st.sampled_from(("", "k", "k" * 201)),
    wrapper=st.sampled_from(([], ["/bin/sh"], ["\0"])),
    script=st.booleans(),
    text=st.sampled_from(("", "#!/bin/sh\n")),
)


@given(st.lists(SUBMISSIONS, min_size=2, max_size=6))
def test_a_submission_is_admitted_as_if_it_were_the_first(submissions: list[Submission]) -> None:
    admission = Admission(SITE, own_folders=(Path("/srv/own"),))
    for submission in submissions:
        alone = Admission(SITE, own_folders=(Path("/srv/own"),))
        assert outcome(admission, submission) == outcome(alone, submission)


def test_jobs_that_are_alike_have_one_request() -> None:
    admission = Admission(SITE)
    first = admission.admit(Submission(["true", "1"], 2, 60.0, environment={"A": "1"}))
    assert admission.admit(Submission(["true", "2"], 2, 60.0, output="2", key="2")) is first
    assert admission.admit(Submission(["true"], 2, 60.0, name="a")) == replace(first, name="a")
    assert admission.admit(Submission(["true", "2"], 2, 61.0)).walltime_s == 61.0


def test_names_may_hold_any_printable_character() -> None:
    name = "Größe\u00a03 µ"
    assert admit(user="ann", name=name).name == name


def test_a_performance_model_of_a_submission() -> None:
    assert admit(performance="table:2=10,4=6").performance == "table:2=10,4=6"
    config = msgspec.structs.replace(SITE, performance_models=("reshape.speedup:Amdahl",))
    own = "reshape.speedup:Amdahl,serial=0.5"
    assert admit(config, performance=own).performance == own


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("amdal:serial=0.1", "unknown speedup model 'amdal'; did you mean amdahl?"),
        ("reshape.speedup:Amdahl,serial=0.5", "list it in performance_models"),
        ("amdahl:serial=5", "serial must be >= 0 and <= 1, got 5.0"),
        ("amdahl:serial=0.5\n", "holds a control character"),
    ],
)
def test_a_performance_model_that_is_refused(model: str, words: str) -> None:
    with pytest.raises(ReshapeError, match=re.escape(words)):
        admit(performance=model)
