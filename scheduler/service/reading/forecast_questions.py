"""Questions for forecasts, which the forecaster of a service answers.

See `scheduler.service.reading.forecaster_process`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from scheduler.model.events import JobSpec
from scheduler.protocol import messages as m


class StartsQuestion(msgspec.Struct, tag=True):
    """When the queued jobs start; `now` is the time of the service, Unix seconds."""

    query: m.ForecastStarts
    now: float


class WaitingQuestion(msgspec.Struct, tag=True):
    """What a queued job waits for, and what would change that."""

    query: m.ForecastJob
    now: float


class QuoteQuestion(msgspec.Struct, tag=True):
    """When a job would start.

    Attributes
    ----------
    spec : its request; None if the submission holds none.
    refusal : why the service refuses the submission; "" if it accepts it.
    """

    query: m.RequestQuote
    now: float
    spec: JobSpec | None
    refusal: str = ""


ForecastQuestion: TypeAlias = StartsQuestion | WaitingQuestion | QuoteQuestion


def spec_of(submission: m.Submission) -> JobSpec | None:
    """Return the request of a submission that is refused; None if it holds none."""
    try:
        return JobSpec(
            submission.processors,
            submission.walltime_s,
            submission.max_processors,
            submission.topology,
            resources={name: amount for name, amount in submission.resources.items() if amount},
            reservation=submission.reservation,
        )
    except ValueError:
        return None
