"""A service and its users may be in different time zones: all texts have the hours of the user."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from command_line import invoke

#: The service has one zone, so that at least one of these is another one.
ZONES = ["America/New_York", "Asia/Kolkata"]


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    """The zone of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield ZoneInfo(request.param)
    time.tzset()


def test_texts_have_the_hours_of_the_user(
    shared_service: Any, zone: ZoneInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = shared_service
    monkeypatch.setenv("RESHAPE_DIR", str(service.directory))
    begin = float(int(time.time()) + 7 * 86400)
    local = datetime.fromtimestamp(begin, zone).strftime("%Y-%m-%dT%H:%M:%S")
    job = service.submit(["true"], begin=begin)
    try:
        shown = {
            "info": invoke("info", job).stdout,
            "queue": invoke("queue", "--jobs", job, "--format", "%r").stdout,
            "explain": invoke("explain", job).stdout,
        }
        for command, text in shown.items():
            assert f"it begins at {local}" in text, (command, text)
        assert f"not before {local}" in shown["explain"]
        told = json.loads(invoke("explain", job, "--json").stdout)
        decided = [line for line in told["lines"] if line.get("rule") == "BeginTime"]
        assert decided
        for line in decided:
            assert line["facts"]["begin"] == pytest.approx(begin)
    finally:
        invoke("cancel", job)
    words = [
        "reserve",
        "create",
        "--start",
        "2026-01-05T06:07:08",
        "--duration",
        "1h",
        "--processors",
        1,
    ]
    assert "its start is 2026-01-05T06:07:08" in invoke(*words, code=1).stderr
