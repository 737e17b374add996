"""`squeue`, `sacct` and `sinfo`, and lists of hosts as Slurm writes them."""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from reshape.errors import ReshapeError
from reshape.times import parse_moment
from scheduler.client.api.client import Client, ended_jobs
from scheduler.client.columns import (
    FIELDS,
    Field,
    ListingFormat,
    choose,
    in_letters,
    one_by_one,
    sorted_jobs,
    states_in,
)
from scheduler.client.forecasting import with_expected_starts
from scheduler.client.requests.slurm_manual import SACCT, SINFO, SQUEUE
from scheduler.model.job import JobState
from scheduler.protocol.messages import JobInfo, NodeInfo
from scheduler.text.formats import format_moment, format_time
from scheduler.text.plain import plain

#: Formats of squeue(1): without an option, with --long and with --start.
_JOBS = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG_JOBS = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_STARTS = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %R"
#: Formats of sacct(1), without some of its fields: without an option, and with --brief.
_ENDED, _BRIEF = "JobID,JobName,Partition,AllocCPUS,State,ExitCode", "JobID,State,ExitCode"
#: Names of the fields of sacct, as it writes them.
_NAMES = """
JobID JobIDRaw JobName User Partition QOS Priority State ExitCode Elapsed ElapsedRaw Timelimit
TimelimitRaw Submit Start End NNodes NCPUS AllocCPUS NodeList Reason MaxRSS
"""
_AS_WRITTEN = {name.lower(): name for name in _NAMES.split()}
#: Fields whose texts in sacct differ: it has the end of an ended job alone.
_OF_SACCT = {
    "start": FIELDS["start"]._replace(unknown="Unknown"),
    "end": FIELDS["end"]._replace(value=lambda job, now: job.ended_at, unknown="Unknown"),
}
#: States that Slurm does not have -> how Slurm would call them.
_STATES = {
    "STARTING": ("RUNNING", "R"),
    "EXPANDING": ("RUNNING", "R"),
    "CONTRACTING": ("RUNNING", "R"),
}
#: Names of the states that a choice of jobs may name; no job here is ever in the last ones.
_STATE_NAMES = {state.value: state.name for state in JobState if state.name not in _STATES} | {
    "BF": "BOOT_FAIL", "CF": "CONFIGURING", "DL": "DEADLINE", "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED", "S": "SUSPENDED",
}  # fmt: skip


def squeue(words: Sequence[str]) -> None:
    """List jobs as squeue(1) does."""
    options = SQUEUE.parse(words, ("format", "Format", "long", "start"))
    usual = _STARTS if "start" in options else _LONG_JOBS if "long" in options else _JOBS
    form = ListingFormat.parse(options.get("Format") or options.get("format") or usual)
    usual_states = {"PENDING"} if "start" in options else {"PENDING", "RUNNING", "COMPLETING"}
    state = states(options["states"]) if "states" in options else usual_states
    with Client() as service:
        users = service.user if "me" in options else options.get("users")
        listed = service.queue()
        listed += ended_jobs(service, {}) if "states" in options else []
        if "array" in options or "_" in options.get("jobs", ""):
            listed = [*one_by_one(listed)]
        jobs = chosen(all_as_slurm(listed), options, user=users, state=state)
        if "notme" in options:
            jobs = [job for job in jobs if job.user != service.user]
        if form.has_starts:
            jobs = with_expected_starts(service, jobs)
    now = time.time()
    order = options.get("sort") or ("S" if "start" in options else "i")
    text = form.render(sorted_jobs(jobs, order, now), now, heads="noheader" not in options)
    if text:
        print(text)


def sacct(words: Sequence[str]) -> None:
    """List ended and other jobs as sacct(1) does, a line for each job without its steps."""
    options = SACCT.parse(words, ("format", "brief"))
    if "helpformat" in options:
        print(*_AS_WRITTEN.values(), *(name for name in FIELDS if name not in _AS_WRITTEN))
        return
    form = ListingFormat.parse(options.get("format") or (_BRIEF if "brief" in options else _ENDED))
    since, until = (_moment(options.get(name)) for name in ("starttime", "endtime"))
    if since is not None and until is not None and until < since:
        begin, end = format_moment(since), format_moment(until)
        raise ReshapeError(f"Start time ({begin}) requested is after end time ({end})")
    state = states(options["state"] or "all") if "state" in options else None
    with Client() as service:
        listed = service.queue()
        listed += ended_jobs(service, {} if since is None else {"since": since})
    listed = all_as_slurm(listed, steps="allocations" not in options)
    jobs = [
        job
        for job in chosen(listed, options, user=options.get("user"), state=state)
        if (since is None or job.ended_at is None or job.ended_at >= since)
        and (until is None or job.submitted_at <= until)
    ]
    heads, is_table = "noheader" not in options, not options.keys() & {"parsable", "parsable2"}
    columns = []
    for column in form.columns:
        field = _OF_SACCT.get(column.name.lower(), column.field)
        field = field._replace(heading=_AS_WRITTEN.get(column.name.lower(), column.name))
        columns.append(column._replace(field=field, width=(column.width or 10) * is_table))
    between = " " if is_table else options.get("delimiter") or "|"
    texts = ["", *[between] * (len(columns) - 1), between * ("parsable" in options)]
    lines = ListingFormat(columns, texts).render(jobs, time.time(), heads=heads).split("\n")
    if heads and is_table:
        lines.insert(1, between.join("-" * column.width for column in columns))
    if jobs or heads:
        print("\n".join(lines))


