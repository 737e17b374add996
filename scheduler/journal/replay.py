"""Replay: the events of a journal go to a core again, and its orders are compared.

The settings of a journal are what the core of the service decided by, and the network of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import isclose
from typing import Any

import msgspec

import reshape
from scheduler.core.core import Core
from scheduler.journal.journal_format import encode_order
from scheduler.journal.journal_reader import Batch
from scheduler.model.machine import Machine
from scheduler.model.network import decoded
from scheduler.model.orders import Contract, Expand, Order, WakeAt
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import SharedCapacity
from scheduler.policies.containment import description
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import from_data, scenario, source_digests, to_data


def settings_of(core: Core) -> bytes:
    """Encode (JSON) what a core decides by, and the network between its nodes."""
    machine = core.partitions[0].machine
    data: dict[str, Any] = {
        "scenario": to_data(core.scenario),
        "kill_at_walltime": core.kill_at_walltime,
        "release": reshape.__version__,
        "policies": source_digests(core.scenario),
    }
    if machine.space.network is not None:
        data["network"] = msgspec.to_builtins(machine.space.network)
    if machine.shared is not None:
        data["shared"] = {
            "processors_per_node": machine.shared.processors_per_node,
            "amounts": machine.shared.amounts,
            "penalty": machine.shared.penalty_rule,
        }
    if machine.space.network is not None or machine.shared is not None:
        data["places"] = {name: str(part) for name, part in machine.numbering.places.items()}
    return msgspec.json.encode(data)


def machine_of(settings: bytes | None) -> Machine:
    """Build a machine without nodes: the network, places and shared resources of settings."""
    data = msgspec.json.decode(settings or b"{}")
    places = {name: ProcSet.parse(text) for name, text in data.get("places", {}).items()}
    network = decoded(data.get("network"))
    shared = SharedCapacity(**data["shared"]) if "shared" in data else None
    return Machine(network=network, places=places, shared=shared)


def rules_in(settings: bytes) -> tuple[Scenario, bool, Machine]:
    """Return what settings name: scenario, whether walltimes are enforced, and an empty machine.

    Raises
    ------
    ConfigError : they name a policy that is not known here.
    """
    data = msgspec.json.decode(settings)
    return from_data(data["scenario"]), data["kill_at_walltime"], machine_of(settings)


_order = msgspec.json.Decoder(Order)

#: Largest relative difference of two numbers in a reason that counts as rounding.
ROUNDING = 1e-9


def replay(batches: Iterable[Batch], core: Core) -> Iterator[tuple[Batch, list[Order], Core]]:
    """Hand batches to a core, each by the settings of its time.

    Yields
    ------
    each batch with the orders, and the core that gave them; another one after a change of settings.

    Raises
    ------
    ConfigError : the settings name a policy that is not known here.
    """
    for batch in batches:
        if batch.settings is not None:
            rules, kill, _ = rules_in(batch.settings)
            core = core.resumed(rules, kill_at_walltime=kill)
        yield batch, core.handle(batch.events), core


def initial_core(batches: Iterable[Batch]) -> tuple[Core, Iterator[Batch]]:
    """Return a core for the first batch of a journal, without nodes, and all batches."""
    later = iter(batches)
    first = list(islice(later, 1))
    settings = first[0].settings if first else None
    core = Core(scenario("easy"), machine_of(settings), report_error=description)
    return core, chain(first, later)


class Difference(msgspec.Struct, frozen=True):
    """The first order that differs from the recorded one.

    Parameters
    ----------
    batch : its number.
    lines : its events, the recorded order and the replayed order, with their reasons.
    """

    batch: int
    lines: list[str]


class Comparison(msgspec.Struct, frozen=True):
    """The result of a replay.

    Parameters
    ----------
    events, decisions : number of events replayed, and of orders that are identical.
    resizes : number of those orders that start a resize.
    difference : the first order that differs; the replay ends there.
    """

    events: int
    decisions: int
    resizes: int
    difference: Difference | None = None


def compare(batches: Iterable[Batch]) -> Comparison:
    """Replay a journal up to the first difference, or to its end.

    Raises
    ------
    ConfigError : the journal names a policy that is not known here.
    """
    events = decisions = resizes = 0
    same_release = False
    core, batches = initial_core(batches)
    for batch, orders, _ in replay(batches, core):
        events += len(batch.events)
        if batch.settings is not None:
            release = msgspec.json.decode(batch.settings).get("release")
            same_release = release == reshape.__version__
        now = [encode_order(order) for order in orders]
        place = _first_difference(batch.orders, now, numbers=same_release)
        if place is not None:
            recorded = [_order.decode(order) for order in batch.orders[place : place + 1]]
            lines = [f"event  {one_line(event)}" for event in batch.events]
            lines.append(f"then   {one_line(*recorded)}")
            lines.append(f"now    {one_line(*orders[place : place + 1])}")
            difference = Difference(batch.number, lines)
            return Comparison(events, decisions + place, resizes, difference)
        decisions += len(now)
        resizes += sum(isinstance(order, Expand | Contract) for order in orders)
    return Comparison(events, decisions, resizes)


def _first_difference(then: list[bytes], now: list[bytes], *, numbers: bool) -> int | None:
    """Place of the first order that is another decision; None if there is none."""
    if then == now:
        return None
    for place, (old, new) in enumerate(zip(then, now, strict=False)):
        if old != new and not same_decision(old, new, numbers=numbers):
            return place
    return None if len(then) == len(now) else min(len(then), len(now))


def same_decision(recorded: bytes, replayed: bytes, *, numbers: bool) -> bool:
    """Whether two orders are equal apart from the wording and the rounding of their reasons.

    Facts that only one of the two reasons has are not compared.

    Parameters
    ----------
    numbers : whether the facts of the reasons must agree. Another release may predict other
        numbers and still decide the same.
    """
    old, new = msgspec.json.decode(recorded), msgspec.json.decode(replayed)
    reasons = [decision.pop("reason", None) or {} for decision in (old, new)]
    if old != new or not numbers:
        return bool(old == new)
    return _close(*(reason.get("facts", {}) for reason in reasons))


def _close(then: dict[str, Any], now: dict[str, Any]) -> bool:
    return all(
        isclose(value, now[name], rel_tol=ROUNDING)
        if isinstance(value, float) and isinstance(now[name], float)
        else value == now[name]
        for name, value in then.items()
        if name in now
    )


def one_line(what: msgspec.Struct | None = None) -> str:
    """Format an event, an order or a change as one line, its reason last."""
    if what is None:
        return "nothing"
    if isinstance(what, WakeAt):
        return f"WakeAt {what.at:.6f}"
    fields: dict[str, Any] = {
        name: getattr(what, name) for name in what.__struct_fields__ if name != "reason"
    }
    words = " ".join(f"{name}={value}" for name, value in fields.items() if value not in (None, ""))
    reason = getattr(what, "reason", None)
    end = "" if reason is None else f": {reason}"
    return f"{type(what).__name__} {words}".rstrip() + end
