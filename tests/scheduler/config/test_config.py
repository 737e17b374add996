"""Configuration: precedence of the sources; errors name file, line, field and correction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from reshape.errors import ConfigError
from scheduler.config.settings import Deadlines, NodeConfig, ServeConfig
from scheduler.config.sources import load_config
from scheduler.model.events import JobSpec
from scheduler.model.job import Job
from scheduler.model.network import Tree
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.resizing.malleable import Malleable
from scheduler.policies.resizing.prio_scenarios import FcfsPr, MaxBPr, PbaPr
from scheduler.policies.scenarios import from_data, to_data


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "site.yaml"


def test_the_default_is_the_processors_of_this_process() -> None:
    config = load_config(None, {})
    assert [node.name for node in config.nodes] == ["local"]
    assert config == ServeConfig(nodes=config.nodes)


def test_each_source_overrides_the_previous_ones(file: Path) -> None:
    file.write_text("processors: 3\nverify: true\ndeadlines: {join_s: 1, exit_s: 2, ready_s: 3}\n")
    assert load_config(file, {}).nodes == (NodeConfig("local", 3),)
    options = {"processors": 5, "verify": None, "scenario": "easy"}
    config = load_config(file, options)
    assert config == ServeConfig(
        nodes=(NodeConfig("local", 5),),
        scenario="easy",
        verify=True,
        deadlines=Deadlines(join_s=1, exit_s=2, ready_s=3),
    )


def test_processors_given_later_replace_the_nodes_of_the_file(file: Path) -> None:
    file.write_text("nodes: [{name: a, processors: 2}, {name: b, processors: 2}]\n")
    assert len(load_config(file, {}).nodes) == 2
    assert load_config(file, {"processors": 8}).nodes == (NodeConfig("local", 8),)


def test_nodes_and_network_of_a_machine_file(file: Path) -> None:
    """Its path is relative to the configuration file; one given by an option has precedence."""
    tree = file.with_name("tree.yaml")
    tree.write_text(
        "nodes: 3\nprocessors_per_node: 2\nresources_per_node: {gib: 16}\n"
        "network: {topology: tree, k: 2, levels: 2, not_installed: 1}\n"
    )
    file.write_text("machine: tree.yaml\n")
    config = load_config(file, {"set": ["selection=tree"]})
    names = ("node0", "node2", "node3")
    assert config.nodes == tuple(NodeConfig(name, 2, {"gib": 16}) for name in names)
    assert config.platform is not None
    assert config.platform.network == Tree(2, 2, 2)
    assert {name: str(part) for name, part in config.platform.places.items()} == {
        "node0": "0-1", "node2": "4-5", "node3": "6-7"
    }  # fmt: skip
    assert load_config(None, {"machine": tree}).platform == config.platform
    later = load_config(file, {"processors": 4})
    assert (later.platform, later.processors) == (None, 4)
    tree.write_text(tree.read_text().replace("nodes: 3", "nodes: [a, b, a]"))
    with pytest.raises(ConfigError, match=r"tree.yaml:1: nodes\[2\]: two nodes are named 'a'"):
        load_config(file, {})
    tree.write_text("nodes: 2\nexclusive: true\n")
    with pytest.raises(ConfigError, match="has exclusive: true, which only the simulator supports"):
        load_config(file, {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [('"0:15"', 15), ("10:00", 600), ("08:00", 480), ("1-0", 86400), ("7.5", 7.5), ('"7.5"', 7.5)],
)
def test_durations_may_be_written_as_walltimes(file: Path, text: str, seconds: float) -> None:
    file.write_text(f"processors: 1\ndeadlines:\n  join_s: {text}\n")
    assert load_config(file, {}).deadlines.join_s == seconds


def test_the_kill_wait_is_half_a_minute_unless_it_is_given(file: Path) -> None:
    file.write_text('processors: 1\nkill_wait_s: "0:45"\n')
    assert load_config(None, {"processors": 1}).kill_wait_s == 30
    assert load_config(file, {}).kill_wait_s == 45
    assert load_config(file, {"kill_wait_s": 7.5}).kill_wait_s == 7.5
    with pytest.raises(ConfigError, match="option --kill-wait: kill_wait_s: expected float > 0"):
        load_config(file, {"kill_wait_s": 0})


def test_later_parameters_have_precedence(file: Path) -> None:
    parameters = "parameters: {backfill.reservations: 3, max_restarts: 1}"
    file.write_text(f"processors: 1\nscenario: easy\n{parameters}\n")
    options = {"set": ["backfill.reservations=null", "retry_after=5"]}
    assert load_config(file, {}).parameters == {"backfill.reservations": 3, "max_restarts": 1}
    assert load_config(file, options).parameters == {
        "backfill.reservations": None,
        "max_restarts": 1,
        "retry_after": 5,
    }


def test_a_service_contracts_no_job_in_vain_unless_a_scenario_is_chosen() -> None:
    config = load_config(None, {"processors": 4})
    assert config.scenario == "malleable"
    assert config.composed().resizing == Malleable()
    for name in ("fcfs-pr", "pba-pr"):
        of_paper = load_config(None, {"processors": 4, "scenario": name}).composed().resizing
        assert isinstance(of_paper, FcfsPr | PbaPr)
        assert (of_paper.harvest, of_paper.grow_past) == ("always", "any")


def test_an_empty_file_gives_the_defaults(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert load_config(file, {"processors": 2}).nodes == (NodeConfig("local", 2),)


@pytest.mark.parametrize("text", ["processors: 0", "nodes: []"])
def test_a_service_whose_nodes_are_those_of_pools_has_none_of_its_own(
    file: Path, text: str
) -> None:
    file.write_text(f"{text}\nlisten: 127.0.0.1:7077\n")
    config = load_config(file, {})
    assert config.nodes == ()
    assert config.processors == 0


# What a file says, and the line, field and words its error must have.
WRONG = [
    ("processors: -1", 1, "processors", "must be a whole number >= 0, got -1"),
    ("\nprocessors: many", 2, "processors", "must be a whole number >= 0, got 'many'"),
    ("processors: true", 1, "processors", "must be a whole number >= 0, got True"),
    (
        "processors: 0",
        1,
        "nodes",
        "there is no node; a service without nodes gets them from a pool",
    ),
    *(
        (f"verify: true\nlisten: '{text}'", 2, "listen", "must be HOST:PORT with a port from 1")
        for text in ("7077", ":7077", "host:", "host:0", "host:70777", "host:x")
    ),
    ("processor: 4", 1, "processor", "unknown field; did you mean processors?"),
    ("verify: true\nscenaro: easy", 2, "scenaro", "unknown field; did you mean scenario?"),
    ("qqq: 1", 1, "qqq", "unknown field; known are allow_root, binding, deadlines, "),
    ("verify: maybe", 1, "verify", "expected bool, got 'maybe'"),
    ("scenario: [easy]", 1, "scenario", "expected str, got ['easy']"),
    ("deadlines:\n  join: 3", 2, "deadlines.join", "unknown field; did you mean join_s?"),
    ("deadlines:\n  exit_s: 1\n  join_s: -3", 3, "deadlines.join_s", "expected float > 0"),
    ("deadlines:\n  join_s: 1:xx", 2, "deadlines.join_s", "'1:xx' is not a time; write a number"),
    ("deadlines: 5", 1, "deadlines", "expected object, got 5"),
    ("nodes:\n  - name: a", 2, "nodes[0].processors", "is missing"),
    ("nodes: []", 1, "nodes", "there is no node; a service without nodes gets them from a pool"),
    (
        "nodes:\n  - name: a\n    processors: 2\n  - name: b\n    processors: x",
        5,
        "nodes[1].processors",
        "expected int, got 'x'",
    ),
    (
        "nodes:\n- {name: a, processors: 1}\n- {name: a, processors: 1}",
        3,
        "nodes[1].name",
        "two nodes are named 'a'; rename one",
    ),
    ("nodes:\n- {name: a/b, processors: 1}", 2, "nodes[0].name", "got 'a/b'"),
    ("nodes:\n- {nam: a, processors: 1}", 2, "nodes[0].nam", "unknown field; did you mean name?"),
    (
        "nodes: [{name: a, processors: 1}]\nprocessors: 8",
        2,
        "processors",
        "give either processors or nodes, not both",
    ),
    ("processors: 8\nmachine: m.yaml", 1, "processors", "give either processors or machine, not"),
    ("machine: 3", 1, "machine", "must be the path of a file, got 3"),
    ("verify: true\nnetwork: {k: 2}", 2, "network", "is read from a machine file"),
    (
        "nodes:\n- name: a\n  processors: 1\n  resources: {gib: 1, gpu: -1}",
        4,
        "nodes[0].resources.gpu",
        "expected int >= 0, got -1",
    ),
    (
        "nodes:\n- {name: a, processors: 1, resources: {processors: 1}}",
        2,
        "nodes[0].resources",
        "'processors' cannot be the name of a further resource",
    ),
    (
        "verify: true\nparameters:\n  selection: tree",
        3,
        "parameters.selection",
        "it needs a machine with a network; name its machine file with machine",
    ),
    (
        "scenario: easy\nparameters: {selection: contiguous, backfill.reservations: 3}",
        2,
        "parameters.selection",
        "promises numbers of processors, not places",
    ),
    ("processors: 1\nverify: true\nprocessors: 2", 3, "processors", "is given twice; keep one"),
    ("parameters: 3", 1, "parameters", "must be a mapping of fields to values, got 3"),
    ("parameters:\n  a: [1]", 2, "parameters.a", "must be one value, got [1]"),
    ("verify: true\nscenario: eazy", 2, "scenario", "unknown scenario 'eazy'; did you mean easy"),
    (
        "parameters:\n  backfill.reservatons: 2",
        2,
        "parameters.backfill.reservatons",
        "did you mean reservations",
    ),
    (
        "parameters:\n  backfill:\n    reservations: 2",
        3,
        "parameters.backfill.reservations",
        "write the name of the field with dots, as in parameters: {backfill.reservations: 2}",
    ),
    (
        "verify: true\nredirection:\n  theta: 5",
        2,
        "redirection",
        "write its fields under parameters, as in parameters: {redirection.theta: 10}",
    ),
    (
        "scenario: fcfs-pr\nparameters:\n  max_restarts: 1\n  backfill.reservations: -1",
        4,
        "parameters.backfill.reservations",
        "reservations must be >= 0 or null for all, got -1",
    ),
    ("priorities: {gold: much}", 1, "priorities.gold", "expected float, got 'much'"),
    ("priorities:\n  gold: .nan", 2, "priorities.gold", "must be a finite number, got nan"),
    ("users:\n  ann: platinm", 2, "users.ann", "no priority 'platinm'; did you mean platinum?"),
    (f"processors: {10**23}", 1, "processors", "below 2**31"),
    (f"nodes: [{{name: a, processors: {10**23}}}]", 1, "nodes[0].processors", "<= 2147483647"),
    ("queues: {}", 1, "queues", "length >= 1"),
    ("queues: [a]", 1, "queues", "expected object"),
    ("queues:\n  a:\n    priorty: 3", 3, "queues.a.priorty", "did you mean priority?"),
    ("queues:\n  a:\n    priority: silver", 3, "queues.a.priority", "no priority 'silver'"),
    ("queues:\n  a:\n    max_processors: 0", 3, "queues.a.max_processors", "int >= 1"),
    ("queues:\n  a:\n    max_walltime_s: 1:xx", 3, "queues.a.max_walltime_s", "is not a time"),
    (
        "queues:\n  a:\n    max_walltime_s: soon",
        3,
        "queues.a.max_walltime_s",
        "'soon' is not a time",
    ),
    (
        "queues:\n  a:\n    max_walltime_s: 30min\n    default_walltime_s: 1h",
        4,
        "queues.a.default_walltime_s",
        "is 3600 s, above max_walltime_s, 1800 s",
    ),
    ("queues:\n  a:\n    users: []", 3, "queues.a.users", "no user could submit"),
    ("queues:\n  a:\n    scenario: max-b", 1, "queues", "order of queue a, Fcfs, gives no number"),
    ("queues:\n  a:\n    scenario: max", 3, "queues.a.scenario", "did you mean max-b"),
    (
        "queues:\n  a:\n    parameters:\n      backfill.reservations: 3",
        4,
        "queues.a.parameters.backfill.reservations",
        "applies to the whole service",
    ),
    (
        "queues:\n  a:\n    scenario: max-b-pr\n    parameters: {resizing.harvest: useful}",
        4,
        "queues.a.parameters.resizing.harvest",
        "unknown field",
    ),
    (
        "scenario: easy\nqueues:\n  a:\n    parameters: {order: aging}",
        2,
        "queues",
        "the order of the server, Fcfs, gives no number",
    ),
    (
        "parameters:\n  order.wait_weight: -1",
        2,
        "parameters.order.wait_weight",
        "wait_weight must be >= 0, or jobs that wait long would fall behind",
    ),
    ("deadlines: &a\n  join_s: *a", 2, "deadlines.join_s", "refers to itself"),
    ("processors: [1", 2, None, "is not YAML"),
    ("processors: 1\n\tverify: x", 2, None, "is not YAML"),
    ("- 1\n- 2", 1, None, "must be a mapping"),
    ("processors: 1\n---\nprocessors: 2", 2, None, "is not YAML"),
    ("processors: 1\n\x00", 2, None, "is not YAML: character #x0000"),
]


@pytest.mark.parametrize(("text", "line", "field", "says"), WRONG)
def test_an_error_in_a_file_names_line_field_and_correction(
    file: Path, text: str, line: int, field: str | None, says: str
) -> None:
    file.write_text(text + "\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    error = caught.value
    assert (error.file, error.line, error.field) == (str(file), line, field)
    assert says in str(error)
    assert str(error).startswith(f"{file}:{line}: ")
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"processors": -1}, "option --processors: processors: must be a whole number >= 0"),
        ({"scenario": "nix"}, "option --scenario: scenario: unknown scenario 'nix'"),
        (
            {"set": ["max_restarts=x"]},
            "option --set max_restarts=x: parameters.max_restarts: expected int, got 'x'",
        ),
        ({"set": ["depth"]}, "option --set depth: 'depth' has no value; write depth=VALUE"),
        ({"set": ["depth=[1]"]}, "option --set depth=[1]: must be one value, got"),
    ],
)
def test_an_error_of_an_option_names_it(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, options)
    assert str(caught.value).startswith(says)


def test_an_unreadable_file_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"site\.yaml: cannot be read: No such file"):
        load_config(file, {})
    file.write_bytes(b"scenario: \xff\n")
    with pytest.raises(ConfigError, match=r"site\.yaml: is not UTF-8"):
        load_config(file, {})


def test_parameters_of_redirection(file: Path) -> None:
    file.write_text(
        "nodes: [{name: a, processors: 3}, {name: b, processors: 1}]\n"
        "scenario: easy\n"
        "parameters:\n  redirection.theta: 5\n  redirection.alpha: 0.5\n"
    )
    config = load_config(file, {"set": ["redirection.conflict=latest-start"]})
    assert config.parameters == {
        "redirection.theta": 5,
        "redirection.alpha": 0.5,
        "redirection.conflict": "latest-start",
    }
    both = {"b": {"redirection": 1}, "a": {"redirection": 1}}
    assert config.shares() == both, "from the last node first"
    off = load_config(file, {"set": ["redirection=none"]})
    assert off.shares() == {}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (
            "parameters:\n  redirection.theta: -1",
            "4: redirection.theta",
            "theta must be >= 0, got -1",
        ),
        (
            "parameters:\n  redirection.conflict: latest",
            "4: redirection.conflict",
            "mean latest-end",
        ),
        ("parameters:\n  redirection.tetha: 1", "4: redirection.tetha", "did you mean theta?"),
        (
            "parameters:\n  redirection.theta: 1\n  redirection.processors: 4",
            "5: redirection.processors",
            "leave none",
        ),
        (
            "parameters: {redirection.alpha: 0.1}",
            "3: redirection.alpha",
            "of 4 processors is less than 1",
        ),
        ("parameters: {redirection: 3}", "3: redirection", "got 3"),
        ("parameters: {redirection.theta: [1]}", "3: redirection.theta", "must be one value"),
    ],
)
def test_errors_about_redirection_name_their_field(
    file: Path, text: str, place: str, words: str
) -> None:
    file.write_text(f"processors: 4\nscenario: easy\n{text}\n")
    with pytest.raises(ConfigError) as raised:
        load_config(file, {})
    assert f"site.yaml:{place}: " in str(raised.value).replace("parameters.", "")
    assert words in str(raised.value)


QUEUES = """
processors: 8
scenario: pba-pr
parameters: {order.nodes_weight: -1, resizing.harvest: useful}
priorities: {low: -5, high: 200}
users: {ann: high, bob: 7}
queues:
  main:
  express:
    priority: high
    max_processors: 4
    max_walltime_s: "10:00"
    users: [ann, eve]
    scenario: max-b-pr
    parameters:
      order.qfactor_weight: 50
  steady: {parameters: {resizing.settle: 3}}
