"""Messages of a job script about the steps of its job; each proves by the token who sends it."""

from __future__ import annotations

from typing import TypeAlias

from reshape.wire.messages import JobMessage
from scheduler.protocol.command_messages import Submission


class RunStep(JobMessage):
    """Request a step; answered by Submitted once the request is durable.

    A repetition with the same key requests no further step.

    Attributes
    ----------
    job, token : of the script.
    key : a name that the script uses once.
    submission : program, processors, environment and output of the step; what it does not say, such
        as user and queue, is that of the job.
    """

    key: str
    submission: Submission


class WaitStep(JobMessage):
    """Answered by JobListing, with the step alone, when the step has ended."""

    step: int


class EndStep(JobMessage):
    """Cancel a step; answered by Done, also if it has ended."""

    step: int

    def log_text(self) -> str:
        """Say what the message changes."""
        return f"step {self.step} of job {self.job} is ended"


StepMessage: TypeAlias = RunStep | WaitStep | EndStep
