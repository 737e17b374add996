"""Every field of a scenario changes a decision, is refused, or is listed here with the reason."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from one_machine import run

from reshape.errors import ConfigError
from reshape.speedup import Amdahl
from reshape.topology import Topology
from scheduler.config.machine_file import Platform
from scheduler.model.events import Event, JobSpec
from scheduler.model.interfaces import QueueOrder
from scheduler.model.network import Mesh, Tree
from scheduler.model.orders import Order
from scheduler.model.procset import ProcSet
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.queue_orders.basic import Sjf
from scheduler.policies.registry import known
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.scenarios import changed, from_data, scenario, to_data
from scheduler.text.used_fields import Needs, UnusedFieldError
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.jobs import SimJob
from simulator.workload_models.workload import Workload

#: Fields that no decision of these simulations depends on, and why.
#: (`max_restarts`, `retry_after` and `max_failures` are not tried: resizes fail only live.)
ELSEWHERE = {
    "backfill.fullness": "with one resource BB's measure is always 1; see backfill/test_balance.py",
    "resizing.grow_past": "matters while contractions can start a queued job; see steady_*.txt",
    "resizing.low": "PBA-PR: class precedes impact, if jobs of both are contracted for one head",
}
PROCESSORS = 12
NUMBERS = [None, 0, 1, 2, 3, 0.02, 0.2, 0.5, 1.5, 5, 50, 1000]
LISTS = [[1.0], [2.0, 900.0], ["number"], ["user"]]


def workload(seed: int) -> Workload:
    """Jobs of all kinds: some are resizable, exceed their walltimes, or come at one instant."""
    rng = random.Random(seed)
    jobs, at = [], 0.0
    for _ in range(60):
        at += rng.choice([0, 0, 1, 3, 10])
        size = rng.choice([1, 1, 2, 2, 3, 4, 6, 8])
        length_s = rng.choice([5.0, 20.0, 60.0, 300.0])
        grows = rng.random() < 0.5
        spec = JobSpec(
            size,
            length_s * rng.choice([0.5, 1, 1, 2, 10]),
            12 if grows else None,
            Topology("arbitrary", step=rng.choice([1, 2])) if grows else None,
            user=rng.choice("ab"),
            group=rng.choice("xy"),
            priority=rng.choice([0.0, 100.0, 1000.0]),
            shared={"bandwidth": rng.choice([0, 20, 80])},
            memory_kib=rng.choice([1, 1000]),
            min_processors=max(1, size // 2) if grows and seed > 7 else None,
        )
        count = 10 if grows else 1
        speedup = Amdahl(rng.choice([0.01, 0.2, 0.9]))
        jobs.append(SimJob(at, spec, length_s, count, speedup if grows else None))
    pause_s = 0.5 * (seed % 2)
    costs = Costs.constant(ResizeCost(join_s=4 * pause_s), pause_s, 4 * pause_s)
    return Workload(PROCESSORS, jobs, costs, kills=False)


WORKLOADS = [workload(seed) for seed in range(9)]


def platform_for(chosen: Scenario) -> Platform:
    """Machine that the selection of a scenario goes with."""
    network: Any = None
    if chosen.selection.network:
        network = Tree(2, 4) if chosen.selection.network == "tree" else Mesh((3, 4))
    nodes = 1 if network is not None else 2
    return Platform(
        ProcSet.span(0, PROCESSORS // nodes),
        network,
        processors_per_node=nodes,
        shared_per_node={"bandwidth": 100} if network is None else {},
    )


class _DiffersError(Exception):
    """A simulation has decided otherwise than the one that it is compared with."""


Decision = tuple[float, str, str]


def simulated(chosen: Scenario, number: int, note: Callable[[Decision], None]) -> bool:
    """Simulate, and note each time and order, without its reason; False if it is refused."""

    def watch(now: float, events: list[Event], orders: list[Order]) -> None:
        for order in orders:
            plain = msgspec.to_builtins(order) | {"reason": None}
            note((now, type(order).__name__, str(plain)))

    try:
        run(WORKLOADS[number], platform_for(chosen), chosen, watch=watch)
    except ConfigError:  # the machine refuses it
        return False
    return True


@lru_cache(maxsize=len(WORKLOADS))
def decisions(text: bytes, number: int) -> list[Decision] | None:
    """Decisions of the simulation of a scenario, written as JSON; None if it is refused."""
    found: list[Decision] = []
    accepted = simulated(from_data(msgspec.json.decode(text)), number, found.append)
    return found if accepted else None


def decides_as(expected: list[Decision] | None, other: Scenario, number: int) -> bool:
    """Whether a scenario makes these decisions; the first other one ends its simulation."""
    rest = iter(expected or ())

    def compare(decision: Decision) -> None:
        if decision != next(rest, None):
            raise _DiffersError

    try:
        accepted = simulated(other, number, compare)
    except _DiffersError:
        return False
    return accepted == (expected is not None) and next(rest, None) is None


def have_effect(base: Scenario, others: list[Scenario]) -> bool:
    """Whether any of the others decides differently about any of the workloads."""
    text = msgspec.json.encode(to_data(base))
    return not all(
        decides_as(decisions(text, number), other, number)
        for number in range(len(WORKLOADS))
        for other in others
    )


def candidates(struct: object, name: str) -> list[Any]:
    """Values to try for a field."""
    value = getattr(struct, name)
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, tuple):
        return LISTS
    if isinstance(value, str):
        hint = get_type_hints(type(struct), include_extras=True)[name]
        words = get_args(hint) if get_origin(hint) is Literal else ()
        return [word for word in words or ("longest-walltime", "latest-start") if word != value]
    return [number for number in NUMBERS if number != value]


def fields_of(struct: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Fields of a struct and of those in it, with values to try."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from fields_of(value, (*path, name))
        else:
            yield (*path, name), candidates(struct, name)


def cases() -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Scenarios with the parts whose fields are tried."""
    for name in known("scenario"):
        if ":" not in name:
            yield name, {}, ("backfill", "order", "resizing", "selection")
    simple = ["iterations", "statistical", "tsafrir"]  # others need a long history
    for part, names in (("order", known("order")), ("selection", known("selection")),
                        ("estimates", simple)):  # fmt: skip
        for name in names:
            yield "easy", {part: name}, (part, *(("backfill",) if name == "contiguous" else ()))
    for changes in (
        {"backfill.pick": "bl"},
        {"backfill.pick": "bb"},
        {"backfill.pick": "bb", "backfill.reservations": None},
        {"backfill.reservations": 3},
        {"selection": "contiguous", "backfill.kill_at_reservation": True},
        {"selection": "table-first-fit", "backfill.reservations": 3},
        {"order": "aging", "order.qfactor_weight": 0},
    ):
        yield "easy", changes, ("backfill", "order")


