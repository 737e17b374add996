"""Times as users write them: with a unit such as ``2h``, or in the notation of Slurm.

In the notation of Slurm ``10`` and ``10:00`` are ten minutes, ``1-02:00:00`` is 26 hours.
"""

from __future__ import annotations

import re

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
_LIMITS = {3600: (24, "hours"), 60: (60, "minutes"), 1: (60, "seconds")}
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
    ValueError : the text has another form, a part exceeds its unit (such as 75 minutes), or the
        time is longer than `MOST_DAYS`.
    """
    words = text.strip()
    with_unit, of_slurm = _WITH_UNIT.fullmatch(words), _OF_SLURM.fullmatch(words)
    if with_unit is not None:
        seconds = float(with_unit[1]) * _NAMED[with_unit[2]]
    elif of_slurm is not None:
        seconds = float(_slurm_seconds(text, *of_slurm.groups()))
    else:
        raise ValueError(f"{text!r} is not a time; write {FORMS}")
    if seconds > MOST_DAYS * 86400:
        raise ValueError(f"{text!r} is not a time: at most {MOST_DAYS} days are accepted")
    return seconds


def _slurm_seconds(text: str, days: str | None, rest: str) -> int:
    parts = [int(part) for part in ([days] if days else []) + rest.split(":")]
    units = _UNITS[days is not None, len(parts) - (days is not None)]
    for part, unit in list(zip(parts, units, strict=True))[1:]:  # the first part has no limit
        limit, name = _LIMITS[unit]
        if part >= limit:
            raise ValueError(f"{text!r} is not a time: {part} {name}, at most {limit - 1}")
    return sum(part * unit for part, unit in zip(parts, units, strict=True))


def seconds_of(value: float | str) -> float:
    """Seconds of a value in a file: a number of seconds, or a time as text.

    Raises
    ------
    ValueError : as for `parse_duration`.
    """
    return parse_duration(value) if isinstance(value, str) else float(value)
