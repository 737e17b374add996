"""Times are parsed with units and as Slurm does, and formatted times can be parsed again."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape.cli.options import SECONDS
from reshape.times import in_local_time, parse_duration, parse_moment, seconds_of, utc_moment
from scheduler.text.formats import format_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("10:00", 600),
        ("90:05", 5405),
        ("1:00:00", 3600),
        ("30:00:00", 108000),
        ("1-0", 86400),
        ("1-2", 93600),
        ("1-02:30", 95400),
        ("1-02:30:15", 95415),
        ("0:0:1", 1),
        ("0", 0),
        (" 5 ", 300),
        ("90s", 90),
        ("30min", 1800),
        ("2h", 7200),
        ("1.5h", 5400),
        ("0.5 s", 0.5),
        ("2d", 172800),
        ("36500-0", 3153600000),
        ("0-24:00:00", 86400),
        ("0-72:00", 259200),
        ("00:90:00", 5400),
        ("01:60:00", 7200),
        ("1-24", 172800),
        ("1:60", 120),
    ],
)
def test_all_forms_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "x",
        "1:",
        ":1",
        "1-",
        "-1",
        "1:2:3:4",
        "1-1:1:1:1",
        "1.5",
        "2 h ours",
        "2m",
        "h",
        "-2h",
        "1h30min",
        "1e3s",
        "36501-0",
        "9" * 5000,
        "\uff19",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


def test_a_number_in_a_file_is_seconds() -> None:
    assert [seconds_of(value) for value in (90, 0.5, "1:30", "90s", "2min")] == [
        90,
        0.5,
        90,
        90,
        120,
    ]


@pytest.mark.parametrize("text", ["10", " 10 ", "0"])
def test_a_text_in_a_file_has_a_unit(text: str) -> None:
    """As in Slurm it would be minutes, and without quotes it is seconds."""
    with pytest.raises(ValueError, match=r"has no unit: write \d+ without quotes for seconds, or"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("90s", 90), ("2h", 7200), ("1:30", 90)]
)
def test_options_in_seconds_accept_times_with_units(text: str, seconds: float) -> None:
    assert SECONDS.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "nan", "0s", "soon"])
def test_options_in_seconds_refuse_other_texts(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SECONDS.convert(text, None, None)


def test_times_are_formatted_as_by_slurm() -> None:
    assert format_time(0) == "00:00:00"
    assert format_time(59.9) == "00:00:59"
    assert format_time(86399) == "23:59:59"
    assert format_time(86400 + 3661) == "1-01:01:01"
    assert format_time(-3) == "00:00:00"


@given(st.integers(0, 10**9))
def test_formatted_times_can_be_parsed(seconds: int) -> None:
    assert parse_duration(format_time(seconds)) == seconds


@given(
    st.none() | st.integers(0, 400),
    st.lists(st.integers(0, 23), min_size=1, max_size=3),
)
def test_the_parts_of_a_time_are_summed(days: int | None, parts: list[int]) -> None:
    text = ":".join(map(str, parts))
    units = [60] if len(parts) == 1 else [60, 1] if len(parts) == 2 else [3600, 60, 1]
    if days is not None:
        text, units = f"{days}-{text}", [86400, 3600, 60, 1][: len(parts) + 1]
        parts = [days, *parts]
    assert parse_duration(text) == sum(p * u for p, u in zip(parts, units, strict=True))


#: A Friday, 14:30.
NOW = datetime(2026, 11, 27, 14, 30)


@pytest.mark.parametrize(
    ("text", "later", "past"),
    [
        ("now", "2026-11-27T14:30", None),
        ("now+90", "2026-11-27T14:31:30", None),
        ("now-1days", "2026-11-26T14:30", None),
        ("now-1:00:00", "2026-11-27T13:30", None),
        ("today", "2026-11-27", None),
        ("TOMORROW", "2026-11-28", None),
        ("16:00", "2026-11-27T16:00", None),
        ("4:00pm", "2026-11-27T16:00", None),
        ("12:15 AM", "2026-11-28T00:15", "2026-11-27T00:15"),
        ("noon", "2026-11-28T12:00", "2026-11-27T12:00"),
        ("teatime", "2026-11-27T16:00", None),
        ("1130", "2026-11-30", None),
        ("11/30", "2026-11-30", None),
        ("05/01", "2027-05-01", "2026-05-01"),
        ("05.01.25", "2025-05-01", None),
        ("05/01-12:00", "2027-05-01T12:00", "2026-05-01T12:00"),
        ("2026-05-01", "2026-05-01", None),
        ("20260501", "2026-05-01", None),
        ("20260501T1200", "2026-05-01T12:00", None),
        ("2026-05-01T12:00:07", "2026-05-01T12:00:07", None),
    ],
)
def test_moments_are_those_of_slurm(text: str, later: str, past: str | None) -> None:
    now = NOW.timestamp()
    found = [
        datetime.fromtimestamp(parse_moment(text, now, past=is_past)) for is_past in (False, True)
    ]
    assert found == [datetime.fromisoformat(word) for word in (later, past or later)]


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "24:00", "13:00pm", "0:10am", "now+", "now+1x", "now*2", "02/30"),
        *("2026-13-01", "05/01-25:00", "now+999999999999weeks", "now-999999999999", "1" * 5000),
        *("20261301", "202605011", "20260501-12:00"),
        *("99:99:99", "9999-12-31T23:59:59+99:00"),
    ],
)
def test_other_moments_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a moment: write now"):
        parse_moment(text, NOW.timestamp())


@pytest.mark.parametrize(
    ("zone", "local"),
    [("UTC", "2026-11-27T14:30:00"), ("Asia/Kolkata", "2026-11-27T20:00:00")],
)
def test_moments_in_texts_become_local(zone: str, local: str) -> None:
    at = datetime(2026, 11, 27, 14, 30, tzinfo=UTC).timestamp()
    assert utc_moment(at) == "2026-11-27T14:30:00Z"
    odd = "2026-13-40T99:00:00Z, 0001-01-01T00:00:00Z"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        text = in_local_time(f"from {utc_moment(at)} to {utc_moment(at)}; 2026-11-27T14:30:00")
        assert in_local_time(odd).startswith("2026-13-40T99:00:00Z, 0001-01-01T0")
    time.tzset()
    assert text == f"from {local} to {local}; 2026-11-27T14:30:00"
