"""The service: one socket, one loop, one gate through which every decision goes.

The parts carry the names of PRIO, section 2: system monitor, application scheduler, job startup,
remap scheduler; the performance profiler sits in the decision core. What a message means becomes
events; the events of one turn of the loop are written to the journal and handed to the core
together; its orders are written too, and then processes are made what the core's state says.

Started again after its death, the service replays its journal and meets agents that kept the jobs
running and tell it all they know.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import signal
import time
from collections.abc import Callable
from importlib.metadata import version

import msgspec
import zmq
import zmq.asyncio

from reshape import messages as m
from reshape.client import ServerFile
from reshape.errors import ProtocolError, ReshapeError
from scheduler.config import ServeConfig, reserved
from scheduler.core.events import (
    Event,
    JobCancelled,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    ResizePoint,
    Wakeup,
)
from scheduler.core.orders import Continue, Order, Requeue, WakeAt
from scheduler.core.state import FINAL, JobState
from scheduler.service.admission import Admission
from scheduler.service.applications import ApplicationScheduler
from scheduler.service.directory import ServiceDirectory
from scheduler.service.ends import JobEnds
from scheduler.service.journal import Journal
from scheduler.service.monitor import SystemMonitor
from scheduler.service.recovery import recover
from scheduler.service.remap import RemapScheduler, wrong_size
from scheduler.service.startup import JobStartup

log = logging.getLogger(__name__)

TICK_S = 0.25
#: How long agents that were told to stop are given before the socket closes.
FAREWELL_S = 5.0
#: All jobs are compared with their processes once in so many ticks, should news have been missed.
ROUND_TICKS = 20
#: Messages taken in one turn of the loop: what arrived together is decided together.
TURN = 256


def serve(directory: ServiceDirectory, config: ServeConfig) -> None:
    """Run the service of a directory in the foreground until it is stopped.

    Raises
    ------
    ReshapeError : another service runs there, or the journal cannot be used.
    """
    directory.create()
    with directory.lock() as free:
        if not free:
            raise ReshapeError(
                f"a service runs in {directory.path} already: "
                f"end it with 'reshape stop --dir {directory.path}', or choose another --dir"
            )
        asyncio.run(Service(directory, config).run())


class Service:
    """The service of one directory.

    Parameters
    ----------
    directory : created, and locked for this process.
    """

    def __init__(self, directory: ServiceDirectory, config: ServeConfig) -> None:
        self.directory, self.config = directory, config
        self.started_at = self._last = time.time()
        self.journal = Journal(directory.journal)
        self.core, self.launches = recover(self.journal, config)
        self._last = max(self._last, self.core.now)
        self._outbox: list[tuple[bytes, m.Message]] = []
        kept = reserved(config)
        self.monitor = SystemMonitor(directory, config.nodes, self.send, kept)
        self.startup = JobStartup(self.core, self.monitor, directory, self.launches)
        self.remap = RemapScheduler(
            self.core,
            self.journal,
            self.monitor,
            self.startup,
            config.deadlines,
            self.send,
            self.clock,
        )
        self.ends = JobEnds(self.core, self.monitor, self.startup, self.remap, self.clock)
        self.applications = ApplicationScheduler(
            self.core,
            self.journal,
            self.startup,
            self.remap,
            self.launches,
            self.clock,
            Admission(config),
        )
        self._events: list[Event] = []
        self._after: list[Callable[[], None]] = []
        self._waiting: list[tuple[int, bytes, int]] = []  # job, who waits, request
        self._alarms: list[float] = []
        self._news: set[int] = set()  # jobs that may differ from their processes
        self._unsettled: set[int] = set()  # jobs that do: something is to come, or to be repeated
        self._round: list[int] = []  # jobs still to be looked at in any case
        self._share = 1  # ... so many at a tick
        self._install_nodes()
        self._stop = asyncio.Event()
        self._ending = False  # told to stop: waits for jobs and agents to be gone
        self._asked_to_stop: tuple[bytes, int] | None = None
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._plain: zmq.Socket[bytes] = zmq.Socket.shadow(
            self._socket
        )  # for draining without a coroutine a message

    def clock(self) -> float:
        """Unix seconds that never go back."""
        self._last = max(self._last, time.time())
        return self._last

    def send(self, identity: bytes, message: m.Message) -> None:
        """Send to a peer at the end of the turn, when all it may follow from is in the journal."""
        self._outbox.append((identity, message))

    def _commit(self) -> None:
        """Write the journal, then send; a peer that is gone loses its message and asks again."""
        self.journal.commit()
        outbox, self._outbox = self._outbox, []
        for identity, message in outbox:
            try:
                self._plain.send_multipart([identity, *m.encode(message)], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                log.debug("cannot send %s: %s", type(message).__name__, error)

    # ------------------------------------------------------------------ birth and death

    def _install_nodes(self) -> None:
        """Number the processors of new nodes as they are configured, whoever comes up first."""
        now = self.clock()
        events: list[Event] = []
        for node in self.config.nodes:
            if node.name not in self.core.machine.nodes:
                events.append(self.monitor.joined(node.name, now))
                events.append(NodeLost(at=now, node=node.name))  # until its agent is here
        if events:
            self._decide(events)

    async def run(self) -> None:
        """Serve until stopped."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        path = self.directory.endpoint.removeprefix("ipc://")
        if os.path.exists(path):
            os.unlink(path)
        self._socket.bind(self.directory.endpoint)
        self._write_server_file()
        self._alarms = sorted(job.expected_end for job in self.core.live.values())
        log.info(
            "service pid=%d scenario=%s at %s",
            os.getpid(),
            self.config.scenario,
            self.directory.endpoint,
        )
        try:
            await self._loop()
        finally:
            self._farewell()

    async def _loop(self) -> None:
        ticked = 0.0
        while not self._stop.is_set():
            await self._socket.poll(round(1000 * TICK_S))
            for _ in range(TURN):
                try:
                    frames = self._plain.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                self._take(frames[0], frames[1:])
            now = time.monotonic()
            if now - ticked > TICK_S:
                ticked = now
                self._tick()
            self._turn()

    def _write_server_file(self) -> None:
        file = ServerFile(
            endpoint=self.directory.endpoint, pid=os.getpid(), started_at=self.started_at
        )
        draft = self.directory.server_file.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(file))
        draft.replace(self.directory.server_file)

    def _on_signal(self) -> None:
        """End: at once if jobs run, which go on under their agents; else with the agents."""
        if self.core.live or self._ending:
            self._stop.set()
        self._ending = True

    def _farewell(self) -> None:
        if self.core.live:
            jobs = sorted(self.core.live)
            log.warning("jobs %s go on under their agents; serve again to take them up", jobs)
        if self._asked_to_stop is not None:
            self.send(self._asked_to_stop[0], m.Done(id=self._asked_to_stop[1]))
        self._commit()
        self.directory.server_file.unlink(missing_ok=True)
        self._socket.close(linger=1000)
        self._context.term()
        self.journal.close()
        log.info("service ended")

    # ------------------------------------------------------------------ the gate

    def _turn(self) -> None:
        """Decide on what has come together, let processes follow, commit, and answer."""
        events, self._events = self._events, []
        after, self._after = self._after, []
        if events:
            self._decide(events)
        for answer in after:
            answer()
        if self._news or self.monitor.news:
            self._follow()
        self._commit()

    def _follow(self) -> None:
        """Let processes be what jobs say, and jobs what has become of processes."""
        core = self.core
        looked = self._news | self.monitor.news
        ended = [
            event
            for number in sorted(looked & core.live.keys())
            for event in self.ends.examine(core.live[number])
        ]
        if ended:
            self._decide(ended)
        looked |= self._news
        self._news, self.monitor.news = set(), set()
        for number in sorted(looked & core.jobs.keys()):
            self.startup.arrange(core.jobs[number])
            if self.startup.is_settled(core.jobs[number]):
                self._unsettled.discard(number)
            else:
                self._unsettled.add(number)
        self._answer_waiting()

    def _next_of_round(self) -> list[int]:
        """Jobs that are looked at although there is no news of them: all of them, in turn."""
        if not self._round:
            self._round = sorted(self.monitor.known_jobs() | self.core.live.keys(), reverse=True)
            self._share = 1 + len(self._round) // ROUND_TICKS
        part = self._round[-self._share :]
        del self._round[-self._share :]
        return part

    def _decide(self, events: list[Event]) -> list[Order]:
        durable = any(isinstance(event, JobSubmitted | JobCancelled) for event in events)
        orders = self.core.handle(events)
        self.journal.record(events, orders, durable=durable)
        for order in orders:
            if isinstance(order, WakeAt):
                heapq.heappush(self._alarms, order.at)
                continue
            if isinstance(order, Requeue):
                self.remap.progress.pop(order.job, None)  # it begins anew
            if not isinstance(order, Continue):
                log.info("%s", order)
                self._news.add(order.job)
        for event in events:
            if isinstance(event, NodeJoined | NodeLost):
                self._news |= self.core.live.keys() | self.monitor.known_jobs()
            elif not isinstance(event, ResizePoint | Wakeup):
                self._news.add(event.job)
        return orders

    def _tick(self) -> None:
        if self._ending and not self.core.live:
            if self.monitor.dismiss():
                self._stop.set()
            return
        self._news |= self._unsettled
        self._news.update(self._next_of_round())
        now = self.clock()
        for event in self.monitor.on_tick(now, hire=not self._ending):
            self._decide([event])
        self._events += self.remap.on_tick()
        if self._alarms and self._alarms[0] <= now:
            while self._alarms and self._alarms[0] <= now:
                heapq.heappop(self._alarms)
            self._events.append(Wakeup(at=now))
        self.startup.forget_old()

    def _answer_waiting(self) -> None:
        still = []
        for number, identity, request in self._waiting:
            job = self.core.jobs[number]
            if job.state in FINAL:
                info = [self.applications.info(job)]
                self.send(identity, m.Jobs(id=request, now=self.clock(), jobs=info))
            else:
                still.append((number, identity, request))
        self._waiting = still

    # ------------------------------------------------------------------ messages

    def _take(self, identity: bytes, frames: list[bytes]) -> None:
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
            self.send(identity, answer)

    def _later(self, identity: bytes, request: int, make: Callable[[], m.Message]) -> None:
        """Answer after the events of this turn were decided on."""

        def answer() -> None:
            message = make()
            message.id = request
            self.send(identity, message)

        self._after.append(answer)

    def _answer(self, identity: bytes, message: m.Message) -> m.Message | None:
        match message:
            case m.AtResizePoint():
                job = self.applications.check_token(message.job, message.token)
                self._events += self.remap.on_resize_point(job, message)
                instruct = self.remap.instruction
                self._later(identity, message.id, lambda: instruct(job, message))
                return None
            case m.AgentHello():
                return self._on_agent(identity, message)
            case m.Hello():
                return self._on_program(message)
            case m.GroupReady():
                job = self.applications.check_token(message.job, message.token)
                return self.remap.on_group_ready(job, identity, message)
            case m.JoinPort():
                self.remap.on_port(
                    self.applications.check_token(message.job, message.token), message
                )
                return m.Done()
            case m.ResizeReport():
                job = self.applications.check_token(message.job, message.token)
                self._events += self.remap.on_report(job, message)
                return m.Done()
            case m.Facts():
                self.applications.check_token(message.job, message.token)
                self.journal.add_facts(message.job, message.facts)
                return m.Done()
            case _:
                return self._on_command(identity, message)

    def _on_agent(self, identity: bytes, hello: m.AgentHello) -> m.Message:
        events = self.monitor.on_hello(identity, hello, self.clock())
        if isinstance(events, str):
            return m.Failure(message=events)
        for event in events:  # one by one: a node is lost before it joins again
            self._decide([event])
        return m.Done()

    def _on_program(self, hello: m.Hello) -> m.Message:
        job = self.applications.check_token(hello.job, hello.token)
        if hello.group in job.groups and hello.size != len(job.groups[hello.group]):
            return m.Failure(message=wrong_size(hello.size, job, hello.group))
        if job.state is JobState.STARTING:
            self._events.append(JobStarted(at=self.clock(), job=job.id))
        return m.Welcome(topology=job.spec.topology, verify=self.config.verify)

    def _on_command(self, identity: bytes, message: m.Message) -> m.Message | None:
        apps = self.applications
        match message:
            case m.Submit():
                event = apps.submit(message.submission)
                self._events.append(event)
                self._later(identity, message.id, lambda: m.Submitted(job=event.job))
                return None
            case m.Cancel():
                self._events.append(apps.cancel(message.job))
                self._later(identity, message.id, m.Done)
                return None
            case m.ListJobs():
                jobs = apps.listing(message.job, message.ended)
                return m.Jobs(now=self.clock(), jobs=jobs)
            case m.Explain():
                return m.Explanation(job=message.job, lines=apps.explanation(message.job))
            case m.Wait():
                self._waiting.append((apps.job(message.job).id, identity, message.id))
                self._news.add(message.job)  # it may have ended long ago
                return None
            case m.ServerInfo():
                return self._info()
            case m.Stop():
                return self._on_stop(identity, message)
        return m.Failure(message=f"a {type(message).__name__} is nothing to ask of the service")

    def _on_stop(self, identity: bytes, message: m.Stop) -> m.Message | None:
        unfinished = [job for job in self.core.jobs.values() if job.state not in FINAL]
        if unfinished and not message.kill:
            return m.Failure(
                message=f"{len(unfinished)} jobs are queued or running: "
                "cancel them, or stop with --kill"
            )
        now = self.clock()
        self._events += [
            JobCancelled(at=now, job=job.id, why="the service was stopped") for job in unfinished
        ]
        self._ending = True
        self._asked_to_stop = (identity, message.id)  # answered when all is over
        return None

    def _info(self) -> m.Info:
        jobs = list(self.core.jobs.values())
        ended = sum(job.state in FINAL for job in jobs)
        queued = sum(job.state is JobState.PENDING for job in jobs)
        nodes = [
            (name, count, "up" if name in self.monitor.agents else "down")
            for name, count in self.monitor.nodes.items()
        ]
        return m.Info(
            pid=os.getpid(),
            started_at=self.started_at,
            now=self.clock(),
            scenario=self.config.scenario,
            processors=self.config.processors,
            free=self.core.machine.free_count,
            nodes=nodes,
            queued=queued,
            running=len(jobs) - ended - queued,
            ended=ended,
            directory=str(self.directory.path),
            version=version("reshape-mpi"),
            resources=self.core.machine.resources,
        )
