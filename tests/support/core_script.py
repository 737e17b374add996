"""Scripts that drive the core: event lines in, order lines and tables out.

A script is a sequence of blocks, an empty line between them: input lines, a line ``----``, and the
output expected. The first block sets up (``scenario NAME field=value ...``, ``machine NODE:N ...``,
``partition NAME SCENARIO field=value ...``, ``core order=sequential kill=no``). In the others each
line is an event, an enquiry or a comment; events of a block with the same time are handled
together. An unknown word is an error.

    @TIME submit JOB n=N walltime=S [min=N] [max=N] [topology=T] [priority=P] [performance=MODEL]
           [requeue] [partition=NAME] [name=NAME] [user=NAME] [hold] [begin=S] [after=DEPENDENCY]
           [strict] [array=INDICES] [signal=SIGNAL] [step=JOB.INDEX] [constraint=FEATURES] [whole=N]
           [per_process=N] [task=ARRAY_INDEX]
    @TIME started JOB | cancel JOB [tasks=N-N,...] | wake | hold JOB [admin] [tasks=N-N,...]
    @TIME release JOB [tasks=N-N,...]
    @TIME requeue JOB | signal JOB NUMBER [batch] | update JOB NAME=VALUE ... as of submit
    @TIME ended JOB [exit=N] [signal=N] [died] [checkpoint=N] [unstarted] [fault=NODE]
    @TIME request JOB [min=N] [max=N]
    @TIME point JOB ITERATION SECONDS [topology=T] | done JOB SERIAL | failed JOB SERIAL [restart]
    @TIME join NODE N [shares=PARTITION:N,...] [features=A,...] | lose NODE
    @TIME depth [JOBS] | clock SECONDS
    @TIME drain NODE [WORD ...] | resume NODE | remove NODE | silent NODE UNTIL | heard NODE
    table | why JOB | forget JOB | restore

`tasks` are positions of tasks in an array, and `why 8_4` asks for the task of index 4 of array 8.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from reshape.topology import Topology
from scheduler.config.partitions import with_partitions
from scheduler.core.core import Core
from scheduler.model.arrays import JobName, StepOf, TaskArray, TaskOf, positions_of
from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobRequeued,
    JobSignalled,
    JobSpec,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    SilenceChanged,
    SizesRequested,
    Wakeup,
)
from scheduler.model.machine import Machine
from scheduler.model.orders import (
    AnswerRequest,
    Contract,
    Expand,
    Order,
    Refuse,
    Reserve,
    Signal,
    Start,
    WakeAt,
)
from scheduler.model.procset import ProcSet
from scheduler.model.requests import (
    Conditions,
    Dependency,
    EndSignal,
    NodeRequest,
    parse_constraint,
)
from scheduler.policies.scenarios import scenario
from scheduler.state.records import decode_core, decode_job, encode_core, encode_job


def replay(path: Path) -> str:
    """Run a script and return its text with the output that it has now."""
    core: Core | None = None
    blocks = []
    for block in path.read_text().strip("\n").split("\n\n"):
        lines = block.split("\n----")[0].split("\n")
        commands = [line for line in lines if line and not line.startswith("#")]
        if core is None:
            core = set_up(commands)
            blocks.append("\n".join(lines))
        elif commands:
            core, output = run(core, commands)
            blocks.append("\n".join([*lines, "----", *output]))
        else:
            blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def set_up(commands: list[str]) -> Core:
    machine = Machine()
    chosen, options, partitions = scenario("easy"), {}, {}
    for command in commands:
        what, *rest = command.split()
        if what == "machine":
            for node in rest:
                name, processors, *features = node.split(":")
                machine.join(name, int(processors), None, tuple(features))
        elif what == "scenario":
            chosen = scenario(rest[0], dict(part.split("=", 1) for part in rest[1:]))
        elif what == "partition":
            changes = dict(part.split("=", 1) for part in rest[2:])
            partitions[rest[0]] = scenario(rest[1], changes)
        elif what == "core":
            options = read_words(command, rest, {"order", "kill"})[1]
        else:
            raise ValueError(f"unknown word {what!r} in the first block: {command!r}")
    order = options.get("order", "batch")
    chosen = with_partitions(chosen, partitions)
    return Core(chosen, machine, kill_at_walltime=options.get("kill") != "no", order=order)


def run(core: Core, commands: list[str]) -> tuple[Core, list[str]]:
    """Run the commands of a block; return the core that goes on, and the output."""
    output, events = [], []
    for command in [*commands, ""]:
        event = read_event(command) if command.startswith("@") else None
        if events and (event is None or event.at != events[-1].at):
            output += [
                order_line(order) for order in core.handle([numbered(e, core) for e in events])
            ]
            events = []
        if event is not None:
            events.append(event)
        elif command == "table":
            output += table(core)
        elif command.startswith("why "):
            output.append(why(core, JobName.parse(command[4:])))
        elif command == "restore":
            jobs = [decode_job(encode_job(job)) for job in core.jobs.values()]
            record = decode_core(encode_core(core.record()))
            core = Core.restored(record, jobs, core.scenario, Machine())
        elif command.startswith("forget "):
            core.forget(int(command[7:]))
        elif command:
            raise ValueError(f"unknown command {command!r}")
    return core, output


def numbered(event: Event, core: Core) -> Event:
    """Find the numbers of the tasks that the dependency of a request names."""
    spec = event.spec if isinstance(event, JobSubmitted | JobUpdated) else None
    if spec is None or spec.conditions is None or spec.conditions.dependency is None:
        return event
    known = spec.conditions.dependency.numbered(lambda job: core.jobs[job].spec.array)
    conditions = replace(spec.conditions, dependency=known)
    return replace(event, spec=replace(spec, conditions=conditions))


def why(core: Core, name: JobName) -> str:
    if name.tasks is None:
        return str(core.reason_pending(name.job))
    array = core.jobs[name.job]
    (position,) = positions_of(array.spec.array, name.tasks)
    return str(core.reason_to_come(array, position))


SUBMIT: tuple[set[str], set[str]] = (
    {"requeue", "hold", "strict"},
    {
        *("n", "walltime", "min", "max", "topology", "priority", "performance", "reservation"),
        *("partition", "name", "user", "begin", "after", "array", "signal", "step"),
        *("constraint", "whole", "per_process", "task"),
    },
)
#: Event -> words and named words that it may have besides its numbers.
EVENTS: dict[str, tuple[set[str], set[str]]] = {
    "submit": SUBMIT,
    "update": SUBMIT,
    "started": (set(), set()),
    "ended": ({"died", "unstarted"}, {"exit", "signal", "checkpoint", "fault"}),
    "cancel": (set(), {"tasks"}),
    "wake": (set(), set()),
    "hold": ({"admin"}, {"tasks"}),
    "release": (set(), {"tasks"}),
    "requeue": (set(), set()),
    "signal": ({"batch"}, set()),
    "point": (set(), {"topology"}),
    "request": (set(), {"min", "max"}),
    "done": (set(), set()),
    "failed": ({"restart"}, set()),
    "depth": (set(), set()),
    "clock": (set(), set()),
    "join": (set(), {"until", "shares", "features"}),
    "lose": (set(), set()),
    "drain": (set(), set()),
    "resume": (set(), set()),
    "reserve": (set(), {"begin", "for", "n", "nodes", "partition"}),
    "unreserve": (set(), set()),
    "remove": (set(), set()),
    "silent": (set(), set()),
    "heard": (set(), set()),
}


def read_words(line: str, words: list[str], names: set[str]) -> tuple[list[str], dict[str, str]]:
    """Separate plain words from NAME=VALUE ones, whose names must be among `names`."""
    plain = [word for word in words if "=" not in word]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    unknown = named.keys() - names
    if unknown:
        raise ValueError(f"unknown word {min(unknown)!r} in {line!r}")
    return plain, named


def read_event(line: str) -> Event:
    at, what, *rest = line[1:].split()
    if what not in EVENTS:
        raise ValueError(f"unknown event {what!r} in {line!r}")
    flags, names = EVENTS[what]
    time = float(at)
    words, named = read_words(line, rest, names)
    topology = Topology.parse(named["topology"]) if "topology" in named else None
    if what == "join":
        node, processors = words
        until = float(named["until"]) if "until" in named else None
        parts = [part.split(":") for part in named.get("shares", "").split(",") if part]
        shares = {name: int(count) for name, count in parts}
        own = tuple(part for part in named.get("features", "").split(",") if part)
        return NodeJoined(time, node, int(processors), until=until, shares=shares, features=own)
    if what == "depth":
        return DepthChanged(time, int(rest[0]) if rest else None)
    if what == "clock":
        return ClockSet(time, float(rest[0]))
    if what in ("drain", "resume"):
        return DrainChanged(time, words[0], what == "drain", " ".join(words[1:]))
    if what in ("silent", "heard"):
        node, *until_s = words
        return SilenceChanged(time, node, float(until_s[0]) if until_s else None)
    if what in ("lose", "remove"):
        (node,) = words
        return (NodeLost if what == "lose" else NodeRemoved)(time, node)
    if what == "reserve":
        (name,) = words
        nodes = tuple(named["nodes"].split(",")) if "nodes" in named else ()
        begin, duration_s = float(named["begin"]), float(named["for"])
        count = int(named.get("n", 0))
        own = named.get("partition", "")
        return ReservationRequested(time, name, begin, duration_s, count, nodes, partition=own)
    if what == "unreserve":
        (name,) = words
        return ReservationCancelled(time, name)
    numbers = [float(word) for word in words if word not in flags]
    job, *others = [int(number) for number in numbers] or [0]
    if what in ("submit", "update") and not others:
        most = int(named["max"]) if "max" in named else None
        least = int(named["min"]) if "min" in named else None
        spec = JobSpec(
            int(named["n"]),
            float(named["walltime"]),
            most,
            topology,
            priority=float(named.get("priority", 0)),
            requeue="requeue" in words,
            performance=named.get("performance", ""),
            min_processors=least,
            reservation=named.get("reservation", ""),
            partition=named.get("partition", ""),
            name=named.get("name", ""),
            user=named.get("user", ""),
            conditions=read_conditions(words, named),
            array=TaskArray.parse(named["array"]) if "array" in named else None,
            nodes=read_nodes(named),
            end_signal=EndSignal.parse(named["signal"]) if "signal" in named else None,
            task_of=TaskOf(*map(int, named["task"].split("_"))) if "task" in named else None,
            step_of=StepOf(*map(int, named["step"].split("."))) if "step" in named else None,
        )
        return (JobSubmitted if what == "submit" else JobUpdated)(time, job, spec)
    if what == "request":
        least, most = (int(named.get(name, 0)) for name in ("min", "max"))
        return SizesRequested(time, job, least, most)
    if what == "point":
        _, iteration, seconds = numbers
        return ResizePoint(time, job, int(iteration), seconds, topology)
    if what == "ended" and not others:
        return JobEnded(
            time,
            job,
            int(named.get("exit", 0)),
            int(named.get("signal", 0)),
            "rank 1 was killed" if "died" in words else "no room" if "unstarted" in words else "",
            "died" in words,
            int(named.get("checkpoint", 0)),
            began="unstarted" not in words,
            at_fault=named.get("fault", ""),
        )
    if what == "failed":
        (serial,) = others
        return ResizeFailed(time, job, serial, "the group did not come up", "restart" in words)
    if what == "signal":
        (number,) = others
        return JobSignalled(time, job, number, "batch" in words)
    tasks = ProcSet.parse(named["tasks"]) if "tasks" in named else None
    if what == "cancel" and tasks is not None:
        return JobCancelled(time, job, tasks=tasks)
    if what in ("hold", "release"):
        by = "administrator" if "admin" in words else "user"
        return HoldChanged(time, job, by if what == "hold" else "", tasks)
    plain = {"started": JobStarted, "done": ResizeDone, "cancel": JobCancelled, "wake": Wakeup}
    plain["requeue"] = JobRequeued
    if what not in plain:
        raise ValueError(f"too many numbers in {line!r}")
    return plain[what](time, *(int(number) for number in numbers))


def read_conditions(words: list[str], named: dict[str, str]) -> Conditions | None:
    dependency = Dependency.parse(named["after"]) if "after" in named else None
    begin = float(named["begin"]) if "begin" in named else None
    hold = "user" if "hold" in words else ""
    conditions = Conditions(hold, begin, dependency, "strict" in words)
    return None if conditions == Conditions() else conditions


def read_nodes(named: dict[str, str]) -> NodeRequest | None:
    wanted = parse_constraint(named["constraint"]) if "constraint" in named else ()
    whole, per_process = int(named.get("whole", 0)), int(named.get("per_process", 1))
    request = NodeRequest(wanted, whole, per_process)
    return None if request == NodeRequest() else request


def order_line(order: Order) -> str:
    name = type(order).__name__.lower()
    if isinstance(order, WakeAt):
        return f"wake at {order.at:g}"
    if isinstance(order, Reserve):
        return f"reserve {order.name} on {order.processors} | {order.reason}"
    if isinstance(order, Refuse):
        return f"refuse {order.name} | {order.reason}"
    if isinstance(order, Start):
        what = f"group {order.group} on {order.processors}"
        name = "restart" if order.restart else name
    elif isinstance(order, Expand):
        what = f"#{order.serial} to {order.to}, group {order.group} on {order.processors}"
    elif isinstance(order, Signal):
        groups = " ".join(map(str, order.groups))
        what = f"#{order.serial} to {'the script of ' if order.to_script else ''}groups {groups}"
    elif isinstance(order, Contract):
        what = f"#{order.serial} to {order.to}, groups {' '.join(map(str, order.groups))} leave"
    else:
        what = ""
    if isinstance(order, AnswerRequest):
        name = "accept" if order.accepted else "decline"
    return f"{name} {order.job}{' ' + what if what else ''} | {order.reason}"


def table(core: Core) -> list[str]:
    lines = []
    for job in core.jobs.values():
        sizes = "-".join(str(size) for _, size in job.sizes) or "-"
        groups = "  ".join(f"{group}: {held}" for group, held in job.groups.items())
        why = f"  ({job.why})" if job.why else ""
        lines.append(f"job {job.id}  {job.state.value:2}  {sizes:9}  {groups}{why}".rstrip())
    free = " | ".join(str(partition.machine.free) for partition in core.partitions)
    return [*lines, f"free  {free}".rstrip()]
