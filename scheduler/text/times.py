"""Times as people write and read them, after Slurm: ``10:00`` for ten minutes, ``1-02:00:00``."""

from __future__ import annotations

import re
from datetime import datetime

FORMS = "minutes, minutes:seconds, hours:minutes:seconds, days-hours, D-H:M or D-H:M:S"
#: Each form with the units of its parts, in seconds.
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
    """Read a time as Slurm does: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S.

    Returns
    -------
    seconds, >= 0

    Raises
    ------
    ValueError : none of these forms, or a part that belongs to the next larger unit.
    """
    match = _WALLTIME.fullmatch(text.strip())
    days, rest = match.groups() if match else (None, "")
    parts = [int(part) for part in ([days] if days else []) + rest.split(":")] if match else []
    units = _UNITS.get((days is not None, len(parts) - (days is not None)), ())
    if not units:
        raise ValueError(f"{text!r} is no time; write {FORMS}")
    for part, unit in list(zip(parts, units, strict=True))[1:]:  # the first may be any number
        limit, name = _LIMITS[unit]
        if part >= limit:
            raise ValueError(f"{text!r} is no time: {part} {name}, of at most {limit - 1}")
    return sum(part * unit for part, unit in zip(parts, units, strict=True))


def format_time(seconds: float) -> str:
    """Write a time as ``[D-]HH:MM:SS``; parts of a second are dropped, less than 0 is 0."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def format_moment(at: float) -> str:
    """Write a Unix time as date and time of day here, to the second."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S")
