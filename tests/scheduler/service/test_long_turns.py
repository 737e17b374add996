"""A turn of the loop that lasts long: the log names the policy that does not return."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from desk import Desk
from waiting import LIMIT_S

from scheduler.protocol import messages as m
from scheduler.service import limits
from scheduler.service.limits import LoopWatch

JOB = m.Submission(argv=["true"], processors=1, walltime_s=60.0, user="ann")
ORDER = """
import threading
import time

import msgspec
from scheduler.policies.api import QueueOrder

may_return = threading.Event()
watch = None

class Endless(QueueOrder, msgspec.Struct, frozen=True):
    ages = False

    def key(self, job, now):
        watch.busy_since = time.monotonic()  # a slow machine may take long before
        may_return.wait(LIMIT_S)
        return job.id
"""


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Lines of the watch; the policy returns when there are two of them."""
    (tmp_path / "endless_order.py").write_text(ORDER.replace("LIMIT_S", str(LIMIT_S)))
    monkeypatch.syspath_prepend(tmp_path)
    lines: list[str] = []

    class Returning(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())
            if len(lines) == 2:
                sys.modules["endless_order"].may_return.set()

    handler = Returning()
    limits.log.addHandler(handler)
    yield lines
    limits.log.removeHandler(handler)
    del sys.modules["endless_order"]


def test_the_log_names_the_policy_the_event_and_the_time(tmp_path: Path, logged: Any) -> None:
    options = {"scenario": "easy", "parameters": {"order": "endless_order:Endless"}}
    desk = Desk(tmp_path / "service", **options)
    with closing(desk.components.journal), closing(LoopWatch(patience_s=0.02)) as watch:
        watch.deciding = lambda: desk.driver.deciding
        sys.modules["endless_order"].__dict__["watch"] = watch
        desk.hello()
        for _ in range(6):  # four start
            desk.ask(b"a", m.Submit(submission=JOB))
        watch.busy_since = None
        assert len(desk.components.core.jobs) == 6, "the service goes on when the policy returns"
    first, second, *_ = logged
    assert first.startswith("the queue order endless_order:Endless in key (endless_order.py:16) ")
    assert re.search(r" has not returned for .* s on JobSubmitted job=[56]: ", first)
    assert second.startswith("the queue order endless_order:Endless in key ")


@pytest.mark.parametrize("busy_s", [5.0, 11.0])
def test_a_long_turn_without_a_policy_is_logged(
    busy_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(LoopWatch()) as watch:
        watch.busy_since = time.monotonic() - busy_s
        watch.look()
        watch.look()  # it has not taken twice as long
        watch.busy_since = None  # the loop waits for messages
        watch.look()
    said = [line for line in caplog.messages if line.startswith("the service has read no message")]
    assert len(said) == (busy_s > limits.LONG_TURN_S)
