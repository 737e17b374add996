"""Calibration: quantiles of waits, corrected by what became of earlier forecasts.

Futures know what is drawn, not how users, arrivals and rules go together. Outcomes of earlier
forecasts tell how far their quantiles were off. The score of an outcome is its wait divided by the
quantile, and a new quantile is multiplied by the score that the latest outcomes did not exceed with
the probability of the quantile. If forecasts are exchangeable, the start then comes no later than
P90 with a probability of at least 0.9, whatever is wrong with the futures.

This is conformalized quantile regression (Y. Romano, E. Patterson and E. J. Candès, NeurIPS 2019),
for each quantile alone and with logarithms of waits. Sites change, so only the latest outcomes
count; I. Gibbs and E. Candès (NeurIPS 2021) discuss distributions that change.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from scheduler.forecasts.answers import Spread
from scheduler.forecasts.futures import LEVELS, Spreads

#: Latest outcomes that a calibration uses.
LATEST = 50
#: Fewer outcomes do not tell what nine tenths of them do not exceed.
LEAST = 9
#: Seconds added to waits before they are divided: errors of waits far below this are taken as
#: differences, errors of waits far above as ratios. See docs/studies/waits.md.
ADDED_S = 3600.0


class ForecastOutcome(NamedTuple):
    """What became of a forecast of a job that had to wait.

    Parameters
    ----------
    quantiles : of its wait at `LEVELS`, s; inf beyond the horizon.
    wait_s : how long it waited.
    """

    quantiles: tuple[float, ...]
    wait_s: float

    @classmethod
    def of(cls, spread: Spread, now: float, started_at: float) -> ForecastOutcome:
        """Make it from the quantiles of a start that were computed at a time, s, and the start."""
        return cls(tuple(at - now for at in _times(spread)), started_at - now)


class Calibration:
    """Corrects quantiles; a calibration of fewer than `LEAST` outcomes leaves them as they are.

    Parameters
    ----------
    outcomes : in order of time; the `LATEST` are used.

    Attributes
    ----------
    count : number of outcomes that it uses, 0 if it corrects nothing.
    """

    def __init__(self, outcomes: Sequence[ForecastOutcome] = ()) -> None:
        latest = outcomes[-LATEST:]
        self.count = len(latest) if len(latest) >= LEAST else 0
        self._factors = [1.0] * len(LEVELS)
        if self.count:
            waits = np.array([outcome.wait_s for outcome in latest])
            quantiles = np.array([outcome.quantiles for outcome in latest])
            scores = np.sort((waits[:, None] + ADDED_S) / (quantiles + ADDED_S), axis=0)
            # The smallest score with this share of n + 1 exchangeable ones at or below it.
            ranks = [ceil((self.count + 1) * level / 100) for level in LEVELS]
            self._factors = [float(scores[rank - 1, i]) for i, rank in enumerate(ranks)]

    def corrected(self, spreads: Spreads, now: float) -> Spreads:
        """Correct the quantiles of a start; those of the end move with them.

        Parameters
        ----------
        now : time at which the job would start if it did not wait, s.

        Returns
        -------
        Quantiles that do not decrease from P10 to P90. Those of a job that starts at once in all
        futures stay: outcomes are those of jobs that waited.
        """
        starts, ends = _times(spreads.start), _times(spreads.end)
        if not self.count or starts[-1] == now:
            return spreads
        moved = [
            at if at == inf else now + max((at - now + ADDED_S) * factor - ADDED_S, 0.0)
            for at, factor in zip(starts, self._factors, strict=True)
        ]
        later = np.maximum.accumulate(moved).tolist()
        ended = [
            end if inf in (start, end) else end + (new - start)
            for start, new, end in zip(starts, later, ends, strict=True)
        ]
        return Spreads(Spread.of(later), Spread.of(np.maximum.accumulate(ended).tolist()))


def _times(spread: Spread) -> list[float]:
    """Times of a spread, s; inf beyond the horizon."""
    return [inf if at is None else at for at in (spread.p10, spread.p50, spread.p90)]
