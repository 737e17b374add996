"""The Paraver trace, read by a parser that knows the format and nothing of who wrote it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from paths import SMALL_TRACE

from simulator.results import jobs_csv
from simulator.results.schedule import Schedule
from simulator.traces import swf

SMALL = SMALL_TRACE
HEADER = re.compile(
    r"#Paraver \((\d\d/\d\d/\d{4} at \d\d:\d\d)\):(\d+)_ns:(\d+)\(([\d,]+)\):(\d+):(.*),0"
)


class Parsed(NamedTuple):
    date: str
    end: int
    cpus: list[int]
    threads: list[int]  # of each application
    states: list[tuple[int, ...]]  # cpu, application, task, thread, begin, end, state
    events: list[tuple[int, ...]]  # cpu, application, task, thread, time, type, value


def parsed(path: Path) -> Parsed:
    """Read a .prv as the format says; every object a record names must be in the header."""
    lines = path.read_text().splitlines()
    match = HEADER.fullmatch(lines[0])
    assert match is not None, lines[0]
    date, end, nodes, cpus, applications, listed = match.groups()
    sizes = [int(count) for count in cpus.split(",")]
    assert len(sizes) == int(nodes)
    threads = []
    for application in listed.split(":1)")[:-1]:  # all tasks are on node 1
        one = re.fullmatch(r":?1\((\d+)", application)
        assert one is not None, application
        threads.append(int(one[1]))
    assert len(threads) == int(applications)
    states, events, before = [], [], 0
    for line in lines[1:]:
        kind, *fields = map(int, line.split(":"))
        cpu, application, task, thread, at, *rest = fields
        assert 0 <= cpu <= sum(sizes)
        assert task == 1
        assert 1 <= thread <= threads[application - 1]
        assert before <= at <= int(end)
        before = at
        if kind == 1:
            states.append(tuple(fields))
        else:
            assert kind == 2
            events += [(*fields[:5], *pair) for pair in zip(rest[::2], rest[1::2], strict=True)]
    return Parsed(date, int(end), sizes, threads, states, events)


def results(folder: Path, *options: str) -> tuple[Parsed, Schedule, dict]:
    command = [sys.executable, "-m", "reshape", "simulate", str(SMALL), "--out", str(folder)]
    subprocess.run([*command, "--paraver", *options], check=True, capture_output=True)
    metrics = json.loads((folder / "metrics.json").read_text())
    schedule, _ = jobs_csv.read(folder / "jobs.csv")
    return parsed(folder / "schedule.prv"), schedule, metrics


def area(events: list[tuple[int, ...]], kind: int, end: int) -> int:
    """Integral of an event's value over time."""
    changes = [(event[4], event[6]) for event in events if event[5] == kind]
    times = [at for at, _ in changes] + [end]
    return sum(value * (times[i + 1] - times[i]) for i, (_, value) in enumerate(changes))


def test_totals(tmp_path: Path) -> None:
    trace, schedule, metrics = results(tmp_path, "--select", "first-fit")
    assert trace.date == "01/01/1970 at 00:00"
    assert trace.cpus == [64]
    assert trace.threads == [64, 1]
    assert trace.end == round(metrics["makespan_s"] * 1e9)
    busy = sum(end - begin for *_, begin, end, _ in trace.states)
    assert busy / trace.end / 64 == pytest.approx(metrics["utilization"])
    spans = defaultdict(list)
    for cpu, application, _, thread, begin, end, state in trace.states:
        assert (application, state) == (1, 1)
        assert cpu == thread
        spans[cpu].append((begin, end))
    for of_one in spans.values():  # no processor does two things at once
        assert all(a[1] <= b[0] for a, b in pairwise(of_one))
    started = {(e[0], e[6]) for e in trace.events if e[5] == 7700001 and e[6]}
    assert schedule.allocated is not None
    held = zip(jobs_csv.job_names(schedule), schedule.allocated.values(), strict=True)
    assert started == {(cpu + 1, int(number)) for number, own in held for cpu in own}
    wait = area(trace.events, 7700011, trace.end) / 1e9
    assert wait == pytest.approx(metrics["mean_wait_s"] * metrics["jobs"])
    wanted = float((schedule.wait * schedule.jobs.processors).sum())
    assert area(trace.events, 7700012, trace.end) / 1e9 == pytest.approx(wanted)
    assert area(trace.events, 7700013, trace.end) == busy


def test_what_the_numbers_mean_stands_in_the_other_files(tmp_path: Path) -> None:
    trace, _, _ = results(tmp_path, "--jobs", "60", "--select", "first-fit")
    labels = (tmp_path / "schedule.pcf").read_text()
    known = {int(kind) for kind in re.findall(r"^EVENT_TYPE\n0 +(\d+) +\S", labels, re.M)}
    assert {event[5] for event in trace.events} == known
    states = labels.partition("STATES\n")[2].partition("\n\n")[0]
    assert {state[-1] for state in trace.states} <= {int(s.split()[0]) for s in states.split("\n")}
    levels = (tmp_path / "schedule.row").read_text().strip().split("\n\n")
    sizes = {}
    for level in levels:
        head, *names = level.split("\n")
        _, what, _, size = head.split()
        sizes[what] = int(size)
        assert len(names) == int(size)
    assert sizes == {"CPU": 64, "NODE": 1, "THREAD": 65}


def test_counted_processors_leave_the_queue_alone(tmp_path: Path) -> None:
    trace, _, metrics = results(tmp_path)
    assert (trace.threads, trace.states) == ([1], [])
    used = area(trace.events, 7700013, trace.end) / trace.end
    assert used / 64 == pytest.approx(metrics["utilization"])


def test_the_date_is_that_of_the_trace(tmp_path: Path) -> None:
    read = swf.read(SMALL)
    read.header.append("; UnixStartTime: 1000000000")
    read.columns["submit"] = np.asarray(read.columns["submit"]) + 7200
    swf.write(tmp_path / "dated.swf", read)
    command = [sys.executable, "-m", "reshape", "simulate", str(tmp_path / "dated.swf")]
    subprocess.run([*command, "--paraver", "--out", str(tmp_path)], check=True, capture_output=True)
    assert parsed(tmp_path / "schedule.prv").date == "09/09/2001 at 03:46"
