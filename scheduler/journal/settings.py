"""Settings in a journal: what the core of a service decides by, and the network of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

import reshape
from scheduler.model.machine import Machine
from scheduler.model.networks.network import decoded
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import SharedCapacity
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import from_data, source_digests, to_data

if TYPE_CHECKING:
    from scheduler.core.core import Core


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


def scenario_of(settings: bytes) -> tuple[Scenario, bool, Machine]:
    """Return what settings name: scenario, whether walltimes are enforced, and an empty machine.

    Raises
    ------
    ConfigError : they name a policy that is not known here.
    """
    data = msgspec.json.decode(settings)
    return from_data(data["scenario"]), data["kill_at_walltime"], machine_of(settings)


def is_of_this_release(settings: bytes) -> bool:
    """Whether the installed release of ReSHAPE wrote settings."""
    return bool(msgspec.json.decode(settings).get("release") == reshape.__version__)
