"""The service without sockets and processes: a request handler whose answers a test reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from reshape.wire import messages as m
from reshape.wire.codec import encode
from scheduler.config.settings import NodeConfig, ServeConfig
from scheduler.node.directory import ServiceDirectory
from scheduler.service.assembly import assemble
from scheduler.service.driver import Driver
from scheduler.service.permissions import Sender, owner
from scheduler.service.requests import RequestHandler

OWNER = owner("root")


class Desk:
    """A request handler whose answers a test reads; no node is up, so that jobs wait.

    Parameters
    ----------
    folder : service directory.
    accept_loss : go on with a journal of which acknowledged records are missing.
    options : fields of the configuration besides `nodes`.
    """

    def __init__(self, folder: Path, *, accept_loss: bool = False, **options: Any) -> None:
        self.sent: list[tuple[bytes, m.Message]] = []
        directory = ServiceDirectory(folder)
        directory.create()
        config = ServeConfig(nodes=(NodeConfig("local", 4),), **options)
        self.components = assemble(
            directory, config, lambda *sent: self.sent.append(sent), accept_loss=accept_loss
        )
        self.driver = Driver(self.components)
        self.handler = RequestHandler(self.components, self.driver, Counter())
        self.driver.register_nodes(["local"])

    def ask(self, peer: bytes, message: m.Message, sender: Sender = OWNER) -> list[m.Message]:
        """Handle a message and the turn that follows; return the answers to the peer."""
        self.sent.clear()
        self.handler.handle(peer, encode(message), sender)
        self.turn()
        return [answer for to, answer in self.sent if to == peer]

    def turn(self) -> None:
        self.handler.answer_waiting(self.driver.run_turn())
        self.handler.reads.advance()
        self.components.journal.commit()

    def hello(self, groups: list[m.GroupStatus]) -> list[m.Message]:
        """Report as the agent of the node; return what the service sends it."""
        secret = self.components.directory.read_secret()
        return self.ask(
            b"agent",
            m.AgentHello(node="local", pid=7, secret=secret, groups=groups, restart_points=[]),
        )
