"""Times are parsed with units and as Slurm does, and formatted times can be parsed again."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape.cli.options import Seconds
from reshape.times import parse_duration, seconds_of
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
        "1:60",
        "1:60:00",
        "1-24",
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)


def test_a_number_in_a_file_is_seconds() -> None:
    assert [seconds_of(value) for value in (90, 0.5, "1:30", "90s", "2")] == [90, 0.5, 90, 90, 120]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("1.5", 1.5), ("90s", 90), ("2h", 7200), ("1:30", 90)]
)
def test_options_in_seconds_accept_times_with_units(text: str, seconds: float) -> None:
    assert Seconds().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "nan", "0s", "soon"])
def test_options_in_seconds_refuse_other_texts(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Seconds().convert(text, None, None)


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
