"""Checks of a configuration beyond the types of its fields: names and contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reshape.errors import ConfigError
from reshape.key_values import whole_number
from scheduler.config.partitions import PartitionConfig, shares
from scheduler.config.settings import QueueConfig, ServeConfig
from scheduler.core.core import Core
from scheduler.model.machine import Node
from scheduler.policies.containment import ErrorReporter
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import changed, scenario
from scheduler.text.located import FieldPath, Located
from scheduler.text.used_fields import UnusedFieldError

#: Fields of a scenario that a queue may override.
QUEUE_FIELDS = ("order", "resizing")


def check(tree: Located, config: ServeConfig) -> None:
    """Raise an error if no service can run with a configuration.

    Raises
    ------
    ConfigError : the first error found, with its origin and a way to correct it.
    """
    named: dict[str, Mapping[str, Any]] = {
        "queues": config.queues,
        "users": config.users,
        "priorities": config.priorities,
    }
    for field in named:
        if "" in named[field]:
            tree.fail((field,), "a name is empty: write one, as in batch: {...}")
    _check_listen(tree, config)
    base = _rules(tree, (), config)
    if config.partitions:
        _check_partitions(tree, config, base)
    else:
        _check_redirection(tree, config, base)
    _check_kills(tree, config, base)
    for name, priority in config.priorities.items():
        _check_priority(tree, config, ("priorities", name), priority)
    for name, own in config.users.items():
        _check_priority(tree, config, ("users", name), own)
    _check_queues(tree, config, base)
    try:
        config.composed()
    except ConfigError as error:
        if (error.field or "").startswith("redirection."):
            tree.fail(("parameters", str(error.field)), error.message)
        tree.fail(("queues",), error.message)
    try:
        idle_core(config)
    except ConfigError as error:  # the policies do not fit the machine
        lacks_network = base.selection.network and (
            config.platform is None or config.platform.network is None
        )
        is_parameter = error.field is not None and error.field in config.parameters
        wrong: FieldPath = ("parameters", str(error.field)) if is_parameter else ("scenario",)
        hint = "; name its machine file with machine" if lacks_network else ""
        tree.fail(wrong, f"{error.message}{hint}")


def idle_core(config: ServeConfig, report_error: ErrorReporter | None = None) -> Core:
    """Build the core of a service, with all nodes up and idle.

    Parameters
    ----------
    report_error : reports an error of a processor selection; None lets it out.

    Raises
    ------
    ConfigError : the policies do not go with the machine.
    """
    nodes = [
        Node(own.name, count=own.processors, resources=own.resources, features=own.features)
        for own in config.nodes
    ]
    rules, like = config.composed(), config.machine()
    return Core.on(rules, nodes, like, config.shares(), report_error=report_error)


def parse_listen(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT``; a numeric IPv6 host is in brackets, ``*`` means every interface.

    Raises
    ------
    ConfigError : it has another form, or the port is not between 1 and 65535.
    """
    host, _, port = text.rpartition(":")
    if not host or not whole_number(port, 65535):
        raise ConfigError(
            f"must be HOST:PORT with a port from 1 to 65535, such as 0.0.0.0:7077, got {text!r}",
            field="listen",
        )
    return host, int(port)


def _check_listen(tree: Located, config: ServeConfig) -> None:
    """Agents on other hosts need a TCP socket of the service, and so do those of pools."""
    if config.listen is not None:
        try:
            parse_listen(config.listen)
        except ConfigError as error:
            tree.fail(("listen",), error.message)
        return
    remote = [node.name for node in config.nodes if node.launcher != "local"]
    why = f"node {remote[0]} is on another host, whose agent connects" if remote else ""
    if not config.nodes:
        why = (
            "there is no node; a service without nodes gets them from a pool (reshape pool add),"
            " whose agents connect"
        )
    if why:
        tree.fail(("nodes",), f"{why} over TCP: add listen: HOST:PORT, or --listen HOST:PORT")


