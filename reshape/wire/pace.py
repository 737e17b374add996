"""The rate at which a job sends requests to its service at resize points.

At each resize point rank 0 broadcasts the decision in one small message. It asks the service only
if `every_s` seconds have passed since the last request; otherwise the decision is to proceed. So an
iteration of milliseconds costs a broadcast, but no request and no record in the journal, and an
order of the service waits at most `every_s` and one iteration. A job with longer iterations asks at
each resize point. The reported time is the mean of all iterations since the last request. The first
iteration after a start or a resize is reported alone, because its caches are cold.
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
    """When rank 0 asks again, and the iterations since the last request.

    Parameters
    ----------
    every_s : least time between two requests, seconds; 0: ask at every resize point.
    """

    every_s: float = ASK_EVERY_S
    _asked_at: float = -inf
    _iterations: int = 0
    _seconds: float = 0.0

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Pace:
        """Read the pace from the environment.

        Raises
        ------
        ConfigError : RESHAPE_ASK_EVERY_S is not a number of seconds.
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
        """Whether it is time to ask, with an iteration to report."""
        return self._iterations > 0 and time.monotonic() - self._asked_at >= self.every_s

    def taken(self) -> float:
        """Mean time of the iterations since the last request, seconds; resets the mean."""
        mean_s = self._seconds / max(1, self._iterations)
        self._asked_at, self._iterations, self._seconds = time.monotonic(), 0, 0.0
        return mean_s

    def reset(self) -> None:
        """Begin a configuration, whose first iteration is reported alone."""
        self._asked_at, self._iterations, self._seconds = -inf, 0, 0.0
