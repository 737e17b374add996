"""What a service runs with: its nodes, queues, users, scenario and deadlines."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, TypeAlias

import msgspec

from reshape.errors import ConfigError, nearest
from scheduler.model.machine import Machine, Node
from scheduler.model.network import Tree
from scheduler.model.procset import ProcSet
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.scenarios import changed, from_data, scenario, to_data
from scheduler.sites.two_groups import TwoGroupSite

Value: TypeAlias = bool | int | float | str | None
Count = Annotated[int, msgspec.Meta(ge=1)]
Amount = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
#: A node's name becomes part of file names.
NodeName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node, the processors it offers, and what else it holds, by name."""

    name: NodeName
    processors: Count
    resources: dict[str, Amount] = {}


class Deadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a resize may take, in seconds.

    Parameters
    ----------
    start_s : from the decision until a new group is up.
    ready_s : how long a new group waits for the job's next resize point; at least ten iterations.
    join_s : from the beginning of a join (or leave) to its commit, without the data.
    move_bytes_per_s : slowest rate at which data may move; bytes / rate is added to `join_s`.
    exit_s : for the processes of a group that left to be gone.
    """

    start_s: Positive = 60.0
    ready_s: Positive = 60.0
    join_s: Positive = 15.0
    move_bytes_per_s: Positive = 50e6
    exit_s: Positive = 10.0


class QueueConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named queue: who may submit to it what, how urgent it is, and how its jobs are resized.

    Parameters
    ----------
    priority : added to the user-assigned priority of its jobs; a number, or a name of `priorities`.
    max_processors : most processors a job may start on, and grow to.
    max_walltime_s : longest walltime of a job, seconds.
    users : who may submit to it; None: everybody.
    scenario : whose order and resizing policy its jobs follow; None: the server's. Backfilling and
        the choice of processors are the server's, since the queues share one machine.
    parameters : values for the fields `order` and `resizing` of that scenario.
    """

    priority: float | str = 0.0
    max_processors: Count | None = None
    max_walltime_s: Positive | None = None
    users: tuple[str, ...] | None = None
    scenario: str | None = None
    parameters: dict[str, Value] = {}


class ServeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `reshape serve` runs with.

    Parameters
    ----------
    nodes : nodes with an agent each, all on this machine.
    scenario : name of a registered scenario.
    parameters : values for the scenario's fields, by dotted name.
    kill_at_walltime : end jobs that pass their walltime.
    priorities : named user-assigned priorities, such as gold and platinum (PRIO 4.4).
    users : highest priority of each user's jobs, which they have unless a submission asks for less;
        a number or a name. Empty: everybody may ask for anything. Otherwise whoever is not in it
        has 0.
    queues : named queues; the first is that of a submission that names none.
    verify : check every registered array by checksum around every move.
    network : how the nodes hang together; places : the processor numbers of each node in it. Both
        come from a machine file (`machine` in a configuration) alone.
    """

    nodes: Annotated[tuple[NodeConfig, ...], msgspec.Meta(min_length=1)]
    scenario: str = "fcfs-pr"
    parameters: dict[str, Value] = {}
    kill_at_walltime: bool = True
    verify: bool = False
    deadlines: Deadlines = Deadlines()
    priorities: dict[str, float] = msgspec.field(default_factory=CLASSES.copy)
    users: dict[str, float | str] = {}
    queues: Annotated[dict[str, QueueConfig], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: {"main": QueueConfig()}
    )
    network: Tree | None = None
    places: dict[str, ProcSet] = {}

    @property
    def by_node(self) -> dict[str, int]:
        """Processors of the nodes, by name."""
        return {node.name: node.processors for node in self.nodes}

    @property
    def processors(self) -> int:
        """Processors of all nodes."""
        return sum(self.by_node.values())

    def machine(self) -> Machine:
        """Machine of this network for a core, no node there yet."""
        return Machine(network=self.network, places=self.places)

    def idle(self) -> TwoGroupSite:
        """Core that would run with these settings, all nodes there and idle."""
        nodes = [Node(n.name, count=n.processors, resources=n.resources) for n in self.nodes]
        return TwoGroupSite.on(self.composed(), nodes, self.machine())

    def value_of(self, priority: float | str) -> float:
        """Number of a priority, which may be given by its name.

        Raises
        ------
        ConfigError : there is none of this name; the nearest is offered.
        """
        if isinstance(priority, str):
            if priority not in self.priorities:
                raise ConfigError(
                    f"there is no priority {priority!r}{nearest(priority, self.priorities)}"
                )
            priority = self.priorities[priority]
        if not isfinite(priority):
            raise ConfigError(f"a priority must be a finite number, got {priority}")
        return priority

    def composed(self) -> Scenario:
        """Scenario with its parameters, and the rules of the queues that have their own.

        Raises
        ------
        ConfigError : a name or a parameter is wrong, or they contradict each other.
        """
        made = scenario(self.scenario, self.parameters)
        queues = {}
        for name, queue in self.queues.items():
            if queue.scenario is not None or queue.parameters:
                base = made if queue.scenario is None else scenario(queue.scenario)
                own = changed(base, queue.parameters)
                queues[name] = QueueRules(own.order, own.resizing)
        return from_data(to_data(msgspec.structs.replace(made, queues=queues)))


def reserved(config: ServeConfig) -> dict[str, int]:
    """Processors that belong to the redirection group, by node; none if there is no such group."""
    rule = scenario(config.scenario, config.parameters).redirection
    return {} if rule is None else rule.reserved(config.by_node)
