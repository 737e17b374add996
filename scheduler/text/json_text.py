"""JSON in which every number is finite."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any


def dumps(data: Any, *, indent: int | None = None) -> str:
    """Write plain data as JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_finite(data), indent=indent, allow_nan=False)


def _finite(data: Any) -> Any:
    """Copy plain data with None for every number that is not finite."""
    if isinstance(data, float):
        return data if isfinite(data) else None
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return data
