"""A step, as its script requests it, under a service that answers anything."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import msgspec
from answering import service
from any_messages import messages
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from reshape.errors import ReshapeError
from reshape.wire.codec import PROTOCOL, encode
from reshape.wire.identity import Identity
from scheduler.client.scripts.run_command import StepSession
from scheduler.protocol import messages as m

STEP = 7
JOB = m.Submission(["true"], 1, 60.0)
#: Frames that are no message, and messages of all types, among them those that are expected.
FRAMES = st.lists(st.binary(max_size=40), max_size=3) | messages(m.Message, {}).map(
    lambda fields: [PROTOCOL, msgspec.msgpack.encode(fields)]
)
EMPTY = encode(m.JobListing(now=0.0, jobs=[]))


def outcome(answer: Callable[[StepSession], object], frames: list[bytes]) -> object:
    """What a call of a session returns or raises if its first answer is in these frames.

    Further requests are answered with a refusal.
    """
    sent: list[list[bytes]] = [frames]

    def reply(request: m.Message) -> list[list[bytes]]:
        final = encode(m.Failure(id=request.id, message="refused"))
        return [sent.pop() if sent else final]

    with tempfile.TemporaryDirectory() as folder:
        endpoint = f"ipc://{folder}/socket"
        who = Identity(endpoint, 3, 1, "t", Path(folder), "script")
        session = StepSession(who)
        with service(endpoint, reply):
            try:
                return answer(session)
            except ReshapeError as error:
                return error
            finally:
                session.close()


@given(FRAMES)
@example(encode(m.Done(id=1)))
@example(encode(m.Submitted(id=1, job=STEP, label="3.0")))
@examples(100)
def test_a_request_is_accepted_or_ends_with_an_error(frames: list[bytes]) -> None:
    with patch("scheduler.client.scripts.run_command.ANSWER_S", 0.05):
        found = outcome(lambda session: session.start(JOB), frames)
    assert isinstance(found, m.Submitted | ReshapeError)


@given(FRAMES)
@example(EMPTY)
@examples(100)
def test_a_wait_is_answered_or_ends_with_an_error(frames: list[bytes]) -> None:
    with patch("scheduler.client.scripts.run_command.ANSWER_S", 0.05):
        found = outcome(lambda session: session.wait(STEP), frames)
    assert isinstance(found, m.JobInfo | ReshapeError)