def as_slurm(job: JobInfo) -> JobInfo:
    """Describe a job with states, a partition and reasons as Slurm has them."""
    state, code = _STATES.get(job.state, (job.state, job.code))
    _, bracket, rule = job.reason.rpartition(" [")
    return replace(
        job,
        state=state,
        code=code,
        partition=job.partition or job.queue,
        reason=rule.rstrip("]") if bracket else job.reason,
    )


def all_as_slurm(jobs: Sequence[JobInfo], *, steps: bool = False) -> list[JobInfo]:
    """Describe jobs as Slurm does, which has no line for an array beside those of its tasks."""
    arrays = {job.label.partition("_")[0] for job in jobs if "_" in job.label}
    return [
        as_slurm(job)
        for job in jobs
        if (steps or not job.step_of) and (job.label or str(job.job) not in arrays)
    ]


def states(text: str) -> set[str]:
    """Read the states of a list as Slurm has them; see `states_in`."""
    return states_in(text, _STATE_NAMES)


def chosen(
    jobs: Iterable[JobInfo], options: Mapping[str, str], **choices: str | Container[str] | None
) -> list[JobInfo]:
    """Choose jobs by the options jobs, name, partition and nodelist, and by further fields.

    Raises
    ------
    ReshapeError : the name of a job begins with no number.
    """
    words = {word for word in options.get("jobs", "").replace(" ", "").split(",") if word}
    if unknown := [word for word in sorted(words) if not re.match("[1-9]", word)]:
        raise ReshapeError(f"Invalid job id: {plain(unknown[0])}")
    nodes = {*hosts(options["nodelist"])} if "nodelist" in options else None
    choices |= {name: options.get(name) for name in ("name", "partition")}
    return [
        job
        for job in choose(jobs, **choices)
        if ("jobs" not in options or not words.isdisjoint(_names_of(job)))
        and (nodes is None or not nodes.isdisjoint(job.nodes.split(",")))
    ]


def _names_of(job: JobInfo) -> set[str]:
    """Return the words by which a job is named: its number, its label, and that of its array."""
    return {str(job.job), job.label, job.label.partition("_")[0]}


def _moment(text: str | None) -> float | None:
    """Read a moment; None: it is now, or there is none."""
    if text is None or text == "now":
        return None
    try:
        return parse_moment(text, time.time(), past=True)
    except ValueError as error:
        raise ReshapeError(str(error)) from None


#: Hosts that a list may have.
MOST_HOSTS = 100_000
_SPANS = re.compile(r"\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*", re.ASCII)
#: A part of a list: a name, or the parts of a name between lists of numbers in brackets.
_PART = re.compile(r"(?:[^],[]|\[[^]]*\])+")
_PIECE = re.compile(r"\[([^]]*)\]|([^][]+)")


def hosts(text: str) -> list[str]:
    """Return the hosts of a list, in order.

    Raises
    ------
    ReshapeError : it is no list, or has more than `MOST_HOSTS` hosts.
    """
    names: list[str] = []
    at = 0
    while at < len(text) or not names:
        part = _PART.match(text, at)
        if part is None:
            raise _fault(text)
        begun = [""]
        for piece in _PIECE.finditer(part[0]):
            spans, plain = piece.groups()
            ends = [plain] if spans is None else _numbers(spans, text)
            if len(names) + len(begun) * len(ends) > MOST_HOSTS:
                raise ReshapeError(f"{text[:80]!r} has more than {MOST_HOSTS} hosts")
            begun = [begin + end for begin in begun for end in ends]
        names += begun
        at = part.end() + 1
        if at == len(text) or (at < len(text) and text[at - 1] != ","):
            raise _fault(text)
    return names


def _numbers(spans: str, text: str) -> list[str]:
    """Return the numbers of a list in brackets, with their leading zeros."""
    if not _SPANS.fullmatch(spans):
        raise _fault(text)
    numbers: list[str] = []
    for span in spans.split(","):
        low, dash, high = span.partition("-")
        last = int(high if dash else low)
        if last < int(low):
            raise _fault(text)
        if last - int(low) + len(numbers) >= MOST_HOSTS:
            raise ReshapeError(f"{text[:80]!r} has more than {MOST_HOSTS} hosts")
        numbers += [f"{number:0{len(low)}}" for number in range(int(low), last + 1)]
    return numbers


