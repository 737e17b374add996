"""Configuration of a service: nodes, queues, users, scenario and deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import Annotated, Literal, TypeAlias

import msgspec

from reshape.errors import ConfigError, nearest
from scheduler.config.machine_file import Launcher, Platform
from scheduler.config.partitions import PartitionConfig, Shares, shares, with_partitions
from scheduler.config.values import Amount, Count, Positive, Value
from scheduler.model.arrays import MOST_TASKS
from scheduler.model.events import REDIRECTION
from scheduler.model.machine import Machine
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.scenarios import changed, from_data, scenario, to_data
from scheduler.protocol.job_requests import DEFAULT_WALLTIME_S

Binding: TypeAlias = Literal["hosts", "all", "none"]
#: File names contain the names of nodes.
NodeName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]

#: It must not look like an option of ssh.
HostName = Annotated[str, msgspec.Meta(pattern=r"^([^-\s][^\s]*)?$", max_length=255)]


class NodeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node of a service.

    Parameters
    ----------
    name : letters, digits, points, hyphens and underscores; its first character is a letter or a
        digit.
    processors : number of its processors.
    resources : amounts of other resources, by name.
    features : what jobs may request of their nodes, such as gpu.
    launcher : how its agent is started: "local", on the host of the service; "ssh", on another
        host; "slurm", on a node of the Slurm allocation of the service; "none", by hand.
    host : destination of ssh, or the name of the node in Slurm; empty: the name of the node.
    until : time at which the node is given back, Unix time in seconds; None: it stays.
    """

    name: NodeName
    processors: Count
    resources: dict[str, Amount] = {}
    launcher: Launcher = "local"
    host: HostName = ""
    until: Positive | None = None
    features: tuple[str, ...] = ()


class Deadlines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time limits of the phases of a resize and of an agent's silence, in seconds.

    Parameters
    ----------
    start_s : from the decision until the new group has started.
    ready_s : how long a new group waits for the next resize point of the job. At least ten
        iterations are always allowed.
    join_s : from the restart point of a join (or leave) to its commit, without moving the data.
        What a program closes before, by functions of `Application.each_size`, has no time limit.
    move_bytes_per_s : lowest acceptable rate of moving data; bytes / rate is added to `join_s`. The
        bytes are those of the arrays and of the pickled `app.state`.
    exit_s : for the processes of a group that left to end.
    node_lost_s : how long an agent may be silent before its node counts as lost.
    heartbeat_s : how often an agent on another host reports without a change.
    """

    start_s: Positive = 60.0
    ready_s: Positive = 60.0
    join_s: Positive = 15.0
    move_bytes_per_s: Positive = 50e6
    exit_s: Positive = 10.0
    node_lost_s: Positive = 60.0
    heartbeat_s: Positive = 1.0


class JournalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the journal of a service keeps.

    Parameters
    ----------
    keep_resize_points : number of latest events of which resize points are kept with the decision
        to continue; everything else is kept.
    keep_days : days for which ended jobs are kept; None: forever.
    """

    keep_resize_points: Amount = 200_000
    keep_days: Positive | None = None


class PassConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of a scheduling pass of a service.

    Parameters
    ----------
    max_jobs : depth of the passes of scenarios that reserve starts for more than one queued job, or
        reserve on a reservation table, unless `parameters` has ``backfill.max_jobs``; None: no
        bound. Other passes find their jobs by an index of the queue or by groups of equal requests.
    longest_s : longest processor time of a decision, s. After a longer one the depth of passes is
        reduced; see `scheduler.service.driver`. None: no bound.
    """

    max_jobs: Count | None = 1000
    longest_s: Positive | None = 0.05


class QueueConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named queue: its users, limits, priority, and the order and resizing policy of its jobs.

    Parameters
    ----------
    priority : added to the user-assigned priority of its jobs; a number, or a name of `priorities`.
    max_processors : largest number of processors of a job, at its start and after expansions.
    max_walltime_s : longest walltime of a job, in seconds.
    default_walltime_s : walltime of jobs that request none, in seconds; None: one hour, or
        `max_walltime_s` if that is shorter.
    users : users who may submit to the queue; None: all users.
    scenario : name of the scenario whose queue order and resizing policy apply; None: that of the
        service. Backfilling and processor selection are always those of the service, because the
        queues share one machine.
    parameters : values for the fields `order` and `resizing` of that scenario.
    """

    priority: float | str = 0.0
    max_processors: Count | None = None
    max_walltime_s: Positive | None = None
    default_walltime_s: Positive | None = None
    users: tuple[str, ...] | None = None
    scenario: str | None = None
    parameters: dict[str, Value] = {}

    @property
    def usual_walltime_s(self) -> float:
        """Walltime of jobs that request none, in seconds."""
        return self.default_walltime_s or min(DEFAULT_WALLTIME_S, self.max_walltime_s or inf)


class ServeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `reshape serve` runs with.

    Parameters
    ----------
    nodes : the nodes, each with an agent, on this host or on another. A service may have none,
        and get all of its nodes from elastic pools.
    scenario : name of a registered scenario.
    parameters : values for the scenario's fields, by dotted name.
    kill_at_walltime : whether to end jobs that exceed their walltime.
    kill_wait_s : time in seconds from SIGTERM to SIGKILL for a job that is cancelled or exceeds its
        walltime.
    priorities : named user-assigned priorities, such as gold and platinum (PRIO 4.4).
    users : highest priority of the jobs of each user, a number or a name. It applies unless a
        submission requests a lower one. Users who are not listed have 0. If the mapping is empty,
        every user may request any priority.
    queues : named queues; the first one takes submissions that name no queue.
    partitions : named partitions of the nodes; the first one takes submissions that name none, and
        the nodes of pools. Empty: all nodes are in one partition without a name.
    verify : whether to verify all registered data by checksums around every move.
    deadlines : time limits of the phases of a resize and of an agent's silence.
    journal : what the journal keeps.
    passes : bounds of a scheduling pass.
    max_array_tasks : largest number of tasks of an array.
    performance_models : classes, ``module:Class``, that submissions may name as performance models.
    platform : the machine file, if it describes a network or what processes share; None: flat.
    listen : ``HOST:PORT`` of a TCP socket besides that in the service directory; None: none.
    allow_root : whether a service of root may listen; its jobs, and so its keys, have all rights.
    ssh : command for nodes with the launcher ssh, with options such as ``-F FILE``.
    binding : nodes on which ranks are bound to the CPUs of their processors: "hosts", those on
        other hosts than the service; "all"; "none". See `scheduler.service.components.placements`.
    """

    nodes: tuple[NodeConfig, ...]
    scenario: str = "malleable"
    parameters: dict[str, Value] = {}
    kill_at_walltime: bool = True
    kill_wait_s: Positive = 30.0
    verify: bool = False
    deadlines: Deadlines = Deadlines()
    priorities: dict[str, float] = msgspec.field(default_factory=CLASSES.copy)
    users: dict[str, float | str] = {}
    queues: Annotated[dict[str, QueueConfig], msgspec.Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: {"main": QueueConfig()}
    )
    partitions: dict[str, PartitionConfig] = {}
    journal: JournalConfig = JournalConfig()
    passes: PassConfig = PassConfig()
    max_array_tasks: Annotated[int, msgspec.Meta(ge=1, le=MOST_TASKS)] = 100_000
    performance_models: tuple[str, ...] = ()
    platform: Platform | None = None
    listen: str | None = None
    allow_root: bool = False
    ssh: Annotated[str, msgspec.Meta(min_length=1)] = "ssh"
    binding: Binding = "hosts"

    @property
    def by_node(self) -> dict[str, int]:
        """Number of processors of each node, by name."""
        return {node.name: node.processors for node in self.nodes}

    @property
    def processors(self) -> int:
        """Number of processors of all nodes."""
        return sum(self.by_node.values())

    def machine(self) -> Machine:
        """Build the machine of the platform, on which no node is up yet."""
        own = self.platform
        if own is None:
            return Machine()
        return Machine(network=own.network, places=own.places, shared=own.shared)

    def shares(self) -> Shares:
        """Divide the processors of the nodes among partitions and the redirection group.

        Raises
        ------
        ConfigError : the partitions do not go with the nodes.
        ValueError : the machine is too small for the redirection group.
        """
        if self.partitions:
            return shares(self.partitions, self.by_node)
        rule = scenario(self.scenario, self.parameters).redirection
        reserved = {} if rule is None else rule.reserved(self.by_node)
        return {node: {REDIRECTION: count} for node, count in reserved.items()}

    def value_of(self, priority: float | str) -> float:
        """Convert a priority, which may be given by name, to a number.

        Raises
        ------
        ConfigError : no priority has this name (the message suggests the nearest), or it is not
            finite.
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
        """Build the scenario with its parameters and the rules of the queues that override it.

        Raises
        ------
        ConfigError : a name or a parameter is invalid, or two of them contradict each other.
        """
        base = scenario(self.scenario, self.parameters)
        made = self._with_queues(self._bounded(base, self.parameters))
        rules = {
            name: self._with_queues(self._bounded(own.rules(base), self._parameters(own)))
            for name, own in self.partitions.items()
        }
        return from_data(to_data(with_partitions(made, rules)))

    def _parameters(self, own: PartitionConfig) -> dict[str, Value]:
        """Parameters of the scenario of a partition."""
        return (self.parameters if own.scenario is None else {}) | own.parameters

    def _with_queues(self, made: Scenario) -> Scenario:
        """Add the rules of the queues to the scenario of a partition."""
        queues = {}
        for name, queue in self.queues.items():
            if queue.scenario is not None or queue.parameters:
                base = made if queue.scenario is None else scenario(queue.scenario)
                own = changed(base, queue.parameters)
                queues[name] = QueueRules(own.order, own.resizing)
        return msgspec.structs.replace(made, queues=queues)

    def _bounded(self, made: Scenario, parameters: Mapping[str, Value]) -> Scenario:
        """Bound the depth of passes, unless the scenario does or its passes are short."""
        backfill, depth = made.backfill, self.passes.max_jobs
        many = backfill.reservations is None or backfill.reservations > 1
        many = many or (backfill.reservations == 1 and made.selection.searches_table)
        if not many or "backfill.max_jobs" in parameters:
            return made
        bounded = msgspec.structs.replace(backfill, max_jobs=backfill.max_jobs or depth)
        return msgspec.structs.replace(made, backfill=bounded)
