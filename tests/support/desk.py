"""The service without agents and jobs: a request handler, called by a test or over a socket."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import zmq

from reshape.wire.codec import MAX_ANSWER_BYTES, encode
from reshape.wire.connection import ServerFile
from scheduler.config.settings import NodeConfig, ServeConfig
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode
from scheduler.service.assembly import Components
from scheduler.service.driver import Driver
from scheduler.service.permissions import Sender, owner
from scheduler.service.reader_process import answer
from scheduler.service.requests import RequestHandler

OWNER = owner("root")


def request_handler(
    components: Components, driver: Driver, refused: Counter[str] | None = None
) -> RequestHandler:
    """Make a request handler that reads the journal itself, and knows no forecasts."""

    def relay(peer: bytes, frames: list[bytes]) -> None:
        components.send(peer, decode(frames, MAX_ANSWER_BYTES))

    def ask_reader(peer: bytes, request: int, question: Any) -> None:
        relay(peer, answer(components.journal, request, question))

    def ask_forecaster(peer: bytes, request: int, _question: Any) -> None:
        relay(peer, encode(m.Failure(id=request, message="there are no forecasts")))

    refused = Counter() if refused is None else refused
    return RequestHandler(components, driver, refused, relay, ask_reader, ask_forecaster)


class Desk:
    """A request handler whose answers a test reads; a node is up when its agent has said hello.

    Parameters
    ----------
    folder : service directory.
    nodes : nodes that the service has.
    accept_loss : go on with a journal of which acknowledged records are missing.
    options : fields of the configuration besides `nodes`.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[NodeConfig] = (NodeConfig("local", 4),),
        *,
        accept_loss: bool = False,
        **options: Any,
    ) -> None:
        self.sent: list[tuple[bytes, m.Message]] = []
        directory = ServiceDirectory(folder)
        directory.create()
        config = ServeConfig(nodes=tuple(nodes), **options)
        self.components = Components(
            directory, config, lambda *sent: self.sent.append(sent), accept_loss=accept_loss
        )
        self.driver = Driver(self.components)
        self.handler = request_handler(self.components, self.driver)
        self.driver.cancel_as_requested()
        self.driver.register_nodes([node.name for node in nodes])

    def ask(self, peer: bytes, message: m.Message, sender: Sender = OWNER) -> list[m.Message]:
        """Handle a message and the turn that follows; return the answers to the peer."""
        self.sent.clear()
        self.handler.handle(peer, encode(message), sender)
        self.turn()
        return [answer for to, answer in self.sent if to == peer]

    def turn(self) -> None:
        self.handler.answer_waiting(self.driver.run_turn())
        while self.handler.reads.pending:  # one call may not be enough on a busy machine
            self.handler.reads.advance()
        self.components.journal.commit()

    def hello(
        self, groups: Sequence[m.GroupStatus] = (), node: str = "local", **fields: Any
    ) -> list[m.Message]:
        """Report as the agent of a node; return what the service sends it."""
        secret = self.components.directory.read_secret()
        report = m.AgentHello(
            node=node, pid=7, secret=secret, groups=list(groups), restart_points=[], **fields
        )
        return self.ask(f"agent {node}".encode(), report)


@contextmanager
def served_desk(folder: Path, sender: Sender = OWNER, **options: Any) -> Iterator[Path]:
    """Serve a desk at the socket of a directory, for commands of this process.

    Parameters
    ----------
    sender : the identity of all clients.
    options : fields of the configuration.

    Yields
    ------
    the directory.
    """
    ready, over = threading.Event(), threading.Event()

    def serve() -> None:
        desk = Desk(folder, **options)
        directory = desk.components.directory
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.bind(directory.endpoint)
            file = ServerFile(endpoint=directory.endpoint, pid=os.getpid(), started_at=time.time())
            directory.server_file.write_bytes(msgspec.json.encode(file))
            ready.set()
            while not over.is_set():
                if not socket.poll(10):
                    continue
                while socket.poll(0):
                    peer, *frames = socket.recv_multipart()
                    desk.handler.handle(peer, frames, sender)
                desk.turn()
                while desk.sent:
                    to, answer = desk.sent.pop(0)
                    socket.send_multipart([to, *encode(answer)])
        desk.components.journal.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(30)
        yield folder
    finally:
        over.set()
        thread.join()
