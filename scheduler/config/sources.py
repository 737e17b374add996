"""Configuration of a service: defaults < YAML file < options.

The values of all sources are merged into one tree that records the origin of each value. The tree
is checked once, against the types of :class:`ServeConfig`. Error messages name source, line and
field.

The values of ``--set`` are parsed as YAML. The path of a machine file in a configuration file is
relative to the configuration file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from reshape.errors import ConfigError
from reshape.key_values import key_value
from scheduler.config.checks import check
from scheduler.config.machine_file import Platform
from scheduler.config.machine_file import read as read_platform
from scheduler.config.settings import Deadlines, ServeConfig
from scheduler.config.values import Value, check_parameters, read_duration, read_named
from scheduler.model.requests import feature_fault
from scheduler.model.resources import checked
from scheduler.text.located import FieldPath, Located, Origin, value_of

#: Fields that define the nodes; a configuration uses one of them.
_NODE_FIELDS = ("processors", "machine", "nodes")
#: Name of the node that `processors: 8` defines.
LOCAL = "local"
_DURATIONS: tuple[FieldPath, ...] = (
    ("kill_wait_s",),
    *(("deadlines", name) for name in Deadlines.__struct_fields__ if name.endswith("_s")),
)


def load_config(file: Path | None, options: Mapping[str, Any]) -> ServeConfig:
    """Merge the configuration of a service: defaults < file < options.

    Parameters
    ----------
    file : YAML file, or None.
    options : field -> value, None if the option was not given; `set` holds texts ``key=value`` that
        set parameters of the scenario, `nodes` those of a Slurm allocation, and `own_address` is
        the value of `listen` if no source gives one.

    Raises
    ------
    ConfigError : the configuration is invalid; the message names source, line, field and value,
        and says how to correct it.
    """
    tree = Located.read(file) if file is not None else Located()
    _check_single_node_field(tree)
    if "redirection" in tree.values:
        tree.fail(
            ("redirection",),
            "is a field of the scenario: write its fields under parameters, as in"
            " parameters: {redirection.theta: 10}",
        )
    check_parameters(tree, ())
    read_named(tree, "queues")
    read_named(tree, "partitions")
    _override_all(tree, options)
    platform = _expand_machine(tree)
    _expand_processors(tree)
    for field in _DURATIONS:
        read_duration(tree, field)
    config = tree.convert(ServeConfig, also=("processors", "machine"))
    _check_nodes(tree, config)
    if platform is not None and (platform.network is not None or platform.shared_per_node):
        config = msgspec.structs.replace(config, platform=platform)
    check(tree, config)
    return config


def _override_all(tree: Located, options: Mapping[str, Any]) -> None:
    """Override the values of a file by those of options."""
    for name, value in options.items():
        if name not in ("set", "own_address") and value is not None:
            option = "slurm" if name == "nodes" else name.removesuffix("_s").replace("_", "-")
            _override(tree, (name,), value, Origin(f"option --{option}"))
    for text in options.get("set") or ():
        origin = Origin(f"option --set {text}")
        try:
            key, value = key_value(text)
        except ValueError as error:
            raise ConfigError(str(error), file=origin.source) from None
        _override(tree, ("parameters", key), _scalar(value, origin), origin)
    if "own_address" in options and tree.values.get("listen") is None:
        tree.override(("listen",), options["own_address"], Origin("option --slurm"))


def _check_nodes(tree: Located, config: ServeConfig) -> None:
    """Check the names of the nodes, of their further resources and of their features."""
    names = [node.name for node in config.nodes]
    for i, name in enumerate(names):
        if name in names[:i]:
            tree.fail(("nodes", i, "name"), f"two nodes are named {name!r}; rename one")
        try:
            checked(config.nodes[i].resources)
        except ValueError as error:
            tree.fail(("nodes", i, "resources"), str(error))
        for feature in config.nodes[i].features:
            if (wrong := feature_fault(feature)) is not None:
                tree.fail(("nodes", i, "features"), f"{feature!r} {wrong}")


def _override(tree: Located, field: FieldPath, value: Any, origin: Origin) -> None:
    """Override a value; of `processors`, `machine` and `nodes` the last one given counts."""
    if field == ("parameters", "redirection"):  # null: drop the fields of lower sources
        parameters = tree.values.get("parameters", {})
        for name in [name for name in parameters if name.startswith("redirection.")]:
            del parameters[name]
    if field[0] in _NODE_FIELDS:
        for name in _NODE_FIELDS:
            tree.values.pop(name, None)
    tree.override(field, value, origin)


def _scalar(text: str, origin: Origin) -> Any:
    """Parse text from outside a file as YAML, so that 8, true and null mean the same everywhere."""
    try:
        value = value_of(text)
    except ConfigError:
        value = ...
    if not isinstance(value, Value):
        raise ConfigError(f"must be one value, got {text!r}", file=origin.source)
    return value


def _check_single_node_field(tree: Located) -> None:
    node_fields = [name for name in _NODE_FIELDS if name in tree.values]
    if len(node_fields) > 1:
        tree.fail(
            (node_fields[0],),
            f"give either {node_fields[0]} or {node_fields[1]}, not both: each defines the nodes",
        )
    for name in ("platform", "network", "shared_per_node", "shared_penalty"):
        if name in tree.values:
            tree.fail((name,), "is read from a machine file; give its path in the field machine")


def _expand_machine(tree: Located) -> Platform | None:
    """Replace `machine` by the nodes of that machine file."""
    field = ("machine",)
    path, origin = tree.values.pop("machine", None), tree.origin(field)
    if path is None:
        return None
    if not isinstance(path, str | Path):
        tree.fail(field, f"must be the path of a file, got {path!r}")
    folder = Path(origin.source or "").parent if origin.line is not None else Path()
    platform = read_platform(folder / path)
    if platform.exclusive:
        tree.fail(
            field,
            f"{folder / path} has exclusive: true, which only the simulator supports: a live job"
            " runs a process on each of its processors; request whole nodes with -n",
        )
    contents = {
        "processors": platform.processors_per_node,
        "resources": platform.resources_per_node,
        "launcher": platform.launcher,
    }
    nodes = [
        {"name": name, **contents, "features": platform.features_of(name)}
        for name in platform.places
    ]
    tree.override(("nodes",), nodes, origin)
    if platform.partitions:
        if "partitions" in tree.values:
            tree.fail(
                ("partitions",), f"{folder / path} names partitions too: leave them out of one"
            )
        tree.override(("partitions",), msgspec.to_builtins(platform.partitions), origin)
    return platform


def _expand_processors(tree: Located) -> None:
    """Replace `processors: 8` by one node; its default is the number of CPUs of this process."""
    if "nodes" in tree.values:
        return
    field = ("processors",)
    value = tree.values.pop("processors", None)
    count = len(os.sched_getaffinity(0)) if value is None else value
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        tree.fail(field, f"must be a whole number >= 0, got {count!r}")
    origin = tree.origin(field)
    if count >= 2**31:
        tree.fail(field, f"must be below 2**31, got {count}")
    nodes = [{"name": LOCAL, "processors": count}] if count else []
    tree.override(("nodes",), nodes, origin)
