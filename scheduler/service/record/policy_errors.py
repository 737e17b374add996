"""Exceptions that policies raise: logged, noted in the journal, and survived.

The core answers the resize point at which a resizing policy failed by letting the job continue. The
event is written to the journal with the failure, so that a replay decides the same without calling
the policy, even if its code has changed.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scheduler.model.events import Event, ResizePoint
from scheduler.policies.containment import description, line_of
from scheduler.policies.registry import name_of
from scheduler.policies.resizing.interface import Resizing

log = logging.getLogger(__name__)


class PolicyErrors:
    """Called by a core when a policy raises an exception."""

    def __init__(self) -> None:
        self._failed: dict[int, str] = {}  # by the identity of the event, until it is noted
        self._logged: set[tuple[str, str, str]] = set()

    def __call__(self, point: ResizePoint, policy: Resizing, error: BaseException) -> str:
        """Describe the failure in a sentence; log the traceback of each kind of error once."""
        name, line = name_of("resizing", policy), _line_of(policy, error)
        kind, text = type(error).__name__, _error_text(error)
        why = f"the policy {name} failed with {text} ({line}); the job keeps its size"
        if (name, kind, line) not in self._logged:
            self._logged.add((name, kind, line))
            log.error(
                "policy %s: %s at %s, first for job %d; jobs keep their sizes where it fails",
                *(name, kind, line, point.job),
                exc_info=error,
            )
        self._failed[id(point)] = why
        return why

    def report(self, kind: str, policy: object, method: str, error: BaseException) -> str:
        """Return a sentence on an error of another policy; log each kind of error and line once."""
        sentence, line = description(kind, policy, method, error), _line_of(policy, error, method)
        key = kind, type(error).__name__, line
        if key not in self._logged:
            self._logged.add(key)
            log.error("%s (%s); its fallback decides instead", sentence, line, exc_info=error)
        return f"{sentence} ({line})"

    def noted(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events with their failures added, as the journal holds them."""
        if not self._failed:
            return events
        failed, self._failed = self._failed, {}
        return [
            msgspec.structs.replace(event, failed=failed[id(event)])
            if isinstance(event, ResizePoint) and id(event) in failed
            else event
            for event in events
        ]


def _error_text(error: BaseException) -> str:
    """Format kind and message of an error as one line of valid UTF-8."""
    words = traceback.format_exception_only(error)[-1].split()
    return " ".join(words).encode(errors="replace").decode()


def _line_of(policy: object, error: BaseException, method: str = "decide") -> str:
    """Find ``file:line`` of the policy's code where an error was raised."""
    file, line = line_of(policy, error, method)
    return f"{Path(file).name}:{line}"
