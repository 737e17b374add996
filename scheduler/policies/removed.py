"""Fields and values of release 0.1.0 that only served to compare readings of the papers.

The pages in docs/studies say what the comparisons found; release 0.1.0 can repeat them. Recorded
scenarios that have the value by which decisions are made now are read without the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from reshape.errors import ConfigError

#: Field -> value by which decisions are made now.
FIELDS: dict[str, Any] = {
    "backfill.bl_excludes": True,
    "backfill.kill": "overdue",
    "backfill.modifier": "product",
    "resizing.contract_for": "queue",
    "resizing.harvest_for": "queued",
    "resizing.harvest_unexplored": True,
    "resizing.protect_reservation": True,  # Max-B-PR: false
    "resizing.rank_by": "class",
    "resizing.unexplored": "first",
}
#: Field that there still is -> values that it had, and its present ones.
VALUES: dict[str, tuple[tuple[str, ...], str]] = {
    "backfill.reserve": (("number",), "place or shortage"),
    "resizing.grow_past": (("lower", "none"), "any or blocked"),
    "resizing.higher": (("class",), "priority or queued"),
}


def refuse_removed(field: str, value: object) -> None:
    """Refuse a removed field, or a removed value of a field.

    Parameters
    ----------
    field : dotted, also below another one: ``queues.late.resizing.rank_by``.

    Raises
    ------
    ConfigError : names release 0.1.0, and what to write instead.
    """
    name = ".".join(field.split(".")[-2:])
    if name in FIELDS:
        raise ConfigError(
            "only release 0.1.0 has this field, which served to compare readings of a paper"
            f" (docs/studies); leave it out: decisions are those of {_now(name, None)}",
            field=field,
        )
    values, present = VALUES.get(name, ((), ""))
    if value in values:
        raise ConfigError(
            f"only release 0.1.0 has the value {value!r}, which served to compare readings of a"
            f" paper (docs/studies); take {present}",
            field=field,
        )


def without_removed(record: Mapping[str, Any]) -> dict[str, Any]:
    """Copy of a recorded scenario without removed fields.

    Raises
    ------
    ConfigError : a removed field has another value than that by which decisions are made now.
    """
    kept = deepcopy(dict(record))
    for part in (kept, *kept.get("queues", {}).values()):
        for name in (*FIELDS, *VALUES):
            owner, _, field = name.partition(".")
            fields = part.get(owner)
            if not isinstance(fields, dict) or field not in fields:
                continue
            if name not in FIELDS or fields[field] != _now(name, fields.get("policy")):
                refuse_removed(name, fields[field])
            else:
                del fields[field]
    return kept


def _now(name: str, policy: object) -> Any:
    """Value of a removed field by which decisions are made now."""
    if name == "resizing.protect_reservation":
        return policy != "max-b-pr"
    return FIELDS[name]
