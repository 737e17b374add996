"""What a message means: events for the gate, and what is answered."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib.metadata import version

from reshape.errors import ProtocolError, ReshapeError
from reshape.wire import messages as m
from scheduler.model.events import JobCancelled, JobStarted
from scheduler.model.job import FINAL, JobState
from scheduler.service.assembly import Parts
from scheduler.service.components.remap_scheduler import wrong_size
from scheduler.service.driver import Gate
from scheduler.text.counts import counted

log = logging.getLogger(__name__)


class Answers:
    """Takes messages and answers them, some of them later.

    Attributes
    ----------
    started_at : Unix seconds.
    asked_to_stop : who has asked the service to stop, and the number of the request.
    """

    def __init__(self, parts: Parts, gate: Gate) -> None:
        self._parts, self._gate = parts, gate
        self._core, self._journal = parts.core, parts.journal
        self._monitor, self._remap = parts.monitor, parts.remap
        self._applications = parts.applications
        self.started_at = parts.clock()
        self._waiting: list[tuple[int, bytes, int]] = []  # job, who waits, request
        self.asked_to_stop: tuple[bytes, int] | None = None

    def take(self, identity: bytes, frames: list[bytes]) -> None:
        """Read a message and see to its answer."""
        request = 0
        try:
            message = m.decode(frames)
            request = message.id
            answer = self._answer(identity, message)
        except ProtocolError as error:
            log.warning("refused: %s", error)
            answer = m.Failure(message=str(error))
        except ReshapeError as error:
            answer = m.Failure(message=str(error))
        if answer is not None:
            answer.id = request
            self._parts.send(identity, answer)

    def tell_waiting(self) -> None:
        """Answer those who wait for jobs that have ended."""
        still = []
        for number, identity, request in self._waiting:
            job = self._core.jobs[number]
            if job.state in FINAL:
                info = [self._applications.info(job)]
                jobs = m.Jobs(id=request, now=self._parts.clock(), jobs=info)
                self._parts.send(identity, jobs)
            else:
                still.append((number, identity, request))
        self._waiting = still

    def _later(self, identity: bytes, request: int, make: Callable[[], m.Message]) -> None:
        """Answer after the events of this turn were decided on."""

        def answer() -> None:
            message = make()
            message.id = request
            self._parts.send(identity, message)

        self._gate.after.append(answer)

    def _answer(self, identity: bytes, message: m.Message) -> m.Message | None:
        check = self._applications.check_token
        match message:
            case m.AtResizePoint():
                job = check(message.job, message.token)
                self._gate.events += self._remap.on_resize_point(job, message)
                instruct = self._remap.instruction
                self._later(identity, message.id, lambda: instruct(job, message))
                return None
            case m.AgentHello():
                return self._on_agent(identity, message)
            case m.Hello():
                return self._on_program(message)
            case m.GroupReady():
                job = check(message.job, message.token)
                return self._remap.on_group_ready(job, identity, message)
            case m.JoinPort():
                self._remap.on_port(check(message.job, message.token), message)
                return m.Done()
            case m.ResizeReport():
                job = check(message.job, message.token)
                self._gate.events += self._remap.on_report(job, message)
                return m.Done()
            case m.Facts():
                check(message.job, message.token)
                self._journal.add_facts(message.job, message.facts)
                return m.Done()
            case _:
                return self._on_command(identity, message)

    def _on_agent(self, identity: bytes, hello: m.AgentHello) -> m.Message:
        events = self._monitor.on_hello(identity, hello, self._parts.clock())
        if isinstance(events, str):
            return m.Failure(message=events)
        for event in events:  # one by one: a node is lost before it joins again
            self._gate.decide([event])
        return m.Done()

    def _on_program(self, hello: m.Hello) -> m.Message:
        job = self._applications.check_token(hello.job, hello.token)
        if hello.group in job.groups and hello.size != len(job.groups[hello.group]):
            return m.Failure(message=wrong_size(hello.size, job, hello.group))
        if job.state is JobState.STARTING:
            self._gate.events.append(JobStarted(at=self._parts.clock(), job=job.id))
        return m.Welcome(topology=job.spec.topology, verify=self._parts.config.verify)

    def _on_command(self, identity: bytes, message: m.Message) -> m.Message | None:
        apps = self._applications
        match message:
            case m.Submit():
                event = apps.submit(message.submission)
                self._gate.events.append(event)
                self._later(identity, message.id, lambda: m.Submitted(job=event.job))
                return None
            case m.Cancel():
                self._gate.events.append(apps.cancel(message.job))
                self._later(identity, message.id, m.Done)
                return None
            case m.ListJobs():
                jobs = apps.listing(message.job, message.ended)
                return m.Jobs(now=self._parts.clock(), jobs=jobs)
            case m.Explain():
                return m.Explanation(job=message.job, lines=apps.explanation(message.job))
            case m.Wait():
                self._waiting.append((apps.job(message.job).id, identity, message.id))
                self._gate.news.add(message.job)  # it may have ended long ago
                return None
            case m.ServerInfo():
                return self._info()
            case m.Stop():
                return self._on_stop(identity, message)
        return m.Failure(message=f"a {type(message).__name__} is nothing to ask of the service")

    def _on_stop(self, identity: bytes, message: m.Stop) -> m.Message | None:
        unfinished = [job for job in self._core.jobs.values() if job.state not in FINAL]
        if unfinished and not message.kill:
            return m.Failure(
                message=f"{counted(len(unfinished), 'job')} queued or running: "
                "cancel first, or stop with --kill"
            )
        now = self._parts.clock()
        self._gate.events += [
            JobCancelled(at=now, job=job.id, why="the service was stopped") for job in unfinished
        ]
        self.asked_to_stop = (identity, message.id)  # answered when all is over
        return None

    def _info(self) -> m.Info:
        config, machine = self._parts.config, self._core.machine
        jobs = list(self._core.jobs.values())
        ended = sum(job.state in FINAL for job in jobs)
        queued = sum(job.state is JobState.PENDING for job in jobs)
        nodes = [
            (name, count, "up" if name in self._monitor.agents else "down")
            for name, count in self._monitor.nodes.items()
        ]
        return m.Info(
            pid=os.getpid(),
            started_at=self.started_at,
            now=self._parts.clock(),
            scenario=config.scenario,
            processors=config.processors,
            free=machine.free_count,
            nodes=nodes,
            queued=queued,
            running=len(jobs) - ended - queued,
            ended=ended,
            directory=str(self._parts.directory.path),
            version=version("reshape-mpi"),
            resources=machine.resources,
        )
