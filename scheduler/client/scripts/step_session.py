"""What `reshape run` asks of the service: to start a step, to wait for it, to end it.

All requests may be repeated, so that a step goes on across restarts of the service.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.wire.connection import located
from reshape.wire.identity import Identity
from scheduler.protocol import messages as m
from scheduler.protocol.answers import expect
from scheduler.protocol.client import ServiceConnection

#: Seconds for an answer, after which a request is repeated.
ANSWER_S = 2.0
#: Seconds between two attempts while there is no service, or no connection to it.
RETRY_S = 0.2
#: Seconds between two looks at the output, and at signals.
LOOK_S = 0.1


class StepSession:
    """The requests of a job script for one of its steps.

    Parameters
    ----------
    script : identity of the script.
    key : name of the step that no other one has.
    """

    def __init__(self, script: Identity, key: str) -> None:
        self._script, self._key = script, key
        self._client: ServiceConnection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def start(self, submission: m.Submission) -> m.Submitted:
        """Request the step; wait for the service as long as it is away.

        Raises
        ------
        ReshapeError : the service refuses it.
        """
        who = self._script
        while True:
            request = m.RunStep(job=who.job, token=who.token, key=self._key, submission=submission)
            try:
                answer = self._connected().request(request, ANSWER_S)
            except ServiceUnavailable:
                time.sleep(RETRY_S)
            else:
                return expect(m.Submitted, answer)

    def wait(
        self, step: int, look: Callable[[], None], is_cancelled: Callable[[], bool]
    ) -> m.JobInfo:
        """Wait for the end of the step and describe it.

        Parameters
        ----------
        look : called now and then.
        is_cancelled : whether the step is to be ended.

        Raises
        ------
        ReshapeError : the service does not know the step.
        """
        who, sent_at, is_told = self._script, 0.0, False
        end = m.EndStep(job=who.job, token=who.token, step=step)
        while True:
            look()
            try:
                client = self._connected()
                is_due = time.monotonic() - sent_at > ANSWER_S
                if is_due or (is_cancelled() and not is_told):
                    sent_at, is_told = time.monotonic(), is_cancelled()
                    if is_told:
                        client.send(end, RETRY_S)
                    client.send(m.WaitStep(job=who.job, token=who.token, step=step), RETRY_S)
                answer = client.receive(LOOK_S)
            except ServiceUnavailable:
                time.sleep(RETRY_S)
                continue
            if isinstance(answer, m.Failure):
                raise ReshapeError(answer.message)
            if isinstance(answer, m.JobListing):
                ended = next((job for job in answer.jobs if job.job == step), None)
                if ended is None:
                    raise ReshapeError(f"the service does not describe the step, job {step}")
                return ended

    def _connected(self) -> ServiceConnection:
        if self._client is None:
            server = self._script.server
            endpoint, access = located(server) if server.startswith("/") else (server, None)
            self._client = ServiceConnection(endpoint, access)
        return self._client
