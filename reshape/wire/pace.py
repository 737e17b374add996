"""How often a job asks its service: at its resize points, but not more often than makes sense.

At every resize point the ranks meet in one small broadcast, in which rank 0 hands on the decision.
Rank 0 asks the service only if `every_s` have passed since it last did; in between, it decides to
go on. So iterations of milliseconds cost a broadcast, not a journey to the service and an entry in
its journal, while an instruction waits at most `every_s` and one iteration. Iterations longer than
that ask every time. The time reported is the mean of all iterations since the last question; the
first one after a start or a resize is always reported alone (it meets cold caches).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from reshape.errors import ConfigError

ASK_EVERY_S = 0.05
VARIABLE = "RESHAPE_ASK_EVERY_S"


@dataclass
class Pace:
    """When rank 0 asks again, and what has passed since it last did.

    Parameters
    ----------
    every_s : least time between two questions, seconds; 0 asks at every resize point.
    """

    every_s: float = ASK_EVERY_S
    _asked_at: float = -inf
    _iterations: int = 0
    _seconds: float = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Pace:
        """Pace that an environment asks for.

        Raises
        ------
        ConfigError : RESHAPE_ASK_EVERY_S is no number of seconds.
        """
        text = environment.get(VARIABLE, str(ASK_EVERY_S))
        try:
            every_s = float(text)
        except ValueError:
            every_s = -1.0
        if not 0 <= every_s < inf:
            raise ConfigError(
                f"must be a number of seconds >= 0, got {text!r}",
                file="environment",
                field=VARIABLE,
            )
        return cls(every_s)

    def passed(self, iteration_s: float) -> None:
        """Note an iteration."""
        self._iterations += 1
        self._seconds += iteration_s

    def is_due(self) -> bool:
        """Whether it is time to ask."""
        return time.monotonic() - self._asked_at >= self.every_s

    def taken(self) -> float:
        """Mean time of the iterations since the last question, seconds; this one begins anew."""
        mean_s = self._seconds / max(1, self._iterations)
        self._asked_at, self._iterations, self._seconds = time.monotonic(), 0, 0.0
        return mean_s

    def reset(self) -> None:
        """Begin on another configuration: its first iteration is reported alone."""
        self._asked_at, self._iterations, self._seconds = -inf, 0, 0.0
