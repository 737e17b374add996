"""Output of the commands: tables similar to those of Slurm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import indent

from reshape.times import in_local_time
from scheduler.client.columns import (
    amounts_text,
    progress_pct,
    running_s,
    sizes_text,
    waited_s,
)
from scheduler.model.procset import ProcSet
from scheduler.protocol.messages import Info, JobInfo, PartitionInfo, ResizeInfo, Story
from scheduler.text.formats import counted, format_moment, format_time
from scheduler.text.plain import plain
from scheduler.text.tables import Table, labelled, render


def _iteration_text(job: JobInfo) -> str:
    """Write how far a job is, as it reported last, up to 50 ms and an iteration ago, if it did."""
    if not (job.iteration or job.iterations):
        return ""
    of = f" of {job.iterations}, {progress_pct(job)}%" if job.iterations else ""
    when = " when it reported last" if job.ended_at else ""
    took = f", an iteration took {job.iteration_s:.3f} s" if job.iteration_s else ""
    return f"{job.iteration}{of}{when}{took}"


def resize_table(job: JobInfo) -> Table:
    """List all resizes of one job, phases in milliseconds; the job computes during `START`.

    AT is the time since the first start, also of a job that was queued again. MIB is the data that
    was moved, SPARE the memory that the processes kept for the next resize beside it, both in MiB.
    """
    began = job.sizes[0][0] if job.sizes else job.submitted_at
    columns: dict[str, Callable[[ResizeInfo], object]] = {
        "RESIZE": lambda resize: resize.serial,
        "AT": lambda resize: f"+{resize.at - began:.1f}s",
        "SIZE": lambda resize: f"{resize.old}-{resize.new}",
        "START": lambda resize: f"{1000 * resize.start_s:.1f}",
        "CLOSE": lambda resize: f"{1000 * resize.close_s:.1f}",
        "JOIN": lambda resize: f"{1000 * resize.join_s:.1f}",
        "PLAN": lambda resize: f"{1000 * resize.plan_s:.1f}",
        "MOVE": lambda resize: f"{1000 * resize.move_s:.1f}",
        "RESUME": lambda resize: f"{1000 * resize.resume_s:.1f}",
        "MIB": lambda resize: f"{resize.moved_bytes / 2**20:.2f}",
        "SPARE": lambda resize: f"{resize.spare_bytes / 2**20:.2f}",
        "OUTCOME": lambda resize: resize.outcome,
    }
    return Table.of(job.resizes, columns, "OUTCOME")


def held_text(job: JobInfo) -> str:
    """Write the processor-seconds of a job and, if it had several sizes, those of each."""
    by_size = job.processor_seconds_by_size
    parts = ", ".join(f"{seconds:.1f} on size {size}" for size, seconds in by_size)
    total = f"{job.processor_seconds:.1f} processor-seconds"
    return f"{total}: {parts}" if len(by_size) > 1 else total


def exit_status(job: JobInfo) -> int:
    """Exit code of an ended job as a shell reports it: 128 + N if signal N ended the job."""
    if job.signal:
        return 128 + job.signal
    return job.exit_code or int(job.state != "COMPLETED")


def job_lines(job: JobInfo, now: float) -> dict[str, str]:
    """Describe one job in full, as ``scontrol show job`` does, by the names that apply to it."""
    resizes = f"{job.resize_count}, paused for {job.pause_s:.3f} s in all"
    most = f" (to {job.max_processors})" if job.max_processors else ""
    if job.min_processors:
        most = f" ({job.min_processors} to {job.max_processors or job.requested})"
    held = f": {job.processors}" if job.processors else ""
    lines = {
        "Job": f"{job.job} {job.name}",
        "Step": job.label if job.step_of else "",
        "Array": job.array,
        "Task": "" if job.step_of or job.array else job.label,
        "User": job.user,
        "State": f"{job.state} {in_local_time(job.reason)}".rstrip(),
        "Queue": f"{job.queue or '-'}, priority {job.priority:g}",
        "Partition": job.partition,
        "Processors": f"{job.size} of {job.requested} requested{most}{held}",
        "Resources": amounts_text(job.resources),
        "Demand": f"{amounts_text(job.shared)} a process" if job.shared else "",
        "Nodes": job.nodes,
        "Requested": job.on_nodes,
        "Ranks": ranks_text(job),
        "Binding": binding_text(job),
        "Sizes": sizes_text(job),
        "Iteration": _iteration_text(job),
        "Late": job.late,
        "Submitted": format_moment(job.submitted_at),
        "Started": format_moment(job.started_at),
        "Ended": format_moment(job.ended_at),
        "Redirected": format_moment(job.redirected_at),
        "Time": f"{format_time(running_s(job, now))} of {format_time(job.walltime_s)}",
        "Waited": format_time(waited_s(job, now)),
        "ExitCode": f"{job.exit_code}:{job.signal}" if job.ended_at else "",
        "Restarts": f"{job.restarts}, requeued {counted(job.requeues, 'time')}",
        "Held": held_text(job),
        "Resizes": in_local_time("; ".join(filter(None, (resizes, job.failed_resizes)))),
        "Memory": f"{job.max_memory_mib} MiB at most" if job.max_memory_mib else "",
        "Facts": ", ".join(f"{name}={value}" for name, value in job.facts.items()),
        "Command": " ".join(job.argv),
        "Output": job.output,
        "Error": job.error,
        "Ignored": job.ignored,
    }
    return {name: text for name, text in lines.items() if text not in ("", "-")}


def job_text(job: JobInfo, now: float) -> str:
    """Describe one job in full, with its resizes and the last lines of its output."""
    text = labelled(job_lines(job, now))
    table = render(resize_table(job)) if job.resizes else ""
    return "\n\n".join(filter(None, (text, table, last_lines_text(job))))


def answer_text(job: JobInfo, lines: Sequence[Story], now: float) -> str:
    """Answer in a line why a job waits, why it has its size, or how it has ended.

    Parameters
    ----------
    lines : its explanation.
    """
    who, reason = f"job {job.label or job.job}", in_local_time(job.reason)
    if job.ended_at is not None:
        how = f"{job.state} {job.exit_code}:{job.signal} after {format_time(running_s(job, now))}"
        return plain(f"{who} has ended: {how}" + (f": {reason}" if reason else ""))
    if job.started_at is None or not job.size:
        return plain(f"{who} waits: {reason or job.state.lower()}")
    where = f"{who} is {job.state.lower()} on {counted(job.size, 'processor')} of {job.nodes}"
    if job.late:
        return plain(f"{where}: {job.late}")
    decided = [in_local_time(line.text) for line in lines if line.rule]
    return plain(f"{where}: it {decided[-1]}" if decided else where)


def last_lines_text(job: JobInfo) -> str:
    """Write the last lines of the output of a job that failed or exceeded its time, and its path.

    A job that was cancelled was ended on purpose; its lines are in the JSON of `reshape info`.
    """
    if not job.last_lines or job.state == "CANCELLED":
        return ""
    return f"Last lines of {plain(job.error or job.output)}:\n{indent(job.last_lines, '    ')}"


def ranks_text(job: JobInfo) -> str:
    """Write the ranks of each group by node, such as ``group 1: 0-1 on n1:2-3, 2-3 on n2:0-1``."""
    by_group: dict[int, dict[str, tuple[ProcSet, ProcSet]]] = {}
    for held in job.ranks:
        nodes = by_group.setdefault(held.group, {})
        ranks, cores = nodes.get(held.node, (ProcSet(), ProcSet()))
        rank, core = ProcSet.span(held.rank, 1), ProcSet.span(held.core, 1)
        nodes[held.node] = ranks | rank, cores | core
    return (
        "; ".join(
            f"group {group}: "
            + ", ".join(f"{ranks} on {node}:{cores}" for node, (ranks, cores) in nodes.items())
            for group, nodes in by_group.items()
        )
        or "-"
    )


def binding_text(job: JobInfo) -> str:
    """Write the CPUs of the ranks that are bound, and why others are not.

    For example ``group 1: 0 to CPU 2, 1 to CPU 3; none on n2 (...)``.
    """
    by_group: dict[int, list[str]] = {}
    for held in job.ranks:
        if held.cpus:
            cpus = f"CPU{'s' * (len(held.cpus) > 1)} {ProcSet.of(held.cpus)}"
            by_group.setdefault(held.group, []).append(f"{held.rank} to {cpus}")
    parts = [f"group {group}: {', '.join(ranks)}" for group, ranks in by_group.items()]
    parts += [f"none on {node} ({why})" for node, why in job.unbound.items()]
    return "; ".join(parts) or "-"


def service_text(info: Info) -> str:
    """Describe the service, its processors, resources, jobs and nodes."""
    held = info.resources
    lines = {
        "Service": f"reshape {info.version}, process {info.pid}",
        "Directory": info.directory,
        "Running for": format_time(info.now - info.started_at),
        "Scenario": info.scenario,
        "Processors": f"{info.processors}, {info.free} free",
        "Resources": ", ".join(f"{n} {all_}, {free} free" for n, (all_, free) in held.items()),
        "Shared": f"{amounts_text(info.shared)} a node" if info.shared else "",
        "Jobs": f"{info.queued} queued, {info.running} running, {info.ended} ended",
        "Halted": info.halted and f"{info.halted}; nothing is decided until there is room",
        "Unreadable": "; ".join(info.unreadable),
        "Refused": ", ".join(
            counted(number, f"{kind} error") for kind, number in sorted(info.refused.items())
        ),
    }
    reason = ("REASON",) if any(info.awaited.values()) else ()
    nodes = [
        (name, str(processors), state, *(info.awaited.get(name, "") for _ in reason))
        for name, processors, state in info.nodes
    ]
    heads, left = ("NODE", "PROCS", "STATE", *reason), frozenset({"NODE", "STATE", "REASON"})
    table = Table(heads, [*nodes], left=left)
    partitions = render(_partition_table(info.partitions)) if info.partitions else ""
    return "\n\n".join(filter(None, (labelled(lines), partitions, render(table))))


def _partition_table(partitions: Sequence[PartitionInfo]) -> Table:
    """List partitions as sinfo does."""
    columns: dict[str, Callable[[PartitionInfo], object]] = {
        "PARTITION": lambda part: part.name,
        "SCENARIO": lambda part: part.scenario,
        "PROCS": lambda part: part.processors,
        "FREE": lambda part: part.free,
        "QUEUED": lambda part: part.queued,
        "RUNNING": lambda part: part.running,
        "MAXPROCS": lambda part: part.max_processors or "-",
        "TIMELIMIT": lambda part: format_time(part.max_walltime_s),
    }
    return Table.of(partitions, columns, "PARTITION SCENARIO")