def _fault(text: str) -> ReshapeError:
    return ReshapeError(f"{text[:80]!r} is not a list of hosts such as n[1-3,5],m")


#: States of nodes whose free processors jobs may get.
_IN_USE = ("idle", "mix", "alloc")
_OWN_NODE_STATES = ("idle", "mix", "alloc", "drng", "drain", "down")
_NEVER = """
comp completing fail fut future maint no_respond plnd planned pow_dn pow_up power_down power_up
reboot resv reserved unk unknown
"""
#: Name of a state of nodes, long or short -> states here that it means; no node is ever in others.
_NODE_STATES: dict[str, tuple[str, ...]] = {
    **{state: (state,) for state in _OWN_NODE_STATES},
    "all": _OWN_NODE_STATES,
    "mixed": ("mix",),
    "allocated": ("alloc",),
    "drain": ("drng", "drain"),
    "draining": ("drng",),
    "drained": ("drain",),
    **dict.fromkeys(_NEVER.split(), ()),
}


class _Nodes(NamedTuple):
    """Nodes of a partition that a line of sinfo describes, and the time limit of the partition."""

    partition: str
    is_first: bool
    limit_s: float | None
    nodes: Sequence[NodeInfo]


def _names(part: _Nodes, now: float) -> str:
    return ",".join(node.name for node in part.nodes)


_OF_SINFO = {
    "P": Field("PARTITION", lambda part, now: part.partition + "*" * part.is_first),
    "R": Field("PARTITION", lambda part, now: part.partition),
    "a": Field("AVAIL", lambda part, now: "up"),
    "l": Field("TIMELIMIT", lambda part, now: part.limit_s, form=format_time, unknown="infinite"),
    "D": Field("NODES", lambda part, now: len(part.nodes)),
    "t": Field("STATE", lambda part, now: part.nodes[0].state),
    "T": Field("STATE", lambda part, now: part.nodes[0].state),
    "N": Field("NODELIST", _names),
    "n": Field("HOSTNAMES", _names),
    "C": Field("CPUS(A/I/O/T)", lambda part, now: _processors(part.nodes)),
    "c": Field("CPUS", lambda part, now: max(node.processors for node in part.nodes)),
    "f": Field("AVAIL_FEATURES", lambda part, now: ",".join(
        dict.fromkeys(feature for node in part.nodes for feature in node.features))),
}  # fmt: skip


def sinfo(words: Sequence[str]) -> None:
    """List partitions and their nodes as sinfo(1) does."""
    options = SINFO.parse(words)
    state = "%11T" if "long" in options else "%6t"
    usual = f"%10N %6D %9P {state} %c" if "Node" in options else f"%9P %5a %10l %6D {state} %N"
    form = in_letters(options.get("format") or usual, _OF_SINFO)
    with Client() as service:
        info, nodes = service.info(), _chosen_nodes(service.nodes(), options)
    names = [part.name for part in info.partitions] or ["main"]
    limits = {part.name: part.max_walltime_s for part in info.partitions}
    parts = []
    for name in options.get("partition", ",".join(names)).split(","):
        own = [node for node in nodes if not node.partitions or name in node.partitions]
        groups = [[node] for node in own]
        if "Node" not in options:
            by_state = sorted({node.state for node in own})
            groups = [[node for node in own if node.state == state] for state in by_state]
        if name in names:
            parts += [_Nodes(name, name == names[0], limits.get(name), each) for each in groups]
    text = form.render(parts, info.now, heads="noheader" not in options)
    print("\n".join(dict.fromkeys(line.rstrip() for line in text.split("\n"))))


def _chosen_nodes(nodes: Sequence[NodeInfo], options: Mapping[str, str]) -> list[NodeInfo]:
    """Choose nodes by the options nodes, states, dead and responding of sinfo."""
    names = {*hosts(options["nodes"])} if "nodes" in options else None
    words = options.get("states", "all").lower().split(",")
    for word in words:
        if word not in _NODE_STATES:
            state_names = ", ".join(sorted(_NODE_STATES))
            raise ReshapeError(f"{word!r} is no state of a node: known are {state_names}")
    node_states = {state for word in words for state in _NODE_STATES[word]}
    return [
        node
        for node in nodes
        if (names is None or node.name in names)
        and node.state.rstrip("*") in node_states
        and ("dead" not in options or not _responds(node))
        and ("responding" not in options or _responds(node))
    ]


def _responds(node: NodeInfo) -> bool:
    """Whether the agent of a node reports."""
    return node.state != "down" and not node.state.endswith("*")


def _processors(nodes: Sequence[NodeInfo]) -> str:
    """Write the allocated, idle, other and all processors of nodes."""
    all_ = sum(node.processors for node in nodes)
    held = sum(node.allocated for node in nodes)
    other = sum(n.processors - n.allocated for n in nodes if n.state.rstrip("*") not in _IN_USE)
    return f"{held}/{all_ - held - other}/{other}/{all_}"
