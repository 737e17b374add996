"""Messages to the service: each becomes events for the driver, an answer, or both."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

import reshape
from reshape.errors import PermissionDenied, ProtocolError, ReshapeError
from reshape.wire.access import read_access
from reshape.wire.codec import encode
from scheduler.journal.opening import JournalFullError
from scheduler.model.events import Event, JobCancelled, JobStarted
from scheduler.model.job import FINAL, Job, JobState
from scheduler.node.logs import BoundedLog
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode, request_of
from scheduler.service.assembly import Components
from scheduler.service.components.job_changes import merged
from scheduler.service.components.node_states import partition_infos
from scheduler.service.components.remap_scheduler import wrong_size
from scheduler.service.driver import Driver
from scheduler.service.later_answers import Reads, Waits
from scheduler.service.limits import RoomForJournal
from scheduler.service.permissions import (
    Sender,
    check_role,
    check_user,
    log_change,
)
from scheduler.service.reader_process import (
    ExplainQuestion,
    ForecastQuestion,
    ListQuestion,
    Question,
)
from scheduler.service.reader_process import answer as answer_question
from scheduler.text.formats import counted

log = logging.getLogger(__name__)

#: Who sends a message: a job, or a peer with an identity.
_By = TypeVar("_By")
#: For each type of message, the function that answers the message of a peer, now or later (None).
Handlers: TypeAlias = dict[type[m.MessageBase], Callable[[bytes, Any, _By], m.Message | None]]
#: Asks a question of a peer: its identity, the number of its request, and the question.
Ask: TypeAlias = Callable[[bytes, int, Question | ForecastQuestion], None]


class RequestHandler:
    """Handles messages and answers them, some of them later.

    Parameters
    ----------
    refused : counts refused messages and connections, by kind.
    relay : queues an encoded answer to a question, which need not wait for the journal.
    ask_reader, ask_forecaster : let another process answer questions that only read the journal,
        and those for forecasts.

    Attributes
    ----------
    started_at : on the clock of the service, Unix seconds.
    room : whether the journal can be written; if it cannot, only questions are answered.
    stop_request : the peer that asked the service to stop, and the number of its request.
    reads : long answers under way.
    """

    def __init__(
        self,
        components: Components,
        driver: Driver,
        refused: Counter[str],
        relay: Callable[[bytes, list[bytes]], None],
        ask_reader: Ask,
        ask_forecaster: Ask,
    ) -> None:
        self._components, self._driver = components, driver
        self._core, self._journal = components.core, components.journal
        self._monitor, self._remap = components.monitor, components.remap
        self._applications = components.applications
        self._send, self._refused = components.send, refused
        self._waits = Waits()
        self._refusals = BoundedLog(log)
        self._relay, self._ask_reader, self._ask_forecaster = relay, ask_reader, ask_forecaster
        self.reads = Reads(self._answer_question)
        self.started_at = components.clock()
        self.room = RoomForJournal()
        self.stop_request: tuple[bytes, int] | None = None
        self._of_jobs, self._of_others = self._handlers_of_jobs(), self._handlers_of_others()

    @property
    def handled(self) -> set[type[m.MessageBase]]:
        """The types of messages that are handled."""
        return {*self._of_jobs, *self._of_others}

    def _answer_question(self, peer: bytes, answer: m.Message) -> None:
        self._relay(peer, encode(answer))

    def handle(self, peer: bytes, frames: list[bytes], sender: Sender) -> None:
        """Handle a message; whatever is wrong with it is answered with `Failure`.

        Parameters
        ----------
        sender : the identity of the peer, as its connection proves it.
        """
        request, send = 0, self._answer_question if self.room.reason else self._send
        answer: m.Message | None
        try:
            message = decode(frames)
            request = message.id
            if message.kind == "question":
                send = self._answer_question
            elif self.room.reason:
                self.room.hold((peer, frames, sender), message)
                return
            answer = self._answer(peer, message, sender)
            log_change(message, sender, answer)
        except PermissionDenied as error:
            self._refused["permission"] += 1
            self._refusals.warning("refused a message from %s: %s", sender.origin, error)
            answer = m.Failure(message=str(error))
        except ProtocolError as error:
            request = request_of(frames)
            self._refused["message"] += 1
            self._refusals.warning("refused a message from %s: %s", sender.origin, error)
            answer = m.Failure(message=str(error))
        except ReshapeError as error:
            answer = m.Failure(message=str(error))
        except Exception as error:  # one message must not end the service
            self._refusals.exception("a message raised %s", type(error).__name__)
            answer = m.Failure(message=f"internal error of the service: {error!r}; see its log")
        if answer is not None:
            answer.id = request
            send(peer, answer)

    def answer_waiting(self, changed: set[int]) -> None:
        """Answer the peers that wait for those of the changed jobs that have ended."""
        for number in self._waits.jobs_among(changed):
            job = self._applications.job(number)
            if job.state in FINAL:
                info = [self._applications.info(job)]
                for peer, request in self._waits.pop(number):
                    jobs = m.JobListing(id=request, now=self._components.clock.wall(), jobs=info)
                    self._send(peer, jobs)

    def _answer_later(self, peer: bytes, request: int, make: Callable[[], m.Message]) -> None:
        """Answer after the core has decided on the events of this turn."""
        self._driver.after_decision.append(lambda: self._answer_now(peer, request, make()))

    def _answer(self, peer: bytes, message: m.Message, sender: Sender) -> m.Message | None:
        check_role(sender, message)
        if isinstance(message, m.JobMessage):
            job = self._applications.check_token(message.job, message.token)
            return self._of_jobs[type(message)](peer, message, job)
        return self._of_others[type(message)](peer, message, sender)

    def _handlers_of_jobs(self) -> Handlers[Job]:
        """Handlers of the messages of jobs, which get the job."""
        remap, apps = self._remap, self._applications
        return {
            m.Hello: self._on_program,
            m.AtResizePoint: self._on_resize_point,
            m.GroupReady: lambda peer, message, job: remap.on_group_ready(job, peer, message),
            m.JoinPort: _noted(remap.on_port),
            m.ResizeReport: self._on_resize_report,
            m.Facts: _noted(lambda job, message: apps.add_facts(job, message.facts)),
            m.ProgramFault: _noted(remap.startup.note_fault),
            m.RunStep: self._on_step,
            m.WaitStep: self._on_step_wait,
            m.EndStep: self._on_step_end,
        }

    def _handlers_of_others(self) -> Handlers[Sender]:
        """Handlers of the messages of agents and commands, which get the sender."""
        return {
            m.AgentHello: self._on_agent,
            m.AgentArrival: self._on_agent_arrival,
            m.Submit: self._on_submission,
            m.RequestForecast: self._on_forecast,
            m.ChangeJobs: self._on_change,
            m.ListJobs: self._on_list,
            m.Explain: self._on_explain,
            m.Wait: self._on_wait,
            m.ServerInfo: lambda *_: self._info(),
            m.ListMachine: self._on_machine_list,
            m.ChangeMachine: self._on_machine_change,
            m.Stop: self._on_stop,
        }

    def _on_resize_point(self, peer: bytes, message: m.AtResizePoint, job: Job) -> m.Message | None:
        if self._remap.is_ahead(job, message.epoch):
            return m.Proceed()
        self._driver.events += self._remap.on_resize_point(job, message)
        self._answer_later(peer, message.id, lambda: self._remap.instruction(job, message))
        return None

    def _on_resize_report(self, _peer: bytes, message: m.ResizeReport, job: Job) -> m.Message:
        self._driver.events += self._remap.on_report(job, message)
        return m.Done()

    def _on_agent_arrival(self, _peer: bytes, message: m.AgentArrival, _by: Sender) -> m.Message:
        access = read_access(self._components.directory.path / "access" / "job.json")
        return self._monitor.settings_for(message, access)

    def _on_agent(self, peer: bytes, hello: m.AgentHello, sender: Sender) -> m.Message:
        events = self._components.ends.on_agent_hello(peer, hello, is_remote=sender.is_remote)
        for event in events:  # one by one: a node is lost before it joins again
            self._driver.decide([event])
        return m.Done()

    def _on_program(self, _peer: bytes, hello: m.Hello, job: Job) -> m.Message:
        if hello.group in job.groups:
            started = self._components.startup.placements.size(job, hello.group)
            if hello.size != started:
                return m.Failure(message=wrong_size(hello.size, job, hello.group, started))
        if job.state is JobState.STARTING:
            self._driver.events.append(JobStarted(at=self._components.clock(), job=job.id))
        return m.Welcome(
            topology=job.spec.topology,
            verify=self._components.config.verify,
        )

    def _on_step(self, peer: bytes, message: m.RunStep, job: Job) -> m.Message | None:
        self._driver.decide_pending()  # its job may have ended in this turn
        try:
            accepted, event = self._components.steps.request(job, message)
        except JournalFullError:  # the script repeats its request until there is room
            return None
        self._driver.events += [event] if event is not None else []
        self._answer_later(peer, message.id, lambda: accepted)
        return None

    def _on_step_wait(self, peer: bytes, message: m.WaitStep, job: Job) -> None:
        self._wait(self._components.steps.step(job, message.step).id, peer, message.id)

    def _on_step_end(self, peer: bytes, message: m.EndStep, job: Job) -> None:
        self._driver.events += self._components.steps.end(job, message.step)
        self._answer_later(peer, message.id, m.Done)

    def _on_wait(self, peer: bytes, message: m.Wait, _by: Sender) -> None:
        self._wait(self._applications.job(message.job).id, peer, message.id)

    def _wait(self, job: int, peer: bytes, request: int) -> None:
        self._waits.add(job, peer, request)
        self._driver.changed_jobs.add(job)  # it may have ended already

    def _on_submission(self, peer: bytes, message: m.Submit, sender: Sender) -> None:
        job = self._submit(self._applications.received(message.submission, sender.user))
        self._answer_later(peer, message.id, partial(m.Submitted, job=job))

    def _on_forecast(self, peer: bytes, message: m.RequestForecast, sender: Sender) -> None:
        apps, question = self._applications, ForecastQuestion(message, self._components.clock())
        match message.of:
            case int(number):
                job = apps.job(number)
                check_user(sender, number, job.spec.user)
                if job.state is not JobState.PENDING:
                    raise ReshapeError(
                        f"job {number} is not queued ({job.state.name}): it has started already"
                    )
            case m.Submission() as submission:
                question.spec = apps.request_of(apps.received(submission, sender.user))
        self._ask_forecaster(peer, message.id, question)

    def _on_list(self, peer: bytes, message: m.ListJobs, _by: Sender) -> m.Message | None:
        if message.job is None:
            self._list(peer, message)
            return None
        info = self._applications.info_with_ranks(self._applications.job(message.job))
        info.steps = self._components.steps.numbers(message.job)
        info.late = self._late_text(message.job)
        return m.JobListing(now=self._components.clock.wall(), jobs=[info])

    def _on_explain(self, peer: bytes, message: m.Explain, sender: Sender) -> None:
        job = self._applications.job(message.job)
        check_user(sender, job.id, job.spec.user)
        question = ExplainQuestion(job.id, self._present(job.id), job.spec.task_of)
        self._ask_reader(peer, message.id, question)

    def _on_change(self, peer: bytes, message: m.ChangeJobs, sender: Sender) -> None:
        if not isinstance(message.change, m.CancelJob):
            self._driver.decide_pending()  # on changes of this turn, with which these have to agree
        events, refused = list[Event](), list[tuple[int, str]]()
        places = {named: place for place, named in enumerate(message.jobs)}
        for named, place in places.items():
            try:
                events += self._events_of(named, message.change, sender)
            except ReshapeError as error:
                if len(message.jobs) == 1:
                    raise
                refused.append((place, str(error)))
        events = merged(events)
        self._driver.events += events
        answer = m.UnchangedJobs(refused=refused) if refused else m.Done()
        self._answer_later(peer, message.id, partial(self._changed, events, answer))

    def _events_of(self, named: m.JobTasks, change: m.JobChange, sender: Sender) -> list[Event]:
        """Return the events that change a job, which has to be one of the sender."""
        check_user(sender, named.job, self._applications.job(named.job).spec.user)
        is_administrator = "administrator" in sender.roles
        return self._components.changes.events(
            named, change, sender.user, is_administrator=is_administrator
        )

    def _changed(self, events: list[Event], answer: m.Message) -> m.Message:
        """Let the peers know that wait for tasks which will never be jobs."""
        for event in events:
            if not isinstance(event, JobCancelled):
                continue
            array = self._applications.job(event.job).spec.array
            if array is not None:
                first, last = event.job + 1, event.job + array.count
                self._driver.changed_jobs.update(self._waits.between(first, last))
        return answer

    def _submit(self, submission: m.Submission) -> int:
        """Return the number of a job that is submitted, also if that is a repetition."""
        earlier = self._applications.submitted_before(submission)
        if earlier is not None:
            return earlier
        if submission.dependency:  # on a job of this turn, perhaps
            self._driver.decide_pending()
        event = self._applications.submit(submission)
        self._driver.events.append(event)
        return event.job

    def _on_machine_list(self, _peer: bytes, message: m.ListMachine, _by: Sender) -> m.Message:
        match message.part:
            case "nodes":
                return m.Nodes(nodes=self._components.nodes.table())
            case "reservations":
                return self._components.reservations.table()
            case "pools":
                return self._components.pools.table()

    def _on_machine_change(
        self, peer: bytes, message: m.ChangeMachine, sender: Sender
    ) -> m.Message | None:
        reservations = self._components.reservations
        match message.change:
            case m.DrainNode() | m.ResumeNode() | m.RemoveNode() as change:
                now = self._components.clock()
                self._driver.events.append(self._components.nodes.change(change, sender.user, now))
                self._answer_later(peer, message.id, m.Done)
                return None
            case m.CreateReservation() as change:
                request = reservations.requested(change, sender.user)
                orders = self._driver.decide([request])
                return reservations.answer(request.name, orders)
            case m.CancelReservation(name=name):
                self._driver.decide([reservations.cancelled(name)])
                return m.Done()
            case change:
                answer = partial(self._answer_now, peer, message.id)
                return self._components.pools.change(change, answer)

    def _answer_now(self, peer: bytes, request: int, message: m.Message) -> None:
        message.id = request
        self._send(peer, message)

    def _present(self, number: int) -> list[m.Story]:
        """Return what an explanation of a job says of the present: why it waits, what drains."""
        lines = self._applications.pending_reason(number)
        texts = [self._components.nodes.why_of_job(number), self._late_text(number)]
        job = self._core.jobs.get(number)
        is_first = job is not None and self._core.partition_of(job) is self._core.partitions[0]
        if job is not None and job.state is JobState.PENDING and is_first:  # that of pools
            texts += self._components.pools.sentences(job)
        now = self._components.clock.wall()
        lines += [m.Story(at=now, text=text) for text in texts if text]
        return lines

    def _late_text(self, number: int) -> str:
        """Say since when a job that computes had no resize point, if that is unusual."""
        job = self._core.live.get(number)
        return "" if job is None else self._remap.late_text(job)

    def _list(self, peer: bytes, message: m.ListJobs) -> None:
        """Begin a table of jobs: the reader adds the ended jobs to those that have not ended."""
        # Jobs whose end could not be written are listed with those that have not ended.
        jobs = self._applications.live(steps=message.steps) if message.live else []
        if message.live and self.room.reason:
            jobs = [*self._core.jobs.values()]
        rows: dict[int, msgspec.Raw] = {}

        def steps() -> Iterator[None]:
            for job in jobs:
                if (
                    job.state not in FINAL or self.room.reason
                ):  # it may have ended since the question
                    rows[job.id] = msgspec.Raw(_encode(self._applications.info(job)))
                yield
            question = ListQuestion(message, self._components.clock.wall(), rows)
            if message.ended:
                self._ask_reader(peer, message.id, question)
            else:
                self._relay(peer, answer_question(self._journal, message.id, question))

        self.reads.add(peer, message.id, steps())

    def _on_stop(self, peer: bytes, message: m.Stop, _by: Sender) -> m.Message | None:
        unfinished = self._applications.live()
        if unfinished and not message.kill:
            return m.Failure(
                message=f"{counted(len(unfinished), 'job')} queued or running: "
                "cancel first, or stop with --kill"
            )
        now = self._components.clock()
        self._driver.events += [
            JobCancelled(at=now, job=job.id, why="the service was stopped") for job in unfinished
        ]
        self._components.startup.end_soon()
        self.stop_request = (peer, message.id)  # answered when jobs and agents have ended
        return None

    def _info(self) -> m.Info:
        config, machine = self._components.config, self._core.machine
        jobs = self._applications.live()
        queued = sum(job.state is JobState.PENDING for job in jobs)
        nodes = [
            (name, count, "up" if name in self._monitor.reports.agents else "down")
            for name, count in self._monitor.nodes.items()
        ]
        return m.Info(
            pid=os.getpid(),
            started_at=self.started_at + self._components.clock.ahead_s,
            now=self._components.clock.wall(),
            scenario=config.scenario,
            processors=sum(self._monitor.nodes.values()),
            free=machine.free_count,
            nodes=nodes,
            awaited=self._monitor.awaited(),
            queued=queued,
            running=len(jobs) - queued,
            ended=self._applications.ended_count(jobs),
            last=self._applications.last_submitted,
            directory=str(self._components.directory.path),
            version=reshape.__version__,
            resources=machine.resources,
            shared={} if config.platform is None else dict(config.platform.shared_per_node),
            unreadable=list(self._journal.unreadable),
            refused=dict(self._refused),
            halted=self.room.reason,
            partitions=partition_infos(config, self._core),
        )


def _noted(note: Callable[[Job, Any], None]) -> Callable[[bytes, Any, Job], m.Message]:
    """Answer a message of a job when it is noted."""

    def answer(_peer: bytes, message: m.Message, job: Job) -> m.Message:
        note(job, message)
        return m.Done()

    return answer


_encode = msgspec.msgpack.Encoder().encode
