"""Values of options of the commands."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

import click
import pytest
from command_line import invoke

from scheduler.client.api.service_option import opened
from scheduler.client.options import LATER_MOMENT


def moment(text: str) -> float:
    return LATER_MOMENT.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("now", 0), ("now+90", 90), ("now+90seconds", 90), ("now+1minute", 60)),
        *(("now+2hours", 7200), ("now+3days", 259200), ("now+1week", 604800)),
        *(("now+2h", 7200), ("now+1:00:00", 3600)),
    ],
)
def test_a_time_after_now(text: str, seconds: float) -> None:
    before = time.time()
    assert before + seconds <= moment(text) <= time.time() + seconds


@pytest.mark.parametrize(
    ("text", "clock"),
    [("noon", "12:00:00"), ("midnight", "00:00:00"), ("7:05", "07:05:00"), ("23:59:58",) * 2],
)
def test_the_next_time_of_day(text: str, clock: str) -> None:
    before = datetime.now()
    found = datetime.fromtimestamp(moment(text))
    assert f"{found:%H:%M:%S}" == clock
    assert before < found <= datetime.now() + timedelta(days=1, hours=1)  # the clock may change


def test_a_date_with_or_without_a_time() -> None:
    assert moment("2026-05-01") == datetime(2026, 5, 1).timestamp()
    assert moment("2026-05-01T12:00") == datetime(2026, 5, 1, 12).timestamp()


@pytest.mark.parametrize(
    "text", ["yesterday", "24:00", "12:60", "nowhere", "now 5", "now+", "now+1x", "-1", ""]
)
def test_another_text_is_no_moment(text: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        moment(text)
    forms = "now+2h, 16:00, tomorrow, 2026-05-01 or 2026-05-01T12:00"
    assert str(raised.value) == f"{text!r} is not a moment: write {forms}"


def test_indices_of_an_array_are_not_empty() -> None:
    """As of a variable of the shell that is not set."""
    told = invoke("submit", "--array", "", "true", code=2).stderr
    assert "'--array': it is empty, as a variable that is not set" in told


def test_a_command_has_one_client_for_each_service(tmp_path: Path) -> None:
    """However many jobs of a site it names, so that their number opens no more connections."""
    with click.Context(click.Command("wait")):
        first = opened(tmp_path / "a")
        assert opened(tmp_path / "a") is first
        assert opened(tmp_path / "b") is not first
    with click.Context(click.Command("wait")):
        assert opened(tmp_path / "a") is not first
