"""A ROUTER socket in a thread that answers requests as a function says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import zmq

from scheduler.protocol.messages import Message, decode

Answer = Callable[[Message], list[list[bytes]]]  # a request in, frames out


@contextmanager
def service(endpoint: str, answer: Answer) -> Iterator[None]:
    """Answer on a ROUTER socket until the block ends."""
    over = threading.Event()
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)

    def serve() -> None:
        while not over.is_set():
            if socket.poll(10):
                peer, *frames = socket.recv_multipart()
                for reply in answer(decode(frames)):
                    socket.send_multipart([peer, *reply])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        socket.close(0)
        context.term()
