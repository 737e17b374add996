"""The reader of a service: killed or stopped, it is replaced and nothing is lost."""

from __future__ import annotations

import os
import signal
from math import inf
from pathlib import Path
from typing import Any

import psutil
import zmq
from process_words import words_of
from waiting import wait_until

from scheduler.journal.journal import Journal
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode
from scheduler.service.later_answers import ReaderLink
from scheduler.service.reader_process import ListQuestion


def readers_of(process: int) -> list[int]:
    """Return the process numbers of the readers that a process has: one at most."""
    children = psutil.Process(process).children()
    module = "scheduler.service.reader_process"
    return [child.pid for child in children if module in words_of(child)]


def reader_of(service: Any) -> int:
    """Return the process number of the service's reader, waiting for it."""
    [reader] = wait_until(lambda: readers_of(service.process.pid))
    return reader


def history(service: Any) -> list[int]:
    answer = service.ask(m.ListJobs(ended=True, live=False))
    assert isinstance(answer, m.JobListing)
    return [job.job for job in answer.jobs]


def test_a_reader_that_is_killed_is_replaced(service: Any) -> None:
    number = service.submit(["true"], 1)
    service.ask(m.Wait(job=number))
    assert not readers_of(service.process.pid), "it is started with the first question"
    assert history(service) == [number]
    first = reader_of(service)
    os.kill(first, signal.SIGKILL)
    assert history(service) == [number]
    second = reader_of(service)
    assert second != first
    explanation = service.ask(m.Explain(job=number))
    assert explanation.lines[0].text.startswith("submitted for 1")


class Asking:
    """The part of a service that asks a reader, and loses its first messages."""

    def __init__(
        self,
        directory: ServiceDirectory,
        router: zmq.Socket[bytes],
        patience_s: float,
        lost: int = 0,
    ) -> None:
        self._router, self._lost, self.answers = router, lost, list[m.Message]()
        self.link = ReaderLink("reader", directory, self._send, self._relay, patience_s)

    def _send(self, identity: bytes, frames: list[bytes]) -> bool:
        self._router.send_multipart([identity, *frames])
        return True

    def _relay(self, _peer: bytes, frames: list[bytes]) -> None:
        self.answers.append(decode(frames))

    def ask(self) -> m.Message:
        """Return the answer of the reader, or why there is none."""
        question = ListQuestion(m.ListJobs(ended=True, live=False), 0.0, {})
        self.link.ask(b"peer", 1, question)

        def answered() -> bool:
            if self._router.poll(20):
                identity, *frames = self._router.recv_multipart()
                if self._lost:
                    self._lost -= 1
                elif identity == self.link.identity:
                    self.link.on_message(frames)
            self.link.on_tick()
            self.link.forward()
            return bool(self.answers)

        wait_until(answered)
        return self.answers.pop()


def test_a_reader_that_stands_still_is_replaced(tmp_path: Path) -> None:
    directory = ServiceDirectory(tmp_path / "service")
    directory.create()
    Journal(directory.journal).close()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(directory.endpoint)
        asking = Asking(directory, router, 1.0)
        wait_until(lambda: isinstance(asking.ask(), m.JobListing))  # it has started
        [first] = readers_of(os.getpid())
        os.kill(first, signal.SIGSTOP)
        refused = asking.ask()
        assert isinstance(refused, m.Failure)
        assert "the reader of the service did not answer within 1 s" in refused.message
        wait_until(lambda: isinstance(asking.ask(), m.JobListing))
        assert readers_of(os.getpid()) != [first]
        asking.link.close()


def test_a_reader_whose_first_message_is_lost_answers(tmp_path: Path) -> None:
    """A service that closes all connections at once may not have read it."""
    directory = ServiceDirectory(tmp_path / "service")
    directory.create()
    Journal(directory.journal).close()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(directory.endpoint)
        asking = Asking(directory, router, inf, lost=1)
        assert isinstance(asking.ask(), m.JobListing)
        assert not router.poll(2000), "a reader that has got a question says nothing by itself"
        asking.link.close()
