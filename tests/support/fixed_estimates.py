"""Estimates that are the same for all jobs, so that many of them expire."""

from __future__ import annotations

import msgspec

from scheduler.model.job import Job
from scheduler.predictions.predictor import Predictor


class Constant(Predictor, msgspec.Struct, frozen=True):
    """Predictor of one run time, s."""

    run_s: float = 60.0

    def predictor(self) -> Predictor:
        return self

    def predict(self, job: Job) -> float:
        return self.run_s
