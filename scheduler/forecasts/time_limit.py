"""The limit of the time that a forecast takes, in a module that is not compiled."""

from __future__ import annotations


class TimeIsOverError(Exception):
    """The time that a forecast may take has passed.

    Attributes
    ----------
    at : time up to which the forecast has come, s on the clock of the core.
    """

    def __init__(self, at: float) -> None:
        self.at = at
