"""Durations and moments as text, in the notation of Slurm: ``1-02:00:00`` is 26 hours."""

from __future__ import annotations

from datetime import datetime


def format_time(seconds: float) -> str:
    """Write a duration as ``[D-]HH:MM:SS``, rounded down; negative durations become 0."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def format_moment(at: float) -> str:
    """Write a Unix time as local date and time with a resolution of one second."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%dT%H:%M:%S")
