"""Times in the notation of Slurm: ``10:00`` is ten minutes, ``1-02:00:00`` is 26 hours."""

from __future__ import annotations

import re
from datetime import datetime

FORMS = "minutes, minutes:seconds, hours:minutes:seconds, days-hours, D-H:M or D-H:M:S"
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
_WALLTIME = re.compile(r"(?:(\d+)-)?(\d+(?::\d+)*)", re.ASCII)


def parse_walltime(text: str) -> int:
    """Parse a time in the notation of Slurm: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Returns
    -------
    int seconds, >= 0

    Raises
    ------
    ValueError : the text has another form, or a part exceeds its unit (such as 75 minutes).
    """
    match = _WALLTIME.fullmatch(text.strip())
    days, rest = match.groups() if match else (None, "")
    parts = [int(part) for part in ([days] if days else []) + rest.split(":")] if match else []
    units = _UNITS.get((days is not None, len(parts) - (days is not None)), ())
    if not units:
        raise ValueError(f"{text!r} is not a time; write {FORMS}")
    for part, unit in list(zip(parts, units, strict=True))[1:]:  # the first part has no limit
        limit, name = _LIMITS[unit]
        if part >= limit:
            raise ValueError(f"{text!r} is not a time: {part} {name}, at most {limit - 1}")
    return sum(part * unit for part, unit in zip(parts, units, strict=True))


def format_time(seconds: float) -> str:
    """Write a duration as ``[D-]HH:MM:SS``, rounded down; negative durations become 0."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def format_moment(at: float) -> str:
    """Write a Unix time as local date and time with a resolution of one second."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S")
