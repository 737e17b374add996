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
from pathlib import Path
from typing import Any

import msgspec
import yaml

from reshape.errors import ConfigError
from scheduler.config.checks import check
from scheduler.config.machine_file import Platform
from scheduler.config.machine_file import read as read_platform
from scheduler.config.settings import Deadlines, ServeConfig, Value
from scheduler.model.resources import checked
from scheduler.text.located import Located, Origin, Place
from scheduler.text.times import parse_walltime

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
                seconds = float(value)
            except ValueError:
                try:
                    seconds = parse_walltime(value)
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
