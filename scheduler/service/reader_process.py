"""The reader: a process that answers what only reads, so that no question delays a decision.

It opens the journal for reading alone and connects to the socket of the service like any other
peer, with an identity that only the service and it have. It ends when its standard input is closed,
which is when the service has ended. It keeps nothing: a reader that dies is replaced.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import msgspec
import zmq

from scheduler.replay.journal_reader import JournalReader, reading
from scheduler.service.questions import Question, answer

log = logging.getLogger(__name__)

#: First frames of the messages from a reader.
READY, ANSWER = b"ready", b"answer"

_question = msgspec.msgpack.Decoder(Question)


def main() -> None:
    """Run a reader; the arguments are the journal and the endpoint of the service."""
    journal, endpoint = sys.argv[1:]
    identity = bytes.fromhex(sys.stdin.readline())
    logging.basicConfig(level=logging.WARNING, format="reader %(levelname)s %(message)s")
    with reading(Path(journal)) as reader, zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IDENTITY, identity)
        socket.connect(endpoint)
        socket.send(READY)
        _serve(socket, reader)
        socket.close()


def _serve(socket: zmq.Socket[bytes], journal: JournalReader) -> None:
    """Answer questions until the standard input is closed."""
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if socket in ready:
            number, request, blob = socket.recv_multipart()
            frames = answer(journal, int(request), _question.decode(blob))
            socket.send_multipart([ANSWER, number, *frames])
        elif ready:
            return


if __name__ == "__main__":
    main()
