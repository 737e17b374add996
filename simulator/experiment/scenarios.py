"""The scenario of an experiment, from names, user-defined objects and mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from reshape.errors import ConfigError, nearest
from scheduler.policies.registry import kind_of_policy, known, with_part
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import changed, scenario

EXACT = "exact"  #: Estimates that are the run times.
#: Field of an experiment -> field of the scenario that it sets.
OF_SCENARIO = {
    "queue_order": "order",
    "backfill_order": "backfill_order",
    "estimates": "estimates",
    "select": "selection",
}
#: The same fields -> method of an object that is such a policy.
_METHODS = {
    "queue_order": "key",
    "backfill_order": "key",
    "estimates": "predictor",
    "select": "select",
}


def scenario_of(given: object, policies: Mapping[str, Any]) -> Scenario:
    """Scenario with all changes.

    Parameters
    ----------
    given : a name; a mapping of the name and of changes; a scenario; a resizing policy, or a
        scheduling pass.
    policies : field of `OF_SCENARIO` -> name, mapping or object; None: as the scenario has it.

    Raises
    ------
    ConfigError : a name or a field is unknown, or an object is no policy of the kind.
    """
    changes: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
    named = changes.pop("name", "easy") if isinstance(given, Mapping) else given
    objects: dict[str, Any] = {}
    for name, field in OF_SCENARIO.items():
        value = policies[name]
        if value is None:
            continue
        if field in changes:
            raise ConfigError(f"scenario has {field} as well; keep one", field=name)
        if name == "estimates":
            value = estimates_of(value)
        if isinstance(value, str | Mapping):
            changes[field] = value
        elif _has_method(value, _METHODS[name], name):
            objects[field] = value
        else:
            raise ConfigError(
                f"must be a name, a mapping or an object with a method {_METHODS[name]}, got"
                f" {value!r}",
                field=name,
            )
    try:
        base = _base(named)
    except ConfigError as error:
        field = "scenario" if named is given else "scenario.name"
        raise ConfigError(error.message, field=field) from None
    try:
        return msgspec.structs.replace(changed(base, changes) if changes else base, **objects)
    except ConfigError as error:
        first, dot, rest = (error.field or "").partition(".")
        own = [name for name, field in OF_SCENARIO.items() if first == field]
        own = [f"{name}{dot}{rest}" for name in own if policies[name] is not None]
        raise ConfigError(error.message, field=[*own, f"scenario.{error.field}"][0]) from None


def estimates_of(given: Any) -> Any:
    """Estimates as the scenario takes them: "exact" ones are requests that were replaced.

    Raises
    ------
    ConfigError : an unknown name.
    """
    names = known("estimates")
    if isinstance(given, str) and ":" not in given and given not in (EXACT, *names):
        raise ConfigError(
            f"unknown estimates {given!r}{nearest(given, (EXACT, *names))}", field="estimates"
        )
    return "user" if given == EXACT else given


def _base(given: object) -> Scenario:
    """Scenario of a name, or of an object."""
    if isinstance(given, Scenario):
        return given
    if isinstance(given, str):
        return scenario(given)
    for kind, method in (("resizing", "decide"), ("scheduling", "schedule")):
        if _has_method(given, method, "scenario"):
            return with_part(kind, type(given).__name__, given)
    raise ConfigError(
        "must be a name, a Scenario, a resizing policy, a scheduling pass or a mapping, got"
        f" {given!r}",
        field="scenario",
    )


def _has_method(value: object, method: str, field: str) -> bool:
    """Whether an object is meant as a policy of the kind that has this method.

    Raises
    ------
    ConfigError : it is a class, or the class of the object is no policy.
    """
    if isinstance(value, type):
        raise ConfigError(f"is a class; give an object, {value.__name__}()", field=field)
    if not callable(getattr(value, method, None)):
        return False
    try:
        kind_of_policy(type(value).__name__, type(value))
    except ConfigError as error:
        raise ConfigError(error.message, field=field) from None
    return True
