"""How often checkpoints are written: the forms of `every` in `Application.checkpoint`."""

from __future__ import annotations

from operator import index
from typing import NamedTuple

from reshape.errors import ReshapeError
from reshape.times import parse_duration


class Every(NamedTuple):
    """A number of iterations, or a time in seconds; the other one is 0."""

    iterations: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, every: int | str) -> Every:
        """Read a number of iterations, or a time such as "10min" or "2:00:00".

        Raises
        ------
        ReshapeError : it is neither, or not above 0.
        """
        try:
            if isinstance(every, str):
                # "10" would be minutes as a time, and 10 is a number of iterations
                seconds = 0.0 if every.strip().isdecimal() else parse_duration(every)
                if seconds > 0:
                    return cls(seconds=seconds)
            elif not isinstance(every, bool) and index(every) >= 1:
                return cls(iterations=index(every))
        except (TypeError, ValueError):
            pass
        raise ReshapeError(
            f"app.checkpoint(every={every!r}): expected a number of iterations >= 1, or a time "
            "such as '30s', '10min', '2h', '1d' or '1-12:00:00'"
        )
