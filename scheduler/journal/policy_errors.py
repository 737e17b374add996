"""Exceptions that policies raise: logged, noted in the journal, and survived.

The core answers the resize point at which a resizing policy failed by letting the job continue. The
event is written to the journal with the failure, so that a replay decides the same without calling
the policy, even if its code has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scheduler.model.events import Event, ResizePoint
from scheduler.model.orders import Continue, Order
from scheduler.partition.resizing import POLICY_ERROR
from scheduler.policies.containment import description, line_of

log = logging.getLogger(__name__)


class PolicyErrors:
    """Called by a core when a policy fails."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, str, str]] = set()

    def __call__(self, kind: str, policy: object, method: str, error: BaseException) -> str:
        """Describe a failure in a sentence; log each kind of error and line once."""
        sentence = description(kind, policy, method, error)
        file, number = line_of(policy, error, method)
        line = f"{Path(file).name}:{number}"
        key = kind, type(error).__name__, line
        if key not in self._logged:
            self._logged.add(key)
            log.error("%s (%s); its fallback decides instead", sentence, line, exc_info=error)
        return f"{sentence} ({line})"


def with_failures(events: Sequence[Event], orders: Sequence[Order]) -> Sequence[Event]:
    """Return the events of an instant as the journal holds them: with the failures of policies."""
    failed = {
        order.job: str(order.reason.facts.get("failed", ""))
        for order in orders
        if isinstance(order, Continue) and order.reason.rule == POLICY_ERROR
    }
    if not failed:
        return events
    return [
        msgspec.structs.replace(event, failed=failed[event.job])
        if isinstance(event, ResizePoint) and event.job in failed
        else event
        for event in events
    ]
