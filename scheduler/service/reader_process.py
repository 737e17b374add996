"""The reader: a process that answers what only reads, so that no question delays a decision.

It opens the journal for reading alone and connects to the socket of the service like any other
peer, with an identity that only the service and it have. It ends when its standard input is closed,
which is when the service has ended. It keeps nothing: a reader that dies is replaced.

What only the process that decides can contribute to an answer, the jobs that have not ended and why
they wait, is a part of the question. The forecaster is another such process, with questions of its
own (`scheduler.service.forecaster_process`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import zmq

from reshape.errors import ReshapeError
from reshape.wire.codec import PROTOCOL, encode
from scheduler.journal.ended_jobs import explanation, page
from scheduler.journal.journal_reader import JournalReader, reading
from scheduler.model.arrays import TaskOf
from scheduler.model.events import JobSpec
from scheduler.protocol import messages as m

_encoder = msgspec.msgpack.Encoder()


class ListQuestion(msgspec.Struct, tag=True):
    """Which jobs there are.

    Attributes
    ----------
    live : descriptions (`JobInfo`, MessagePack) of the jobs that have not ended, by number.
    """

    query: m.ListJobs
    now: float
    live: dict[int, msgspec.Raw]


class ExplainQuestion(msgspec.Struct, tag=True):
    """What happened to a job.

    Attributes
    ----------
    present : why it waits now, if it does.
    task_of : what makes it a task, also if it has never been a job.
    """

    job: int
    present: list[m.Story]
    task_of: TaskOf | None = None


Question: TypeAlias = ListQuestion | ExplainQuestion


def answer(journal: JournalReader, request: int, question: Question) -> list[bytes]:
    """Answer a question with the frames of a message; an error is answered with `Failure`."""
    try:
        if isinstance(question, ListQuestion):
            return [PROTOCOL, _listing(journal, request, question)]
        return encode(_explanation(journal, request, question))
    except ReshapeError as error:
        return encode(m.Failure(id=request, message=str(error)))


def _listing(journal: JournalReader, request: int, question: ListQuestion) -> bytes:
    """Encode a `JobListing` of descriptions that are encoded already."""
    query = question.query
    jobs, before = dict(question.live), None
    if query.ended:
        ended, before = page(journal, query)
        jobs = ended | jobs
    rows = [jobs[number] for number in sorted(jobs)]
    header = {"type": m.JobListing.__struct_config__.tag, "id": request, "now": question.now}
    return _encoder.encode(header | {"jobs": rows, "before": before})


def _explanation(journal: JournalReader, request: int, question: ExplainQuestion) -> m.Explanation:
    number = question.job
    lines = explanation(journal, number, question.task_of)
    told, present = [*lines, *question.present], len(question.present)
    return m.Explanation(id=request, job=number, lines=told, present=present)


class ForecastQuestion(msgspec.Struct):
    """What happens from the present state on.

    Attributes
    ----------
    now : time of the service, Unix seconds.
    spec : request of the job that is not submitted, if `query` is about one.
    """

    query: m.RequestForecast
    now: float
    spec: JobSpec | None = None


#: First frames of the messages from a reader.
READY, ANSWER = b"ready", b"answer"
#: Milliseconds after which a reader that has no question yet says again that it is ready.
READY_MS = 1000


def answer_questions(
    kind: Any, make: Callable[[JournalReader], Callable[[int, Any], list[bytes]]]
) -> None:
    """Answer the questions of a service until the standard input is closed.

    The arguments of the process are the journal and the endpoint of the service.

    Parameters
    ----------
    kind : type of the questions.
    make : makes the function that answers questions from the journal; it takes the number of the
        request and the question, and returns the frames of a message.
    """
    journal, endpoint = sys.argv[1:]
    identity = bytes.fromhex(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="reader %(levelname)s %(message)s")
    with reading(Path(journal)) as reader, zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IDENTITY, identity)
        socket.connect(endpoint)
        socket.send(READY)
        answered, decode = make(reader), msgspec.msgpack.Decoder(kind).decode
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(sys.stdin.fileno(), zmq.POLLIN)
        wait_ms: int | None = READY_MS
        while True:
            ready = dict(poller.poll(wait_ms))
            if not ready:  # the service may have closed all connections before it read it
                socket.send(READY)
                continue
            if socket not in ready:
                break
            wait_ms = None
            number, request, question = socket.recv_multipart()
            socket.send_multipart([ANSWER, number, *answered(int(request), decode(question))])
        socket.close()


if __name__ == "__main__":
    answer_questions(Question, lambda journal: partial(answer, journal))
