"""Times and moments as users write and read them: with a unit such as ``2h``, or as in Slurm.

In the notation of Slurm ``10`` and ``10:00`` are ten minutes, ``1-02:00:00`` is 26 hours. As there,
a part may exceed its unit: ``0-72:00`` is three days.

A text that one process makes and another one shows, such as the reason of a decision, has moments
in UTC (`utc_moment`). They become local times where the text is shown (`in_local_time`), so that a
user and a service in different time zones name the same hour.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

FORMS = (
    "a number with s, min, h or d such as 90s or 2h, or as in Slurm minutes, minutes:seconds,"
    " hours:minutes:seconds, days-hours, D-H:M or D-H:M:S"
)
#: The longest time that is accepted, days.
MOST_DAYS = 36_500
#: (whether the form has days, number of parts) -> unit of each part in seconds.
_UNITS = {
    (False, 1): (60,),
    (False, 2): (60, 1),
    (False, 3): (3600, 60, 1),
    (True, 1): (86400, 3600),
    (True, 2): (86400, 3600, 60),
    (True, 3): (86400, 3600, 60, 1),
}
_OF_SLURM = re.compile(r"(?:(\d{1,12})-)?(\d{1,12}(?::\d{1,12}){0,2})", re.ASCII)
_NAMED = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_WITH_UNIT = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)\s?(s|min|h|d)", re.ASCII)


def parse_duration(text: str) -> float:
    """Parse a time: 90s, 30min, 1.5h or 2d, or M, M:S, H:M:S, D-H, D-H:M or D-H:M:S as in Slurm.

    Returns
    -------
    seconds, >= 0

    Raises
    ------
    ValueError : the text has another form, or the time is longer than `MOST_DAYS`.
    """
    words = text.strip()
    with_unit, of_slurm = _WITH_UNIT.fullmatch(words), _OF_SLURM.fullmatch(words)
    if with_unit is not None:
        seconds = float(with_unit[1]) * _NAMED[with_unit[2]]
    elif of_slurm is not None:
        seconds = float(_slurm_seconds(*of_slurm.groups()))
    else:
        raise ValueError(f"{text!r} is not a time; write {FORMS}")
    if seconds > MOST_DAYS * 86400:
        raise ValueError(f"{text!r} is not a time: at most {MOST_DAYS} days are accepted")
    return seconds


def _slurm_seconds(days: str | None, rest: str) -> int:
    parts = [int(part) for part in ([days] if days else []) + rest.split(":")]
    units = _UNITS[days is not None, len(parts) - (days is not None)]
    return sum(part * unit for part, unit in zip(parts, units, strict=True))


def seconds_of(value: float | str) -> float:
    """Seconds of a value in a file: a number of seconds, or a time as text.

    A text without a unit is refused: it would be a number of minutes, as in Slurm, and the same
    number without quotes is one of seconds.

    Raises
    ------
    ValueError : as for `parse_duration`; or a text without a unit.
    """
    if isinstance(value, str) and value.strip().isdecimal():
        number = value.strip()[:80]
        fix = f"write {number} without quotes for seconds, or '{number}min'"
        raise ValueError(f"{value!r:.80} has no unit: {fix}")
    return parse_duration(value) if isinstance(value, str) else float(value)


#: Forms of moments, for messages.
MOMENTS = "now+2h, 16:00, tomorrow, 2026-05-01 or 2026-05-01T12:00"
_TIMES_OF_DAY = {
    "midnight": "00:00",
    "elevenses": "11:00",
    "noon": "12:00",
    "fika": "15:00",
    "teatime": "16:00",
}
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?(?:\s?([ap])m)?", re.ASCII | re.IGNORECASE)
#: Month and day, with a year or without one, and perhaps a time of day, as in 05/01/26-12:00.
_DATE = re.compile(r"(\d\d)([/.]?)(\d\d)(?:\2(\d\d))?(?:-(\d+:.+))?", re.ASCII)
_COUNTED = re.compile(r"(\d{1,12})(second|minute|hour|day|week|)s?", re.ASCII)
_COUNTED_S = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}


def parse_moment(text: str, now: float, *, past: bool = False) -> float:
    """Parse a moment in local time, in a form of Slurm's commands or of ISO 8601.

    The forms are ``now``, ``now+3days`` and ``now-1:00:00`` (a number alone has seconds),
    ``today``, ``tomorrow``, a time of day (``16:00``, ``4:00pm``, ``noon``),
    ``MM/DD[/YY][-HH:MM[:SS]]`` and ``YYYY-MM-DD[THH:MM[:SS]]``, also without the dashes.

    Parameters
    ----------
    now : Unix seconds.
    past : whether a time of day is that of today, and a day without a year that of this year;
        otherwise they are the next ones.

    Returns
    -------
    Unix seconds

    Raises
    ------
    ValueError : the text has another form, or there is no such moment.
    """
    try:
        moment = _moment(text.strip(), now, past)
        seconds = None if moment is None else moment.timestamp()
    except (ValueError, OverflowError, OSError):  # such as 2026-02-30, or beyond the year 9999
        seconds = None
    if seconds is None:
        raise ValueError(f"{text!r} is not a moment: write {MOMENTS}")
    return seconds


def _moment(text: str, now: float, past: bool) -> datetime | None:
    """Read a moment; None, or a ValueError: it is none."""
    present, word = datetime.fromtimestamp(now), text.lower()
    midnight = present.replace(hour=0, minute=0, second=0, microsecond=0)
    if word in ("now", "today", "tomorrow"):
        moments = {"now": present, "today": midnight, "tomorrow": midnight + timedelta(days=1)}
        return moments[word]
    if word.startswith(("now+", "now-")):
        counted = _COUNTED.fullmatch(word[4:])
        seconds = _COUNTED_S[counted[2]] * int(counted[1]) if counted else parse_duration(word[4:])
        return datetime.fromtimestamp(now + (seconds if word[3] == "+" else -seconds))
    if (clock := _time_of_day(word)) is not None:
        moment = midnight.replace(hour=clock[0], minute=clock[1], second=clock[2])
        return moment if past or moment > present else moment + timedelta(days=1)
    if (date := _DATE.fullmatch(word)) is not None:
        month, _, day, year, rest = date.groups()
        clock = _time_of_day(rest) if rest else (0, 0, 0)
        if clock is None:
            return None
        own_year = present.year if year is None else 2000 + int(year)
        moment = datetime(own_year, int(month), int(day), *clock)
        is_next = year is None and not past and moment < midnight
        return moment.replace(year=own_year + 1) if is_next else moment
    is_iso = re.match(r"\d{4}-|\d{8}(?:T|$)", text, re.ASCII)
    return datetime.fromisoformat(text) if is_iso else None


def _time_of_day(word: str) -> tuple[int, int, int] | None:
    """Read hour, minute and second; None: it is no time of day."""
    clock = _TIME_OF_DAY.fullmatch(_TIMES_OF_DAY.get(word, word))
    if clock is None:
        return None
    hour, minute, second = (int(part or 0) for part in clock.groups()[:3])
    if clock[4]:
        hour = hour % 12 + (12 if clock[4] == "p" else 0) if 1 <= hour <= 12 else 24
    return (hour, minute, second) if hour < 24 and minute < 60 and second < 60 else None


_UTC_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def utc_moment(at: float) -> str:
    """Write a Unix time as ``2026-05-01T12:00:00Z``, for a text that is shown elsewhere.

    A time beyond the years 1 to 9999, which a message may have, is written as a number of seconds.
    """
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at:g} s after 1970"


def in_local_time(text: str) -> str:
    """Write the moments in a text, those of `utc_moment`, as local dates and times of day."""
    return _UTC_MOMENT.sub(_local, text)


def _local(match: re.Match[str]) -> str:
    try:
        local = datetime.fromisoformat(match[0]).astimezone()
    except (ValueError, OverflowError):  # no such date; the text of a user has it
        return match[0]
    return local.replace(tzinfo=None).isoformat(timespec="seconds")