"""


def test_queues_can_override_order_and_resizing(file: Path) -> None:
    file.write_text(QUEUES)
    config = load_config(file, {})
    express = config.queues["express"]
    assert (express.max_processors, express.max_walltime_s) == (4, 600)
    made = config.composed()
    assert made.order == Aging(nodes_weight=-1)
    assert made.resizing_of("main") == made.resizing == PbaPr(harvest="useful")
    assert made.resizing_of("express") == MaxBPr()
    assert made.resizing_of("steady") == PbaPr(harvest="useful", settle=3)
    assert made.queues["express"].order == Aging(qfactor_weight=50)
    assert from_data(msgspec.json.decode(msgspec.json.encode(to_data(made)))) == made


def test_jobs_of_several_queues_share_one_queue_order(file: Path) -> None:
    file.write_text(QUEUES)
    order = load_config(file, {}).composed().queue_order
    main, express = (
        Job(number, JobSpec(4, 100.0, queue=queue), 0.0)
        for number, queue in enumerate(("main", "express"))
    )
    assert order.key(main, 60) == (-(10 * 1.6 + 1 - 4), 0)
    assert order.key(express, 60) == (-(50 * 1.6 + 1), 0)
    assert order.ages
    assert order.refresh_s == 10  # type: ignore[attr-defined]


@pytest.mark.parametrize("field", ["queues", "users", "priorities"])
def test_names_are_not_empty(file: Path, field: str) -> None:
    file.write_text(f'processors: 2\n{field}: {{"": {"{}" if field == "queues" else 3}}}\n')
    with pytest.raises(ConfigError, match=f":2: {field}: a name is empty"):
        load_config(file, {})
