"""How often checkpoints are written: the forms of `every` in `Application.checkpoint`."""

from __future__ import annotations

import re
from operator import index
from typing import NamedTuple

from reshape.errors import ReshapeError

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>s|min|h|d)\s*")


class Every(NamedTuple):
    """A number of iterations, or a time in seconds; the other one is 0."""

    iterations: int = 0
    seconds: float = 0.0

    @classmethod
    def parse(cls, every: int | str) -> Every:
        """Read a number of iterations, or a time such as "10min".

        Raises
        ------
        ReshapeError : it is neither, or not above 0.
        """
        if isinstance(every, str):
            match = _TIME.fullmatch(every)
            if match is not None and float(match["number"]) > 0:
                return cls(seconds=float(match["number"]) * _UNITS[match["unit"]])
        else:
            try:
                if not isinstance(every, bool) and index(every) >= 1:
                    return cls(iterations=index(every))
            except TypeError:
                pass
        raise ReshapeError(
            f"app.checkpoint(every={every!r}): expected a number of iterations >= 1, or a time "
            "such as '30s', '10min', '2h' or '1d'"
        )
