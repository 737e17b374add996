"""Scenarios by name and as data; user-defined policies from files and packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registrations import temporary_registrations

from reshape.errors import ConfigError
from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.journal.recovery import policy_errors
from scheduler.model.events import JobEnded, JobSpec, JobStarted, JobSubmitted, ResizeDone, Wakeup
from scheduler.model.events import ResizePoint as Point
from scheduler.model.machine import Machine
from scheduler.model.orders import Continue, Contract, Expand, Kill, Start
from scheduler.model.procset import ProcSet
from scheduler.model.space import Space
from scheduler.policies import registry
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.registry import find, known, name_of
from scheduler.policies.resizing.prio_scenarios import FcfsPr, PbaPr
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.scenarios import changed, from_data, scenario, to_data

MY_POLICY = '''
import msgspec
from scheduler.policies.api import Grow, QueueOrder, Reason, Selection, Shrink, Stay


class Swap(msgspec.Struct, frozen=True):
    """Grow once to `size`, then let the original group leave."""

    size: int = 6
    patience: float = 0.0

    def decide(self, job, view):
        if job.resizes == 0:
            return Grow(self.size, Reason("swap", "{free} free", {"free": view.free}))
        if 1 in job.groups and len(job.groups) == 2:
            return Shrink(job.spec.processors, Reason("swap"), groups=(1,))
        return Stay(Reason("swap"))


class Untyped:
    def decide(self, job, view):
        return Stay(Reason("untyped"))


class Mute(msgspec.Struct, frozen=True):
    def decide(self, job, view):
        Stay(Reason("the return is forgotten"))


class Without(msgspec.Struct, frozen=True):
    size: int

    def decide(self, job, view):
        return Stay(Reason("without a default"))


class Misspelt(QueueOrder, msgspec.Struct, frozen=True):
    ages = False

    def kye(self, job, now):
        return job.submitted_at


class Ageless(QueueOrder, msgspec.Struct, frozen=True):
    def key(self, job, now):
        return now - job.submitted_at


class Underived(msgspec.Struct, frozen=True):
    ages = False

    def key(self, job, now):
        return job.submitted_at


class LastComeFirst(QueueOrder, msgspec.Struct, frozen=True):
    ages = False

    def key(self, job, now):
        return -job.submitted_at


class HighestFirst(Selection, msgspec.Struct, frozen=True):
    def select(self, space, processors):
        return None if processors == 5 else space.free.last(processors)
'''


@pytest.fixture
def my_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_policy.py").write_text(MY_POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_policy", raising=False)
    return "my_policy"


@pytest.fixture
def registered(my_policy: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Entry points as an installed package would offer them."""
    points = [
        EntryPoint("swap", "my_policy:Swap", registry.GROUP),
        EntryPoint("lcfs", "my_policy:LastComeFirst", registry.GROUP),
        EntryPoint("highest", "my_policy:HighestFirst", registry.GROUP),
    ]
    with temporary_registrations():
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
        yield


def test_the_built_in_scenarios() -> None:
    assert set(registry.known("scenario")) == {
        *(
            "conservative",
            "rua",
            "easy",
            "easy++",
            "fcfs",
            "static",
            "malleable",
            "steady",
            "pba-pr",
            "fcfs-pr",
            "max-b-pr",
        ),
        *("pba", "fcfs-max-benefit", "max-b"),
    }
    assert scenario("fcfs").backfill == Backfill(0)
    assert scenario("easy").backfill == Backfill(1)
    assert scenario("easy").resizing is None
    assert scenario("conservative").backfill == Backfill(None)
    assert scenario("fcfs-pr").resizing == FcfsPr()
    steady = FcfsPr(harvest="useful", grow_past="blocked", earn_back=True)
    assert scenario("steady").resizing == steady
    for name in ("static", "steady", "pba-pr", "fcfs-pr", "max-b-pr"):
        assert scenario(name).order == Aging()
        assert scenario(name).backfill == Backfill(1)


@pytest.mark.parametrize("name", registry.known("scenario"))
def test_a_scenario_as_data_is_read_back(name: str) -> None:
    there = scenario(name, {"retry_after": 7})
    text = msgspec.json.encode(to_data(there))
    assert from_data(msgspec.json.decode(text)) == there


