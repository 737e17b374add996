"""Scenarios by name, with changed fields, and as plain data for journals and files."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from reshape.errors import ConfigError, nearest
from scheduler.model.events import REDIRECTION
from scheduler.model.interfaces import Prioritised, QueueOrder
from scheduler.model.job_view import is_ours
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.containment import (
    ContainedEstimates,
    ContainedOrder,
    ContainedPriority,
    ContainedSelection,
    ErrorReporter,
)
from scheduler.policies.redirection import Redirection
from scheduler.policies.registry import find, known, name_of
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.selection.basic import FirstFit
from scheduler.text.located import converted

#: Fields that hold a registered policy -> kind of the policy.
_POLICIES = {
    "order": "order",
    "scheduling": "scheduling",
    "backfill_order": "order",
    "estimates": "estimates",
    "resizing": "resizing",
    "selection": "selection",
}
#: Fields that may be None -> the words for None in a text.
_NONE = {
    "resizing": ("none", "static"),
    "scheduling": ("none",),
    "backfill_order": ("none",),
    "redirection": ("none",),
}


def predicts(base: Scenario) -> bool:
    """Whether estimates of run times differ from the requests, in any partition."""
    scenarios = by_partition(base).values()
    return any(own.estimates.predictor() is not None for own in scenarios)


def uses_first_fit(base: Scenario) -> bool:
    """Whether all partitions take the first free processors, so that they may be counted."""
    return all(own.selection == FirstFit() for own in by_partition(base).values())


def scenario(name: str, changes: Mapping[str, Any] | None = None) -> Scenario:
    """Return the scenario of a name with some fields changed.

    Parameters
    ----------
    name : "easy", "fcfs-pr", ...; the name of a resizing policy means this policy with EASY.
    changes : see `changed`.

    Raises
    ------
    ConfigError : the name, a field or a value is unknown or does not fit.
    """
    unchanged = find("scenario", name)
    assert isinstance(unchanged, Scenario)
    return changed(unchanged, changes or {})


def changed(base: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """Return a copy with fields changed, as ``--set`` or a configuration file names them.

    Parameters
    ----------
    changes : field -> value. A field may be dotted (``backfill.reservations``) or its value be a
        mapping; numbers may be texts. `order`, `scheduling`, `backfill_order`, `estimates`,
        `resizing` and `selection` take the name of a policy (alone, or as ``policy`` beside its
        parameters); `resizing`, `scheduling`, `backfill_order` and `redirection` may also be None.

    Raises
    ------
    ConfigError : a field is unknown (the message offers the nearest) or a value does not fit.
    """
    data = to_data(base)
    named: list[Any] = []  # data of the policies that the changes name
    for field, value in _flat(changes):
        *path, last = field.split(".")
        if path == [] and last in _POLICIES and isinstance(value, bool | int | float | list):
            raise ConfigError(f"must be a name or a mapping, got {value!r:.80}", field=field)
        if isinstance(value, str) and value in _NONE.get(field, ()):
            data[field] = None
            continue
        if path == [] and last in _POLICIES and isinstance(value, str):
            path, last = [last], "policy"
        mapping: Any = data
        is_new = False  # inside a newly named policy, whose members are checked later
        for step in path:
            mapping = _member(mapping, step, field, is_new)
            is_new = is_new or any(mapping is each for each in named)
            if is_new:
                mapping.setdefault(step, {})
            if step not in mapping:
                raise ConfigError(f"unknown field {step!r}{nearest(step, mapping)}", field=field)
            if mapping[step] is None and step == "redirection":  # a change of a member makes one
                mapping[step] = msgspec.to_builtins(Redirection())
            elif mapping[step] is None:
                if last != "policy":
                    fix = f"choose one first, as in {step}={known(_POLICIES[step])[0]}"
                    raise ConfigError(f"there is no {step} policy; {fix}", field=field)
                mapping[step] = {}
            mapping = mapping[step]
        if last == "policy" and mapping.get("policy") != value:
            mapping.clear()  # the parameters are those of the policy that is replaced
            named.append(mapping)
        elif last != "policy":
            _member(mapping, last, field, is_new)
            is_policy = path[-1:] != [] and path[-1] in _POLICIES
            if last == "name" and is_policy and not any(mapping is each for each in named):
                fix = f"a mapping names its policy by policy, as in {path[-1]}.policy={value}"
                raise ConfigError(f"unknown field {last!r}; {fix}", field=field)
        mapping[last] = value
    return from_data(data)


def to_data(scenario: Scenario) -> dict[str, Any]:
    """Convert a scenario to plain data (for a journal or YAML) that `from_data` reads back."""
    data = _written(scenario)
    data["queues"] = {name: _written(rules) for name, rules in scenario.queues.items()}
    data["partitions"] = {name: to_data(own) for name, own in scenario.partitions.items()}
    if not scenario.partitions:
        del data["partitions"]
    return data


def source_digests(scenario: Scenario) -> dict[str, str]:
    """Return a digest of the source file of each policy that is not part of this package.

    Returns
    -------
    ``module:Class`` -> SHA-256 of the file that defines it; empty where there is no such file.
    """
    from hashlib import sha256  # late: it loads OpenSSL

    digests = {}
    scenarios = (scenario, *scenario.partitions.values())
    for rules in (rules for own in scenarios for rules in (own, *own.queues.values())):
        for field in rules.__struct_fields__:
            cls = type(getattr(rules, field))
            if field not in _POLICIES or cls.__module__.split(".")[0] in ("scheduler", "builtins"):
                continue
            file = getattr(sys.modules.get(cls.__module__), "__file__", None)
            source = Path(file).read_bytes() if file and Path(file).is_file() else b""
            digests[name_of(_POLICIES[field], getattr(rules, field))] = sha256(source).hexdigest()
    return digests


def _written(rules: Scenario | QueueRules) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for field in rules.__struct_fields__:
        value = getattr(rules, field)
        if field in ("queues", "partitions"):
            continue  # see `to_data`
        data[field] = msgspec.to_builtins(value)
        if field in _POLICIES and value is not None:
            data[field] = {"policy": name_of(_POLICIES[field], value)} | data[field]
    return data


def from_data(data: Mapping[str, Any]) -> Scenario:
    """Create a scenario from data that `to_data` returned.

    Raises
    ------
    ConfigError : a field or policy is unknown, a value does not fit, or a field has no effect.
    """
    fields = _with_policies(data)
    queues = converted(data.get("queues", {}), dict[str, dict[str, Any]], "queues")
    fields["queues"] = {name: QueueRules(**_with_policies(rules)) for name, rules in queues.items()}
    partitions = converted(data.get("partitions", {}), dict[str, dict[str, Any]], "partitions")
    fields["partitions"] = {name: from_data(own) for name, own in partitions.items()}
    if "backfill" in fields:
        fields["backfill"] = converted(fields["backfill"], Backfill, "backfill")
    if fields.get("redirection") is not None:
        fields["redirection"] = converted(fields["redirection"], Redirection, "redirection")
    for number, least in (("max_restarts", 0), ("retry_after", 0), ("max_failures", 1)):
        if number in fields:
            fields[number] = converted(fields[number], int, number)
            if fields[number] < least:
                raise ConfigError(f"must be >= {least}, got {fields[number]}", field=number)
    try:
        made = Scenario(**fields)
    except TypeError as error:
        raise ConfigError(f"scenario: {error}") from None
    if made.redirection is not None:
        _of_redirection_group(made, made.redirection)
    check_targets(made)
    try:
        _ = made.queue_order
    except ValueError as error:
        raise ConfigError(str(error), field="queues") from None
    return made


def check_targets(made: Scenario) -> None:
    """Check the partitions in which redirected jobs start again.

    Raises
    ------
    ConfigError : one is not among the other partitions.
    """
    for name, own in made.partitions.items():
        target = None if own.redirection is None else own.redirection.partition
        others = [other for other in made.partitions if other != name]
        if own.redirection is not None and target not in others:
            raise ConfigError(
                f"jobs that are redirected from partition {name} start again in another partition,"
                f" got {target!r}: choose one of {', '.join(others) or 'several'}",
                field="redirection.partition",
            )


def _with_policies(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a scenario, with policies created from their names and parameters."""
    fields = dict(data)
    for field, kind in _POLICIES.items():
        if isinstance(fields.get(field), Mapping):
            parameters = dict(fields[field])
            try:
                cls = find(kind, str(parameters.pop("policy", "")))
            except ConfigError as error:
                raise ConfigError(error.message, field=field) from None
            fields[field] = converted(parameters, cls, field)
    return fields


