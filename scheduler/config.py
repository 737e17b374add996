"""Configuration of a service: defaults < YAML file < environment < options.

Whatever the source, a value ends in one tree of plain values with a note of where each came from.
The tree is checked once, by the types of :class:`ServeConfig`; what is wrong is told with its
source, line and field.

A file may look like this (every field is optional):

.. code-block:: yaml

    processors: 8             # short for one node named "local"
    # nodes: [{name: n1, processors: 4, resources: {memory_gib: 64}}, {name: n2, processors: 4}]
    # machine: tree.yaml      # or nodes, their resources and a network from a machine file
    priorities: {gold: 100, platinum: 1000}
    users: {ann: platinum}
    queues:
      main:
      express: {priority: gold, max_processors: 4, max_walltime_s: "10:00", scenario: max-b-pr}
    scenario: fcfs-pr
    parameters: {backfill.reservations: 1}
    redirection: {theta: 10, alpha: 0.15}   # short for parameters: {redirection: ...}
    verify: true
    deadlines: {start_s: 60, join_s: "0:15"}

In the environment the same fields are RESHAPE_PROCESSORS, RESHAPE_MACHINE, RESHAPE_SCENARIO,
RESHAPE_VERIFY, RESHAPE_KILL_AT_WALLTIME and RESHAPE_DEADLINES_JOIN_S and its like. Text found
there, and that of ``--set``, is read as a YAML value. A machine file named in a file is looked for
beside it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import yaml

from reshape.errors import ConfigError, nearest
from scheduler.config_checks import check
from scheduler.core.machine import Machine, Node
from scheduler.core.network import Tree
from scheduler.core.procset import ProcSet
from scheduler.core.redirecting import Redirecting
from scheduler.core.resources import checked
from scheduler.located import Located, Origin, Place
from scheduler.platform import Platform
from scheduler.platform import read as read_platform
from scheduler.policies.priorities import CLASSES
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.scenarios import changed, from_data, scenario, to_data
from scheduler.times import parse_walltime

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

    def idle(self) -> Redirecting:
        """Core that would run with these settings, all nodes there and idle."""
        nodes = [Node(n.name, count=n.processors, resources=n.resources) for n in self.nodes]
        return Redirecting.on(self.composed(), nodes, self.machine())

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


#: Ways to say which nodes there are, of which one is enough.
_OF_NODES = ("processors", "machine", "nodes")
#: Name of the node that `processors: 8` stands for.
LOCAL = "local"
_DURATIONS: tuple[Place, ...] = tuple(
    ("deadlines", name) for name in Deadlines.__struct_fields__ if name.endswith("_s")
)
_ENVIRONMENT: dict[str, Place] = {
    "RESHAPE_PROCESSORS": ("processors",),
    "RESHAPE_MACHINE": ("machine",),
    "RESHAPE_SCENARIO": ("scenario",),
    "RESHAPE_VERIFY": ("verify",),
    "RESHAPE_KILL_AT_WALLTIME": ("kill_at_walltime",),
    **{f"RESHAPE_DEADLINES_{n.upper()}": ("deadlines", n) for n in Deadlines.__struct_fields__},
}


def load_config(
    file: Path | None, environment: Mapping[str, str], options: Mapping[str, Any]
) -> ServeConfig:
    """Put the configuration of a service together: defaults < file < environment < options.

    Parameters
    ----------
    file : YAML file, or None.
    environment : such as `os.environ`; other variables are ignored.
    options : field -> value, None where the option was not given; `set` holds the texts
        ``key=value`` that name parameters of the scenario.

    Raises
    ------
    ConfigError : names source, line and field, the value and the mend.
    """
    tree = Located.read(file) if file is not None else Located()
    _one_way_to_say_nodes(tree)
    _flatten_parameters(tree)
    queues = tree.values.get("queues")
    if isinstance(queues, dict):
        for queue in queues:
            if queues[queue] is None:  # a name and nothing below it: a queue without rules
                queues[queue] = {}
            _flatten_parameters(tree, ("queues", queue))
    for variable, place in _ENVIRONMENT.items():
        if variable in environment:
            origin = Origin(f"environment variable {variable}")
            _lay(tree, place, _scalar(environment[variable], origin), origin)
    for name, value in options.items():
        if name != "set" and value is not None:
            _lay(tree, (name,), value, Origin(f"option --{name.replace('_', '-')}"))
    for text in options.get("set") or ():
        key, equals, value = text.partition("=")
        origin = Origin(f"option --set {text}")
        if not equals or not key:
            raise ConfigError("write it as key=value", file=origin.source)
        _lay(tree, ("parameters", key.strip()), _scalar(value, origin), origin)
    platform = _expand_machine(tree)
    _expand_processors(tree)
    _read_durations(tree)
    config = tree.convert(ServeConfig, also=("processors", "machine", "redirection"))
    names = [node.name for node in config.nodes]
    for i, name in enumerate(names):
        if name in names[:i]:
            tree.fail(("nodes", i, "name"), f"two nodes are named {name!r}; rename one")
        try:
            checked(config.nodes[i].resources)
        except ValueError as error:
            tree.fail(("nodes", i, "resources"), str(error))
    if platform is not None and platform.tree is not None:
        network, places = platform.tree, platform.places
        config = msgspec.structs.replace(config, network=network, places=places)
    check(tree, config)
    return config


def _lay(tree: Located, place: Place, value: Any, origin: Origin) -> None:
    """Lay a value over the tree; of `processors`, `machine` and `nodes` the later one counts."""
    if place == ("parameters", "redirection"):  # it can only be none now, whatever was said of it
        below = [name for name in tree.values["parameters"] if name.startswith("redirection.")]
        for name in below:
            del tree.values["parameters"][name]
    if place[0] in _OF_NODES:
        for name in _OF_NODES:
            tree.values.pop(name, None)
    tree.put(place, value, origin)


def _scalar(text: str, origin: Origin) -> Any:
    """Read text from outside a file as YAML does, so that 8, true and null mean the same there."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = ...
    if not isinstance(value, Value):
        raise ConfigError(f"must be one value, got {text!r}", file=origin.source)
    return value