def _check_redirection(tree: Located, config: ServeConfig, rules: Scenario) -> None:
    """Check that the machine is large enough for the redirection group, if there is one."""
    if rules.redirection is None:
        return
    try:
        rules.redirection.reserved(config.by_node)
    except ValueError as error:
        names = (f"redirection.{name}" for name in ("processors", "alpha", "theta"))
        field = next((name for name in names if name in config.parameters), "redirection")
        tree.fail(("parameters", field), str(error))


def _check_queues(tree: Located, config: ServeConfig, base: Scenario) -> None:
    """Check the fields of the queues, and that each has users."""
    for name, queue in config.queues.items():
        queue_field = ("queues", name)
        _check_priority(tree, config, (*queue_field, "priority"), queue.priority)
        for parameter in queue.parameters:
            if parameter.partition(".")[0] not in QUEUE_FIELDS:
                tree.fail(
                    (*queue_field, "parameters", parameter),
                    "applies to the whole service, because the queues share one machine; a queue"
                    f" can set only {' and '.join(QUEUE_FIELDS)}",
                )
        _rules(tree, queue_field, queue, base)
        usual_s, longest_s = queue.usual_walltime_s, queue.max_walltime_s
        if longest_s is not None and usual_s > longest_s:
            tree.fail(
                (*queue_field, "default_walltime_s"),
                f"is {usual_s:g} s, above max_walltime_s, {longest_s:g} s: choose a shorter one",
            )
        if queue.users == ():
            tree.fail(
                (*queue_field, "users"),
                "no user could submit to this queue; name a user, or remove the field",
            )


def _check_partitions(tree: Located, config: ServeConfig, base: Scenario) -> None:
    """Check the nodes, limits and scenarios of the partitions."""
    shares(config.partitions, config.by_node, tree.fail)
    for name, own in config.partitions.items():
        above = ("partitions", name)
        _check_kills(tree, config, _rules(tree, above, own, base), above)


def _check_kills(
    tree: Located, config: ServeConfig, rules: Scenario, above: FieldPath = ()
) -> None:
    """Check that jobs can be overdue if overdue jobs are ended at a reservation."""
    if rules.backfill.kill_at_reservation and config.kill_at_walltime:
        tree.fail(
            (*above, "parameters", "backfill.kill_at_reservation"),
            "has no effect, because jobs are ended at their walltimes, so that none is overdue;"
            " leave it out, or set kill_at_walltime: false",
        )


def _check_priority(
    tree: Located, config: ServeConfig, field: FieldPath, priority: float | str
) -> None:
    try:
        config.value_of(priority)
    except ConfigError as error:
        tree.fail(field, str(error))


def _rules(
    tree: Located,
    field: FieldPath,
    own: ServeConfig | PartitionConfig | QueueConfig,
    base: Scenario | None = None,
) -> Scenario:
    """Build the scenario of a service, partition or queue; an error names the wrong parameter.

    Parameters
    ----------
    base : scenario that a partition or queue changes if it names none.
    """
    parameters = own.parameters
    try:
        rules = base if own.scenario is None else scenario(own.scenario)
    except ConfigError as error:
        tree.fail((*field, "scenario"), error.message)
    assert rules is not None  # a service names one
    try:
        return changed(rules, parameters)
    except ConfigError as error:
        combined = error
    if isinstance(combined, UnusedFieldError):
        is_dotted = combined.field in parameters
        steps = (str(combined.field),) if is_dotted else combined.path
        tree.fail((*field, "parameters", *steps), combined.message)
    # Policies come first: other parameters may be fields of a policy that is selected here.
    for name in sorted(parameters, key=lambda name: "." in name):
        try:
            rules = changed(rules, {name: parameters[name]})
        except UnusedFieldError:
            continue  # what it needs may be among the following ones
        except ConfigError as error:
            has_value = ", got " in error.message
            value_text = "" if has_value else f" (given: {parameters[name]!r})"
            tree.fail((*field, "parameters", name), error.message + value_text)
    tree.fail((*field, "parameters"), str(combined))
