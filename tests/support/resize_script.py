"""Scripts that drive the resize transaction of a service: messages in, everything that follows out.

A script has one job, number 1. The first lines set up the service; each further line is a message
that arrives, or a tick of the service's loop, with its time in seconds. Indented lines are the
output: what the service notes in its journal and which messages it sends. Lines that begin with
``#`` are comments. An unknown word is an error. There are no sockets and no processes; time is that
of the script::

    nodes NODE:N ...                      processors of the nodes
    steps TEXT                            resizes that the policy decides; see `scripted`
    deadlines NAME=S ...                  see `scheduler.config.settings.Deadlines`
    starts SHARE                          smallest size of resizable jobs, as a share of the request

    @TIME submit n=N [max=N] [walltime=S] [topology=TEXT]
    @TIME cancel
    @TIME agent NODE                      it reports the state of its node (as the lines below do)
    @TIME agent NODE runs GROUP | forgot GROUP | swept
    @TIME agent NODE ended GROUP [exit=N] [signal=N] [WORD ...]   the last line of its output
    @TIME agent NODE refuses GROUP WORD ...  it cannot start the group, for a reason of the node
    @TIME agent NODE restart-point | no-restart-point
    @TIME agent NODE ranks RANKS at PLACE [loop=N]   N: in iteration N; N.5: after it; -1: left it
    @TIME agent NODE replaced             its groups have ended with the agent before it
    @TIME job hello [n=N]
    @TIME job point ITERATION seconds=S [epoch=N] [bytes=N] [min=N] [max=N] [all=N]
    @TIME job port PORT serial=N | port PORT group=N
    @TIME job committed SERIAL | rolled-back SERIAL [WORD ...]
    @TIME job fault GROUP WORD ...        the program of a group ends with this error
    @TIME group GROUP ready [n=N]
    @TIME info                            what the description of the job says of a late one
    @TIME tick                            deadlines are checked, commands without effect repeated
    @TIME restart                         the service ends, and another one recovers the journal

Output lines, in this order::

    event, order          what the core has handled and decided; resize points, wake-ups and orders
                          to continue are left out
    phase                 a step of the transaction
    job                   state of the job and its groups with their processors, if they changed
    -> RECEIVER           a message that the service sends
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from core_script import order_line, read_words
from desk import request_handler

from reshape.topology import SizeBounds, Topology
from reshape.wire.codec import encode
from scheduler.config.settings import Deadlines, NodeConfig, ServeConfig
from scheduler.journal.clock import Clock
from scheduler.model.events import ResizePoint, Wakeup
from scheduler.model.procset import ProcSet
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.service.assembly import Components
from scheduler.service.driver import Driver
from scheduler.service.permissions import owner
from scheduler.service.requests import RequestHandler

JOB = 1
#: Fields that output lines do not show.
HIDDEN = {"id", "at", "job", "times", "argv", "bounds", "environment", "spec"}
#: Speaker and word of a line -> names that it may give values to.
NAMES = {
    "submit": {"n", "max", "walltime", "topology"},
    "agent ended": {"exit", "signal"},
    "agent ranks": {"loop"},
    "job hello": {"n"},
    "job point": {"seconds", "epoch", "bytes", "min", "max", "all"},
    "job port": {"serial", "group"},
    "group ready": {"n"},
}


def replay(path: Path, folder: Path) -> str:
    """Run a script with the service in `folder`; return its text with the output of now."""
    lines = path.read_text().rstrip("\n").split("\n")
    inputs = [line for line in lines if not line.startswith(" ")]
    commands = [line for line in inputs if line and not line.startswith("#")]
    config = set_up([line for line in commands if not line.startswith("@")])
    text: list[str] = []
    with service(folder, config) as script:
        for line in inputs:
            text.append(line)
            if line.startswith("@"):
                text += [f"    {output}" for output in script.run(line)]
    return "\n".join(text) + "\n"


def set_up(lines: list[str]) -> ServeConfig:
    nodes: tuple[NodeConfig, ...] = (NodeConfig("a", 4),)
    steps, deadlines, share = "", Deadlines(), 1.0
    for line in lines:
        what, *rest = line.split()
        if what == "nodes":
            pairs = [word.split(":") for word in rest]
            nodes = tuple(NodeConfig(name, int(count)) for name, count in pairs)
        elif what == "steps":
            steps = " ".join(rest)
        elif what == "deadlines":
            values = read_words(line, rest, set(Deadlines.__struct_fields__))[1]
            deadlines = Deadlines(**{name: float(value) for name, value in values.items()})
        elif what == "starts":
            share = float(rest[0])
        else:
            raise ValueError(f"unknown word {what!r} in {line!r}")
    return ServeConfig(
        nodes=nodes,
        scenario="scripted:Scripted",
        parameters={"resizing.steps": steps, "backfill.adaptive_start": share},
        kill_at_walltime=False,
        deadlines=deadlines,
    )


@contextmanager
def service(folder: Path, config: ServeConfig) -> Iterator[Script]:
    """Make a service without sockets, whose clocks follow the script."""
    directory = ServiceDirectory(folder)
    directory.create()
    script = Script(directory, config)
    clock = partial(Clock, wall=script.time, monotonic=script.time)
    with ExitStack() as stack:
        stack.enter_context(mock.patch("time.monotonic", script.time))
        stack.enter_context(mock.patch("scheduler.service.assembly.Clock", clock))
        for node in config.nodes:  # as if their agents ran
            stack.enter_context(directory.agent_lock(node.name))
        script.begin()
        list(script.output())  # the nodes are registered, and down until their agents report
        yield script
        script.components.journal.close()


@dataclass
class AgentReport:
    """What the agent of a node reports."""

    groups: dict[int, m.GroupStatus] = field(default_factory=dict)
    has_restart_point: bool = False
    has_folder: bool = False
    positions: list[m.RanksAt] = field(default_factory=list)
    incarnation: str = ""


class Script:
    """A service without sockets, and the state of the agents that report to it."""

    components: Components
    driver: Driver
    handler: RequestHandler

    def __init__(self, directory: ServiceDirectory, config: ServeConfig) -> None:
        self._directory, self._config = directory, config
        self._now = 0.0
        self._sent: list[tuple[bytes, m.Message]] = []
        self._agents = {node.name: AgentReport() for node in config.nodes}
        self._batch = self._order = self._phase = 0  # how many of each were shown
        self._shown_job = ""

    def time(self) -> float:
        """Time of the script, seconds."""
        return self._now

    def begin(self) -> None:
        """Make a service from the journal, as the beginning of `Service.run` does."""
        self.components = Components(
            self._directory, self._config, lambda *sent: self._sent.append(sent)
        )
        self.driver = Driver(self.components)
        self.handler = request_handler(self.components, self.driver)
        self.driver.register_nodes([node.name for node in self._config.nodes])
        self.driver.restore_alarms()

    def run(self, line: str) -> list[str]:
        """Handle an input line and the turn of the loop that follows; return the output."""
        at, what, *rest = line[1:].split()
        if float(at) < self._now:
            raise ValueError(f"{line!r} is earlier than the line before")
        self._now = float(at)
        if what == "tick" and not rest:
            self.driver.tick(start_agents=False, heard_all=True)
        elif what == "restart" and not rest:
            self.components.journal.close()
            self.begin()
        else:
            peer, message = self.read(line, what, rest)
            self.handler.handle(peer.encode(), encode(message), owner("ann"))
        self.handler.answer_waiting(self.driver.run_turn())
        return list(self.output())

    def read(self, line: str, what: str, rest: list[str]) -> tuple[str, m.Message]:
        """Return sender and message of a line."""
        if what == "agent":
            return f"agent {rest[0]}", self._agent_report(line, *rest)
        if what in ("job", "group"):
            return self._program_message(line, what, rest)
        values = read_words(line, rest, NAMES.get(what, set()))[1]
        if what == "submit":
            submission = m.Submission(
                argv=["program"],
                processors=int(values["n"]),
                max_processors=int(values["max"]) if "max" in values else None,
                walltime_s=float(values.get("walltime", 3600)),
                topology=Topology.parse(values["topology"]) if "topology" in values else None,
            )
            return "user", m.Submit(submission=submission)
        if what == "cancel":
            return "user", m.ChangeJobs.one(JOB, m.CancelJob())
        if what == "info":
            return "user", m.ListJobs(job=JOB)
        raise ValueError(f"unknown word {what!r} in {line!r}")

    def _agent_report(self, line: str, node: str, word: str = "", *rest: str) -> m.AgentHello:
        report = self._agents[node]
        words, values = read_words(line, list(rest), NAMES.get(f"agent {word}", set()))
        match word, *words:
            case [""]:
                pass
            case ["runs", group]:
                report.groups[int(group)] = m.GroupStatus(job=JOB, group=int(group), alive=True)
            case ["ended", group, *said]:
                report.groups[int(group)] = m.GroupStatus(
                    job=JOB,
                    group=int(group),
                    alive=False,
                    exit_code=int(values.get("exit", 0)),
                    signal=int(values.get("signal", 0)),
                    output_end=" ".join(said),
                )
            case ["refuses", group, *why]:
                report.groups[int(group)] = m.GroupStatus(
                    job=JOB,
                    group=int(group),
                    alive=False,
                    exit_code=126,
                    why=" ".join(why),
                    began=False,
                    fault="node",
                )
            case ["forgot", group]:
                del report.groups[int(group)]
            case ["swept"]:
                report.groups.clear()
                report.has_restart_point = report.has_folder = False
            case ["replaced"]:
                report.has_folder = bool(report.groups)
                report.groups.clear()
                report.incarnation = f"another at {self._now:g}"
            case ["ranks", ranks, "at", place]:
                iteration, loop = int(float(place)), int(values.get("loop", 0))
                spans = list(ProcSet.parse(ranks).intervals)
                at_point = place.endswith(".5")
                report.positions.append(m.RanksAt(loop, iteration, at_point, spans, idle_s=100.0))
            case ["restart-point" | "no-restart-point"]:
                report.has_restart_point = word == "restart-point"
            case _:
                raise ValueError(f"unknown words in {line!r}")
        return m.AgentHello(
            node=node,
            pid=0,  # none: only its lock shows that the agent runs
            secret=self._directory.read_secret(),
            groups=list(report.groups.values()),
            restart_points=[JOB] if report.has_restart_point else [],
            folders=[JOB] if report.groups or report.has_folder else [],
            incarnation=report.incarnation,
            positions={JOB: report.positions} if report.positions else {},
        )

    def _program_message(self, line: str, what: str, rest: list[str]) -> tuple[str, m.Message]:
        word = rest[1 if what == "group" else 0]
        words, values = read_words(line, rest, NAMES.get(f"{what} {word}", set()))
        token = self.components.journal.launches()[JOB].token
        job = self.components.core.jobs[JOB]
        size = int(values.get("n", job.size))
        number = int(values.get("serial", 0))
        match what, *words:
            case ["group", group, "ready"]:
                size = int(values.get("n", len(job.groups.get(int(group), ()))))
                return f"group {group}", m.GroupReady(
                    job=JOB, group=int(group), token=token, size=size, pid=0
                )
            case ["job", "hello"]:
                group = next(iter(job.groups))
                return "job", m.Hello(job=JOB, group=group, token=token, size=size, pid=0)
            case ["job", "point", iteration]:
                return "job", m.AtResizePoint(
                    job=JOB,
                    token=token,
                    epoch=int(values.get("epoch", 0)),
                    size=size,
                    registered_bytes=int(values.get("bytes", 0)),
                    iteration=int(iteration),
                    iteration_s=float(values["seconds"]),
                    iterations=int(values.get("all", 0)),
                    requests=SizeBounds(int(values.get("min", 0)), int(values.get("max", 0)))
                    if values.keys() & {"min", "max"}
                    else None,
                )
            case ["job", "port", port]:
                group = int(values.get("group", 0))
                return "job", m.JoinPort(
                    job=JOB, token=token, serial=number, port=port, group=group
                )
            case ["job", "committed", serial]:
                return "job", m.ResizeReport(job=JOB, token=token, serial=int(serial), ok=True)
            case ["job", "fault", group, *why]:
                return "job", m.ProgramFault(
                    job=JOB, group=int(group), token=token, why=" ".join(why)
                )
            case ["job", "rolled-back", serial, *why]:
                return "job", m.ResizeReport(
                    job=JOB, token=token, serial=int(serial), ok=False, why=" ".join(why)
                )
        raise ValueError(f"unknown words in {line!r}")

    def output(self) -> Iterator[str]:
        """Yield lines about what is new in the journal, the core and the outbox."""
        journal = self.components.journal
        journal.commit()
        for batch in journal.batches():
            if batch.number <= self._batch:
                continue
            for event in batch.events:
                if not isinstance(event, ResizePoint | Wakeup):
                    yield f"event {shown(event)}"
        self._batch = journal.batch
        orders = journal.orders_of(JOB)
        yield from (f"order {order_line(order)}" for _, order in orders[self._order :])
        self._order = len(orders)
        phases = journal.phases_of(JOB)
        for phase in phases[self._phase :]:
            yield f"phase {phase.serial} {phase.phase} {phase.detail}".rstrip()
        self._phase = len(phases)
        job = self.components.core.jobs.get(JOB)
        if job is not None:
            groups = "  ".join(f"{group}: {held}" for group, held in job.groups.items())
            line = f"job {job.state.name}  {groups}".rstrip()
            if line != self._shown_job:
                self._shown_job = line
                yield line
        for peer, message in self._sent:
            if not (peer.startswith(b"agent") and isinstance(message, m.Done)):
                yield f"-> {peer.decode()}: {shown(message)}"
        self._sent.clear()


def shown(record: msgspec.Struct) -> str:
    """Name an event or a message and its fields that differ from the default."""
    if isinstance(record, m.JobListing):
        return f"late: {record.jobs[0].late or 'no'}"
    parts = [type(record).__name__]
    for each in msgspec.structs.fields(record):
        value: Any = getattr(record, each.name)
        if each.name not in HIDDEN and value != each.default and value not in ({}, []):
            parts.append(f"{each.name}={value}")
    if isinstance(record, m.StartGroup):
        parts.append(f"role={record.environment['RESHAPE_ROLE']}")
        for name in ("groups", "joining"):
            sizes = record.environment.get(f"RESHAPE_{name.upper()}", "")
            if sizes.count(":") > 1:
                parts.append(f"{name}={sizes.replace(' ', ',')}")
    return " ".join(parts)
