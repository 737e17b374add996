"""How a scenario is chosen, changed, written down and read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from reshape.errors import ConfigError, nearest
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.redirection import Redirection
from scheduler.policies.registry import find, known, name_of
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.text.located import converted

#: Fields that hold a registered policy, and its kind.
_POLICIES = {
    "order": "order",
    "backfill_order": "order",
    "estimates": "estimates",
    "resizing": "resizing",
    "selection": "selection",
}
#: Fields that may hold none, and the words for it.
_NONE = {"resizing": ("none", "static"), "backfill_order": ("none",), "redirection": ("none",)}
#: Fields that may hold none and otherwise parameters alone; naming one of these makes it.
_PARTS: dict[str, Any] = {"redirection": Redirection}


def scenario(name: str, changes: Mapping[str, Any] | None = None) -> Scenario:
    """Scenario of this name with some fields changed.

    Parameters
    ----------
    name : "easy", "fcfs-pr", ...; a resizing policy's name stands for it on top of EASY.
    changes : as `changed` takes them.

    Raises
    ------
    ConfigError : the name, a field or a value is wrong.
    """
    found = find("scenario", name)
    assert isinstance(found, Scenario)
    return changed(found, changes or {})


def changed(base: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """Give a copy with fields changed, as ``--set`` or a configuration file names them.

    Parameters
    ----------
    changes : field -> value. A field may be dotted (``backfill.reservations``) or its value a
        mapping; numbers may be given as text. `order`, `backfill_order`, `estimates`, `resizing`
        and `selection` take the name of a policy (alone, or as ``policy`` beside its parameters),
        `resizing`, `backfill_order` and `redirection` also None.

    Raises
    ------
    ConfigError : an unknown field (the nearest is offered) or a value that does not fit.
    """
    data = to_data(base)
    for field, value in _flat(changes):
        *path, last = field.split(".")
        if isinstance(value, str) and value in _NONE.get(field, ()):
            data[field] = None
            continue
        if path == [] and last in _POLICIES and isinstance(value, str):
            path, last = [last], "policy"
        place: Any = data
        for step in path:
            place = _member(place, step, field)
            if place[step] is None and step in _PARTS:
                place[step] = msgspec.to_builtins(_PARTS[step]())
            elif place[step] is None:
                if last != "policy":
                    mend = f"choose one first, as in {step}={known(_POLICIES[step])[0]}"
                    raise ConfigError(f"there is no {step} policy; {mend}", field=field)
                place[step] = {}
            place = place[step]
        if last == "policy" and place.get("policy") != value:
            place.clear()  # parameters of the policy it replaces say nothing about this one
        elif last != "policy":
            _member(place, last, field)
        place[last] = value
    return from_data(data)


def to_data(scenario: Scenario) -> dict[str, Any]:
    """Write a scenario as plain data (for a journal or YAML) that `from_data` reads back."""
    data = _written(scenario)
    data["queues"] = {name: _written(rules) for name, rules in scenario.queues.items()}
    return data


def _written(rules: Scenario | QueueRules) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for field in rules.__struct_fields__:
        value = getattr(rules, field)
        data[field] = msgspec.to_builtins(value)
        if field in _POLICIES and value is not None:
            data[field] = {"policy": name_of(_POLICIES[field], value)} | data[field]
    return data


def from_data(data: Mapping[str, Any]) -> Scenario:
    """Read what `to_data` wrote.

    Raises
    ------
    ConfigError : an unknown field or policy, or a value that does not fit.
    """
    fields = _with_policies(data)
    queues = converted(data.get("queues", {}), dict[str, dict[str, Any]], "queues")
    fields["queues"] = {name: QueueRules(**_with_policies(rules)) for name, rules in queues.items()}
    if "backfill" in fields:
        fields["backfill"] = converted(fields["backfill"], Backfill, "backfill")
    for field, part in _PARTS.items():
        if fields.get(field) is not None:
            fields[field] = converted(fields[field], part, field)
    for number in ("max_restarts", "retry_after"):
        if number in fields:
            fields[number] = converted(fields[number], int, number)
            if fields[number] < 0:
                raise ConfigError(f"must be >= 0, got {fields[number]}", field=number)
    try:
        made = Scenario(**fields)
    except TypeError as error:
        raise ConfigError(f"scenario: {error}") from None
    if made.redirection is not None:
        of_redirection_group(made)
    try:
        _ = made.queue_order
    except ValueError as error:
        raise ConfigError(str(error), field="queues") from None
    return made


def _with_policies(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with the policies among them made of their names and parameters."""
    fields = dict(data)
    for field, kind in _POLICIES.items():
        if isinstance(fields.get(field), Mapping):
            parameters = dict(fields[field])
            cls = find(kind, str(parameters.pop("policy", "")))
            fields[field] = converted(parameters, cls, field)
    return fields


def of_redirection_group(base: Scenario) -> Scenario:
    """Scenario by which the redirection group of a scenario is scheduled; it redirects no more.

    Raises
    ------
    ConfigError : there is none of the name that its `redirection.scenario` gives.
    """
    named = None if base.redirection is None else base.redirection.scenario
    if named is None:
        return msgspec.structs.replace(base, redirection=None)
    try:
        return msgspec.structs.replace(scenario(named), redirection=None)
    except ConfigError as error:
        raise ConfigError(error.message, field="redirection.scenario") from None


def _flat(changes: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted fields and their values, the choice of a policy before its parameters."""
    flat: list[tuple[str, Any]] = []
    for field, value in changes.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{field}.")
        else:
            flat.append((prefix + field, value))
    return sorted(flat, key=lambda item: "." in item[0].removesuffix(".policy"))


def _member(place: Any, name: str, field: str) -> Any:
    """Check that there is such a field, where it can be told already."""
    if not isinstance(place, dict):
        raise ConfigError(f"{place!r} has no fields", field=field)
    if name not in place and "policy" not in place:
        raise ConfigError(f"unknown field {name!r}{nearest(name, place)}", field=field)
    return place