IDS = [f"{name} {changes}" for name, changes, _ in cases()]


@pytest.mark.parametrize(("name", "changes", "parts"), list(cases()), ids=IDS)
def test_a_field_has_an_effect_or_is_refused(
    name: str, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    base = scenario(name, changes)
    idle = []
    tried = [field for part in parts for field in fields_of(getattr(base, part) or Sjf(), (part,))]
    for path, values in [*tried, (("backfill_order",), ["fcfs", "sjf", "lxwf", "priority"])]:
        field = ".".join(path)
        if field in ELSEWHERE:
            continue
        accepted = []
        for value in values:
            try:
                accepted.append(changed(base, {field: value}))
            except (ConfigError, ValueError):
                continue
        if accepted and not have_effect(base, accepted):
            idle.append(field)
    assert idle == []


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("easy", {"backfill.reservations": 4, "backfill_order": "sjf"}, "backfill_order: Sjf has"),
        ("conservative", {"backfill_order": "fcfs"}, "scenario conservative: it is used only with"),
        ("easy++", {"backfill.reservations": 4}, "or leave backfill_order at none"),
        ("easy", {"backfill": {"fullness": False}}, "backfill.fullness: false has no effect in"),
        ("fcfs", {"backfill.max_jobs": 7}, "backfill.max_jobs: 7 has no effect in scenario fcfs"),
        ("easy", {"backfill.reserve": "shortage"}, "selection that may refuse, such as contiguous"),
        ("rua", {"backfill.reservations": None}, "backfill.pick: penalty has no effect"),
        ("static", {"order.qfactor_weight": 0, "order.refresh_s": 3}, "order.refresh_s: 3.0 has"),
        ("easy", {"estimates": {"policy": "statistical", "deadlines": {"after": {"power": 3}}}},
         "estimates.deadlines.after.power: 3.0 has no effect"),
    ],
)  # fmt: skip
def test_a_field_without_effect_is_named(name: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UnusedFieldError) as caught:
        scenario(name, changes)
    assert says in str(caught.value)


def test_a_scenario_built_in_python_is_checked() -> None:
    with pytest.raises(UnusedFieldError, match=r"^backfill_order: Sjf has no effect in scenario x"):
        Scenario("x", backfill=Backfill(None), backfill_order=Sjf())
    with pytest.raises(UnusedFieldError, match=r"^queues\.late\.order\.refresh_s: 3 has no effect"):
        Scenario("x", order=Aging(), queues={"late": QueueRules(Aging(0, refresh_s=3))})


class Patient(QueueOrder, msgspec.Struct, frozen=True):
    """Queue order of a user, with a field that depends on another."""

    field_needs: ClassVar = {"hours": Needs(lambda own: own.ages, "with ages true")}
    ages: bool = False
    hours: int = 1

    def key(self, job: Any, now: float) -> float:
        return float(job.queued_at)


def test_a_policy_of_a_user_may_declare_what_its_fields_need() -> None:
    with pytest.raises(
        UnusedFieldError, match=r"^order\.hours: 2 has .* by Patient only with ages"
    ):
        Scenario("x", order=Patient(hours=2))
    assert Scenario("x", order=Patient(ages=True, hours=2)).order == Patient(True, 2)