@pytest.mark.parametrize("kind", ["assignment", "estimates", "order", "resizing", "selection"])
def test_every_built_in_policy_is_found_under_its_name(kind: str) -> None:
    names = known(kind)
    found = {name: find(kind, name) for name in names}
    assert len(set(found.values())) == len(names)
    for name, policy in found.items():
        assert name_of(kind, policy()) == name


def test_a_policy_has_its_name_before_it_is_looked_up() -> None:
    script = (
        "from scheduler.policies.selection.on_table import OnTable\n"
        "from scheduler.policies.registry import name_of\n"
        "print(name_of('selection', OnTable()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "table-first-fit\n"


def test_fields_are_changed_by_name() -> None:
    base = scenario("fcfs-pr")
    dotted = changed(base, {"resizing.min_benefit": "0.1", "backfill.reservations": "2"})
    nested = changed(base, {"resizing": {"min_benefit": 0.1}, "backfill": {"reservations": 2}})
    assert dotted == nested
    assert dotted.resizing == FcfsPr(min_benefit=0.1)
    assert dotted.backfill.reservations == 2
    assert changed(base, {"resizing": None}).resizing is None
    assert changed(base, {"resizing": "static"}).resizing is None
    assert changed(scenario("easy"), {"resizing": "fcfs-pr"}).resizing == FcfsPr()
    with_policy = {"resizing": {"settle": 2, "policy": "fcfs-pr"}}
    assert changed(scenario("easy"), with_policy).resizing == FcfsPr(settle=2)
    either_order = {"resizing.settle": 2, "resizing": "fcfs-pr"}
    assert changed(scenario("easy"), either_order).resizing == FcfsPr(settle=2)
    assert changed(base, {"max_restarts": "0"}).max_restarts == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"resizing.min_benfit": 1}, "resizing.min_benfit: unknown field; did you mean min_b"),
        (
            {"qqq": 1},
            "qqq: unknown field 'qqq'; known are backfill, backfill_order, estimates,"
            " max_failures, max_restarts, name, order, redirection, resizing, ",
        ),
        ({"resizng": None}, "resizng: unknown field 'resizng'; did you mean resizing"),
        ({"backfill.reservation": 1}, "unknown field 'reservation'; did you mean reservations"),
        ({"backfill.reservations": -1}, "backfill: reservations must be >= 0 or null for all"),
        ({"resizing.settle": "two"}, "resizing.settle: expected int, got 'two'"),
        ({"resizing.settle": 0}, "resizing: settle must be >= 1, got 0"),
        ({"resizing": "fcfs-rp"}, "resizing: unknown resizing 'fcfs-rp'; did you mean fcfs-pr"),
        ({"selection": "last-fit"}, "unknown selection 'last-fit'; did you mean first-fit"),
        ({"max_restarts": "many"}, "max_restarts: expected int, got 'many'"),
        ({"max_restarts.x": 1}, "max_restarts.x: 3 has no fields"),
        (
            {"order": {"name": "sjf"}},
            "order.name: unknown field 'name'; a mapping names its policy",
        ),
        ({"retry_after": -1}, "retry_after: must be >= 0, got -1"),
        ({"resizing.min_potential": "nan"}, "resizing: min_potential must be finite"),
        ({"resizing.harvest": "never"}, "resizing.harvest: must be always or useful, got 'never'"),
        ({"resizing.min_benefit": -0.1}, "resizing: min_benefit must be >= 0 and finite"),
        ({"backfill.reserve": 3}, "backfill.reserve: must be place or shortage, got 3"),
        (
            {"resizing": {"policy": "malleable", "slack": 0.5}},
            "resizing: slack must be >= 1 and finite, got 0.5",
        ),
        ({"queues": 3}, "queues: expected object, got 3"),
    ],
)
def test_errors_of_changes_name_the_field(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(scenario("fcfs-pr"), changes)
    assert says in str(caught.value)


def test_a_parameter_without_its_policy() -> None:
    with pytest.raises(ConfigError, match="there is no resizing policy; choose one first"):
        changed(scenario("easy"), {"resizing.min_benefit": 0.5})


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown scenario 'eazy'; did you mean easy"):
        scenario("eazy")
    with pytest.raises(ConfigError, match="'nowhere'; call the command in its folder, or"):
        scenario("nowhere:Policy")
    with pytest.raises(
        ConfigError, match=r"^backfill_order: unknown order 'sjff'; did you mean sjf"
    ):
        scenario("easy", {"backfill_order": "sjff"})


def test_a_policy_in_one_file(my_policy: str) -> None:
    there = scenario("my_policy:Swap", {"resizing.size": 4})
    assert msgspec.to_builtins(there.resizing) == {"size": 4, "patience": 0.0}
    assert from_data(to_data(there)) == there
    with pytest.raises(ConfigError, match=r"a policy is a msgspec\.Struct or a dataclass"):
        scenario("my_policy:Untyped")
    with pytest.raises(ConfigError, match="is of kind order, not resizing"):
        scenario("easy", {"resizing": "my_policy:LastComeFirst"})
    with pytest.raises(ConfigError, match=r"the class ages = False, or True"):
        scenario("easy", {"order": "my_policy:Ageless"})
    with pytest.raises(ConfigError, match=r"has no class 'Swop'; did you mean Swap\?"):
        scenario("my_policy:Swop")
    with pytest.raises(ConfigError, match=r"argument 'size'; give each of its parameters a def"):
        scenario("my_policy:Without")
    with pytest.raises(ConfigError, match=r"Misspelt' has no method key; did you mean kye\?"):
        scenario("easy", {"order": "my_policy:Misspelt"})
    with pytest.raises(ConfigError, match=r"class Underived\(QueueOrder, msgspec\.Struct"):
        scenario("easy", {"order": "my_policy:Underived"})


def test_an_invalid_decision_is_reported_and_the_job_keeps_its_size(my_policy: str) -> None:
    core = Core(scenario("my_policy:Mute"), Machine([("n", 8)]), report_error=policy_errors())
    core.handle([JobSubmitted(0, 1, JobSpec(2, 100, 6))])
    core.handle([JobStarted(1, 1)])
    (order,) = core.handle([Point(2, 1, 1, 1.0)])
    assert isinstance(order, Continue)
    assert "it returned None, which is neither Grow nor Shrink nor Stay" in str(order.reason)


@pytest.mark.usefixtures("registered")
def test_policies_of_an_installed_package() -> None:
    assert "swap" in registry.known("scenario")
    there = scenario("swap", {"order": "lcfs", "selection": "highest"})
    assert to_data(there)["resizing"] == {"policy": "swap", "size": 6, "patience": 0.0}
    core = Core(there, Machine([("n", 8)]))
    submitted = [JobSubmitted(0, n, JobSpec(5, 10)) for n in (1, 2)]
    assert core.handle(submitted) == [], "this selection accepts no 5"
    assert [job.id for job in core.partitions[0].queue] == [1, 2]
    orders = core.handle([JobSubmitted(1, 3, JobSpec(3, 10))])
    assert [(o.job, o.processors) for o in orders if isinstance(o, Start)] == [
        (3, ProcSet.span(5, 3))
    ]
    assert [job.id for job in core.partitions[0].queue] == [1, 2]


@pytest.mark.usefixtures("registered")
def test_the_original_group_leaves_if_the_policy_says_so() -> None:
    core = Core(scenario("swap"), Machine([("n", 8)]), report_error=policy_errors())
    core.handle([JobSubmitted(0, 1, JobSpec(2, 100, 6, Topology.parse("list:2,6")))])
    core.handle([JobStarted(1, 1)])
    (expand,) = core.handle([Point(2, 1, 1, 1.0)])
    assert isinstance(expand, Expand)
    core.handle([ResizeDone(3, 1, 1)])
    (refused,) = core.handle([Point(4, 1, 2, 1.0)])
    assert isinstance(refused, Continue), "2 of 2+4 cannot stay if the original 2 leave"
    assert "groups (1,) do not have the 4 processors that leave" in str(refused.reason)

    core = Core(scenario("swap", {"resizing.size": 4}), Machine([("n", 8)]))
    core.handle([JobSubmitted(0, 1, JobSpec(2, 100, 6, Topology(step=2)))])
    core.handle([JobStarted(1, 1)])
    core.handle([Point(2, 1, 1, 1.0)])
    core.handle([ResizeDone(3, 1, 1)])
    (contract,) = core.handle([Point(4, 1, 2, 1.0)])
    assert isinstance(contract, Contract)
    assert contract.groups == (1,)
    core.handle([ResizeDone(5, 1, 2)])
    assert core.jobs[1].groups == {2: ProcSet.span(2, 2)}
    assert core.machine.free == ProcSet.parse("0-1 4-7")
    core.handle([JobEnded(6, 1)])
    assert core.machine.free_count == 8


def test_register_refuses_an_object_that_is_not_a_policy() -> None:
    with pytest.raises(ConfigError, match="'three' is 3, but a policy is"):
        registry.register("three", 3)


def test_a_selection_says_what_it_can_do() -> None:
    class Lowest(msgspec.Struct, frozen=True):
        def select(self, space: Space, processors: int) -> ProcSet | None:
            return space.free.first(processors)

    says = r"'lowest' does not say .* class Lowest\(Selection, msgspec.Struct, frozen=True\)"
    with pytest.raises(ConfigError, match=says):
        registry.register("lowest", Lowest)


def test_a_registered_scenario() -> None:
    with temporary_registrations():
        registry.register("deep", Scenario("deep", backfill=Backfill(10)))
        assert scenario("deep").backfill.reservations == 10
    with pytest.raises(ConfigError, match="unknown scenario 'deep'"):
        scenario("deep")


@pytest.mark.usefixtures("registered")
def test_a_core_resumes_with_another_scenario() -> None:
    core = Core(scenario("fcfs"), Machine([("n", 4)]), kill_at_walltime=False)
    core.handle([JobSubmitted(n, n, JobSpec(processors, 9)) for n, processors in ((1, 3), (2, 2))])
    assert core.handle([JobSubmitted(3, 3, JobSpec(1, 5))]) == [], "no job passes in FCFS"
    core = core.resumed(scenario("easy", {"order": "lcfs"}), kill_at_walltime=True)
    started = [o.job for o in core.handle([Wakeup(3.5)]) if isinstance(o, Start)]
    assert started == [3], "a pass, because the scenario is another; last come, first served"
    orders = core.handle([Wakeup(20)])
    assert [type(order) for order in orders] == [Kill, Kill]
    assert [job.id for job in core.partitions[0].queue] == [2]


@given(st.integers(1, 5), st.floats(0, 1), st.sampled_from(["always", "useful"]))
def test_any_parameters_are_read_back(
    settle: int, min_benefit: float, harvest: Literal["always", "useful"]
) -> None:
    resizing = FcfsPr(settle=settle, min_benefit=min_benefit, harvest=harvest)
    there = Scenario("x", resizing=resizing)
    assert from_data(msgspec.json.decode(msgspec.json.encode(to_data(there)))) == there


def test_each_queue_resizes_its_jobs_by_its_own_rules() -> None:
    rules = {"still": QueueRules(Aging()), "late": QueueRules(Aging(), PbaPr(settle=2))}
    there = msgspec.structs.replace(scenario("pba-pr"), queues=rules)
    core = Core(there, Machine([("n", 12)]))
    grows = [JobSpec(2, 100, 4, queue=queue) for queue in ("main", "still", "late", "unknown")]
    core.handle([JobSubmitted(0, number, spec) for number, spec in enumerate(grows)])
    core.handle([JobStarted(1, number) for number in range(4)])
    orders = core.handle([Point(2, number, 1, 1.0) for number in range(4)])
    assert [type(order) for order in orders] == [Expand, Continue, Continue, Expand]
    assert [str(order.reason).split("[")[1] for order in orders[1:3]] == [
        "static]",
        "PBA-PR: try a size first (settle)]",
    ]


def test_queues_whose_orders_cannot_be_compared() -> None:
    there = msgspec.structs.replace(scenario("easy"), queues={"a": QueueRules(Aging())})
    with pytest.raises(ConfigError, match="the order of the server, Fcfs, gives no number"):
        from_data(to_data(there))
