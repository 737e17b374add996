"""The files of this project that a resize point passes, in the program and in the service.

    python benchmarks/runtime/point_path.py [--points 100] [--jobs 3] [--functions]

starts a service and submits this file as a job of one process that may have two, several times.
Rank 0 and the service trace their calls, and run the sources of the modules that are compiled
otherwise. A file is passed by a point if one of its functions is called, in either process, between
the call of the resize point in rank 0 and its return. There is a table for each answer:

    no change    the job proceeds
    expansion    it proceeds; the service has just decided on an expansion and starts a group
    join         the group joins and the data moves

A file that less than half of the points of a kind pass belongs to periodic work: ticks of the
service and reports of its agent fall between the call and the return of some points.
With --functions the names of the functions are listed as well.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("reshape", "redistribution", "scheduler")
#: Function that the program resumes at a resize point, and the one that returns the answer.
POINT = ("reshape/app.py", "_steps")
ASK = ("reshape/wire/link.py", "ask")
SERVE = ("scheduler/service/server.py", "_loop")
#: Latest calls that a process keeps.
MOST_CALLS = 1_000_000


def trace(folder: str) -> None:
    """Trace this process; write its calls to the folder if it is the service or a rank 0.

    Times are those of the monotonic clock, which the processes of a host share.
    """
    calls: deque[tuple[float, str, str]] = deque(maxlen=MOST_CALLS)  # time, file, function
    points: list[tuple[float, float, str]] = []  # begin, end, answer
    names: dict[CodeType, tuple[str, str] | None] = {}
    began, answer, is_announced = 0.0, "", False

    def name_of(code: CodeType) -> tuple[str, str] | None:
        path = Path(code.co_filename)
        if not path.is_relative_to(ROOT) or code.co_name == "<module>":
            return None
        file = str(path.relative_to(ROOT))
        return (file, code.co_name) if file.startswith(FOLDERS) else None

    def note(frame: FrameType, event: str, result: object) -> None:
        nonlocal began, answer, is_announced
        if event not in ("call", "return"):
            return
        code = frame.f_code
        if code not in names:
            names[code] = name_of(code)
        name = names[code]
        if name is None:
            return
        now = time.monotonic()
        if event == "call":
            if name == POINT:
                began, answer = now, ""
            calls.append((now, *name))
        elif name == ASK:
            expands = bool(getattr(result, "expands_to", 0))
            answer = "no change" if type(result).__name__ == "Proceed" else "join"
            if expands:
                answer = "expansion" if not is_announced else "announced again"
            is_announced = expands
        elif name == POINT and answer:
            points.append((began, now, answer))

    def write() -> None:
        sys.setprofile(None)
        if points or SERVE in names.values():
            part = "program" if points else "service"
            Path(folder, f"{part}-{os.getpid()}.json").write_text(json.dumps([points, list(calls)]))

    atexit.register(write)
    sys.setprofile(note)


def program(points: int) -> None:
    """Be a rank of the job, which takes half the time on two processors."""
    import reshape

    with reshape.application() as app:
        app.rows("u", (1000, 100))
        for _ in app.iterations(points):
            time.sleep(0.04 / app.comm.size)


def run_jobs(folder: str, count: int, points: int) -> None:
    """Run a service with the jobs, one after another, all traced."""
    from scheduler import Client

    def command(*arguments: str) -> None:
        words = [sys.executable, "-m", "reshape", *arguments]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)

    here = str(Path(__file__).resolve().parent)
    Path(folder, "sitecustomize.py").write_text(
        f"import sys\nsys.path.insert(0, {here!r})\n"
        f"import point_path\nsys.path.remove({here!r})\npoint_path.trace({folder!r})\n"
    )
    os.environ["PYTHONPATH"] = f"{folder}:{os.environ.get('PYTHONPATH', '')}"
    os.environ |= {"RESHAPE_COMPILED": "0", "RESHAPE_ASK_EVERY_S": "0"}
    place, output = f"{folder}/service", f"{folder}/output"
    command("serve", "--dir", place, "--processors", "2", "--background")
    try:
        with Client(place) as service:
            argv = [sys.executable, __file__, "--rank", f"--points={points}"]
            for _ in range(count):
                job = service.submit(
                    argv, processors=1, max_processors=2, walltime=60, output=output
                )
                info = job.wait()
                if info.state != "COMPLETED" or not info.resize_count:
                    text = Path(output).read_text()
                    raise SystemExit(f"{info.state}, {info.resize_count} resizes:\n{text}")
    finally:
        command("stop", "--dir", place, "--kill")


def print_paths(folder: str, *, functions: bool) -> None:
    """Print the files that points of each kind pass, and how many of the points pass each."""
    points: list[tuple[float, float, str]] = []
    calls: dict[str, list[tuple[float, str, str]]] = {"program": [], "service": []}
    for path in Path(folder).glob("*.json"):
        some, latest = json.loads(path.read_text())
        points += some
        calls[path.name.partition("-")[0]] += latest
    for kind in ("no change", "expansion", "join"):
        spans = [(begin, end) for begin, end, answer in points if answer == kind]
        count: defaultdict[tuple[str, str], int] = defaultdict(int)
        called: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        numbers = []
        for begin, end in spans:
            passed = set()
            for part, some in calls.items():
                for at, file, function in some:
                    if begin <= at <= end:
                        passed.add((part, file))
                        called[part, file].add(function)
            numbers.append(len({file for _, file in passed}))
            for each in passed:
                count[each] += 1
        regular = {file for (_, file), times in count.items() if 2 * times >= len(spans)}
        others = {file for _, file in count} - regular
        print(f"{kind}: {len(spans)} points, median {statistics.median(numbers):g} files;")
        print(f"{len(regular)} at half of the points or more, {len(others)} others at some")
        for (part, file), times in sorted(count.items(), key=lambda each: (-each[1], each[0])):
            names = " ".join(sorted(called[part, file])) if functions else ""
            print(f"  {times:4} {part:8} {file:54} {names}".rstrip())


def main() -> None:
    """Read the options; measure, or be a rank."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the service ends, too
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        program(options.points)
        return
    with tempfile.TemporaryDirectory() as folder:
        run_jobs(folder, options.jobs, options.points)
        print_paths(folder, functions=options.functions)


if __name__ == "__main__":
    main()
