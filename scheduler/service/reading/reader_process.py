"""The reader: a process that answers what only reads, so that no question delays a decision.

It opens the journal for reading alone and connects to the socket of the service like any other
peer, with an identity that only the service and it have. It ends when its standard input is closed,
which is when the service has ended. It keeps nothing: a reader that dies is replaced.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import zmq

from scheduler.journal.journal_reader import JournalReader, reading
from scheduler.service.reading.questions import Question, answer

log = logging.getLogger(__name__)

#: First frames of the messages from a reader.
READY, ANSWER = b"ready", b"answer"


def answer_questions(
    make: Callable[[JournalReader], Callable[[int, bytes], list[bytes]]],
) -> None:
    """Answer the questions of a service until the standard input is closed.

    The arguments of the process are the journal and the endpoint of the service.

    Parameters
    ----------
    make : makes the function that answers encoded questions from the journal; it takes the number
        of the request and the question, and returns the frames of a message.
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
        _serve(socket, make(reader))
        socket.close()


def _serve(socket: zmq.Socket[bytes], answered: Callable[[int, bytes], list[bytes]]) -> None:
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if socket in ready:
            number, request, question = socket.recv_multipart()
            socket.send_multipart([ANSWER, number, *answered(int(request), question)])
        elif ready:
            return


def _answers(journal: JournalReader) -> Callable[[int, bytes], list[bytes]]:
    decode = msgspec.msgpack.Decoder(Question).decode
    answered = partial(answer, journal)
    return lambda request, question: answered(request, decode(question))


if __name__ == "__main__":
    answer_questions(_answers)