def by_partition(base: Scenario, others: Iterable[str] = ()) -> dict[str, Scenario]:
    """Scenario of each partition, by name; the first one takes the jobs that name none.

    Parameters
    ----------
    others : partitions that there are although the scenario names none of them: those of a
        recorded state, or of a machine that was made with a redirection group.

    Raises
    ------
    ConfigError : the rule of redirection names a partition, and there are none; or a scenario that
        is not known.
    """
    parts = dict(base.partitions) or {"": base}
    rule = None if base.partitions else base.redirection
    if rule is not None:
        if rule.partition is not None:
            raise ConfigError(
                f"there is no partition {rule.partition!r}, as no partitions are configured",
                field="redirection.partition",
            )
        parts[REDIRECTION] = _of_redirection_group(base, rule)
    missing = [name for name in others if name and name not in parts]
    if missing:  # a scenario is checked when it is made, which takes time
        own = msgspec.structs.replace(base, redirection=None, partitions={})
        parts |= dict.fromkeys(missing, own)
    return parts


def _of_redirection_group(base: Scenario, rule: Redirection) -> Scenario:
    """Scenario of the redirection group of a scenario; it has no redirection itself."""
    if rule.scenario is None:
        return msgspec.structs.replace(base, redirection=None)
    try:
        return msgspec.structs.replace(scenario(rule.scenario), redirection=None)
    except ConfigError as error:
        raise ConfigError(error.message, field="redirection.scenario") from None


