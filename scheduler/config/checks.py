"""Checks of a configuration beyond the types of its fields: names, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reshape.errors import ConfigError
from scheduler.config.settings import ServeConfig
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import changed, scenario
from scheduler.text.located import Located, Place

#: Fields of a scenario that a queue may have its own of.
OF_A_QUEUE = ("order", "resizing")


def check(tree: Located, config: ServeConfig) -> None:
    """Refuse a configuration that no service could run with.

    Raises
    ------
    ConfigError : the first fault, with its place and its mend.
    """
    base = _scenario(tree, (), config.scenario, config.parameters)
    _redirection(tree, config, base)
    for name in config.priorities:
        _priority(tree, config, ("priorities", name), config.priorities[name])
    for name in config.users:
        _priority(tree, config, ("users", name), config.users[name])
    for name, queue in config.queues.items():
        place = ("queues", name)
        _priority(tree, config, (*place, "priority"), queue.priority)
        for parameter in queue.parameters:
            if parameter.partition(".")[0] not in OF_A_QUEUE:
                tree.fail(
                    (*place, "parameters", parameter),
                    "belongs to the whole service, because the queues share one machine; a queue"
                    f" has its own {' and '.join(OF_A_QUEUE)} alone",
                )
        if queue.scenario is not None:
            _scenario(tree, place, queue.scenario, queue.parameters)
        else:
            _parameters(tree, place, base, queue.parameters)
        if queue.users == ():
            tree.fail((*place, "users"), "nobody could submit; name somebody, or leave it out")
    try:
        config.composed()
    except ConfigError as error:
        tree.fail(("queues",), error.message)
    try:
        config.idle()
    except ConfigError as error:  # the policies and the machine do not go together
        needs_network = getattr(base.selection, "needs_network", False)
        lacks_network = needs_network and config.network is None
        given = error.field is not None and error.field in config.parameters
        wrong: Place = ("parameters", str(error.field)) if given else ("scenario",)
        hint = "; name its machine file with machine" if lacks_network else ""
        tree.fail(wrong, f"{error.message}{hint}")


def _redirection(tree: Located, config: ServeConfig, chosen: Scenario) -> None:
    """Check that the machine is large enough for a redirection group."""
    if chosen.redirection is None:
        return
    try:
        chosen.redirection.reserved(config.by_node)
    except ValueError as error:
        names = (f"redirection.{name}" for name in ("processors", "alpha", "theta"))
        given = next((name for name in names if name in config.parameters), "redirection")
        tree.fail(("parameters", given), str(error))


def _priority(tree: Located, config: ServeConfig, place: Place, priority: float | str) -> None:
    try:
        config.value_of(priority)
    except ConfigError as error:
        tree.fail(place, str(error))


def _scenario(tree: Located, place: Place, name: str, parameters: Mapping[str, Any]) -> Scenario:
    """Try a scenario and its parameters; if they will not do, find the one that is wrong."""
    try:
        base = scenario(name)
    except ConfigError as error:
        tree.fail((*place, "scenario"), error.message)
    return _parameters(tree, place, base, parameters)


def _parameters(
    tree: Located, place: Place, base: Scenario, parameters: Mapping[str, Any]
) -> Scenario:
    try:
        return changed(base, parameters)
    except ConfigError as error:
        together = error
    # The policies come first: other parameters may belong to one that is chosen here.
    for name in sorted(parameters, key=lambda name: "." in name):
        try:
            base = changed(base, {name: parameters[name]})
        except ConfigError as error:
            told = ", got " in error.message
            given = "" if told else f" (given: {parameters[name]!r})"
            tree.fail((*place, "parameters", name), error.message + given)
    tree.fail((*place, "parameters"), str(together))
