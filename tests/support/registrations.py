"""Registrations of policies that a test makes and that end with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scheduler.policies import registry


@contextmanager
def temporary_registrations() -> Iterator[None]:
    """Context that undoes its registrations at its end; it reads entry points again."""
    kept = {kind: dict(policies) for kind, policies in registry._known.items()}
    registry._read_entry_points.cache_clear()
    try:
        yield
    finally:
        registry._known.update(kept)
        registry._read_entry_points.cache_clear()