def _one_way_to_say_nodes(tree: Located) -> None:
    given = [name for name in _OF_NODES if name in tree.values]
    if len(given) > 1:
        tree.fail((given[0],), f"give either {given[0]} or {given[1]}, not both: each names nodes")
    for name in ("network", "places"):
        if name in tree.values:
            tree.fail((name,), "stands in a machine file; name that with machine")


def _expand_machine(tree: Located) -> Platform | None:
    """Write the nodes of a machine file as `nodes`."""
    place = ("machine",)
    said, origin = tree.values.pop("machine", None), tree.origin(place)
    if said is None:
        return None
    if not isinstance(said, str | Path):
        tree.fail(place, f"must be the name of a file, got {said!r}")
    beside = Path(origin.source or "").parent if origin.line is not None else Path()
    platform = read_platform(beside / said)
    if platform.exclusive:
        tree.fail(
            place,
            f"{beside / said} says exclusive, which only the simulator can do: a live job has a"
            " process on each processor it gets; ask for whole nodes with -n",
        )
    held = {"processors": platform.processors_per_node, "resources": platform.resources_per_node}
    tree.put(("nodes",), [{"name": name, **held} for name in platform.places], origin)
    return platform


def _expand_processors(tree: Located) -> None:
    """Write `processors: 8` as one node; without nodes, offer what this process may use."""
    if "nodes" in tree.values:
        return
    place = ("processors",)
    value = tree.values.pop("processors", None)
    count = len(os.sched_getaffinity(0)) if value is None else value
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        tree.fail(place, f"must be a whole number >= 1, got {count!r}")
    origin = tree.origin(place)
    tree.put(("nodes",), [{"name": LOCAL, "processors": count}], origin)


def _read_durations(tree: Located) -> None:
    """Replace times written as 10:00 by seconds."""
    queues = tree.values.get("queues")
    named = queues if isinstance(queues, dict) else ()
    longest = [("queues", queue, "max_walltime_s") for queue in named]
    for place in (*_DURATIONS, *longest):
        value = tree.get(place)
        if isinstance(value, str):
            try:
                seconds = parse_walltime(value) if ":" in value or "-" in value else float(value)
            except ValueError as error:
                tree.fail(place, f"{error}, or a number of seconds")
            tree.put(place, seconds, tree.origin(place))


def _flatten_parameters(tree: Located, above: Place = ()) -> None:
    """Write the nested parameters at a place with dotted names, each with its line.

    `redirection` at the top stands for the parameters of that name.
    """
    here = tree.get(above) if above else tree.values
    if not isinstance(here, dict):
        return
    flat: dict[str, Any] = {}
    pending: list[tuple[tuple[str, ...], Place, Any]] = []
    nested = here.pop("parameters", {})
    if not isinstance(nested, dict):
        tree.fail((*above, "parameters"), f"must be a mapping of fields to values, got {nested!r}")
    pending += [((name,), (*above, "parameters", name), value) for name, value in nested.items()]
    if not above and "redirection" in tree.values:
        top = tree.values.pop("redirection")
        pending.append((("redirection",), ("redirection",), top))
    while pending:
        steps, place, value = pending.pop(0)
        if isinstance(value, dict):
            pending += [((*steps, name), (*place, name), below) for name, below in value.items()]
            continue
        if not isinstance(value, Value):
            tree.fail(place, f"must be one value, got {value!r}")
        name = ".".join(map(str, steps))
        if name in flat:
            tree.fail(place, f"is given under parameters too, as {name}; keep one")
        flat[name] = (value, tree.origin(place))
    here["parameters"] = {}
    for name, (value, origin) in flat.items():
        tree.put((*above, "parameters", name), value, origin)


def reserved(config: ServeConfig) -> dict[str, int]:
    """Processors that belong to the redirection group, by node; none if there is no such group."""
    rule = scenario(config.scenario, config.parameters).redirection
    return {} if rule is None else rule.reserved(config.by_node)
