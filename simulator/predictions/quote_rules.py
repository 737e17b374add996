"""Which starts of jobs are forecast at their submission."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class QuoteRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs are forecast when they are submitted, and how.

    Parameters
    ----------
    every : of the jobs that have to wait, every n-th is forecast.
    run_times : forecasts expect the "estimates" of the scheduler, or the "exact" run times.
    futures : number of futures with arrivals of further jobs that give quantiles of each start; 0:
        there are none.
    """

    every: Annotated[int, msgspec.Meta(ge=1)] = 1
    run_times: Literal["estimates", "exact"] = "estimates"
    futures: Annotated[int, msgspec.Meta(ge=0)] = 0