def _flat(changes: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted fields with their values; the choice of a policy precedes its parameters."""
    flat: list[tuple[str, Any]] = []
    for field, value in changes.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{field}.")
        else:
            flat.append((prefix + field, value))
    return sorted(flat, key=lambda item: "." in item[0].removesuffix(".policy"))


def _member(mapping: Any, name: str, field: str, is_new: bool = False) -> Any:
    """Check that a member exists; those of a newly named policy or part are checked later."""
    if not isinstance(mapping, dict):
        raise ConfigError(f"{mapping!r} has no fields", field=field)
    if name not in mapping and "policy" not in mapping and not is_new:
        settable = [known for known, value in mapping.items() if value != {}]  # queues may be empty
        raise ConfigError(f"unknown field {name!r}{nearest(name, settable)}", field=field)
    return mapping


def contained(scenario: Scenario, report: ErrorReporter) -> Scenario:
    """Copy of a scenario whose orders, selection and estimates survive errors of user-defined ones.

    Parameters
    ----------
    report : function to call for each error.
    """
    queues = {
        name: QueueRules(_contained_order(rules.order, report), rules.resizing)
        for name, rules in scenario.queues.items()
    }
    second, estimates, selection = scenario.backfill_order, scenario.estimates, scenario.selection
    return msgspec.structs.replace(
        scenario,
        order=_contained_order(scenario.order, report),
        backfill_order=None if second is None else _contained_order(second, report),
        estimates=estimates if is_ours(estimates) else ContainedEstimates(estimates, report),
        selection=selection if is_ours(selection) else ContainedSelection(selection, report),
        queues=queues,
    )


def _contained_order(order: QueueOrder, report: ErrorReporter) -> QueueOrder:
    if is_ours(order):
        return order
    kind = ContainedPriority if isinstance(order, Prioritised) else ContainedOrder
    return kind(order, report)
