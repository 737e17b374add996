"""How fast traces run through the decision core: jobs a second, memory, and a reference loop.

    python benchmarks/simulator/speed.py TRACE ... [--policy easy] [--select first-fit]
        [--jobs NUMBER] [--resizable SHARE] [--repeat 3] [--beside PYTHON] [--json]

Each run is a process of its own, `reshape simulate`, from start to result. Beside it, in the
same minute, the reference loop of `reference.py` computes the same schedule (EASY, all jobs of the
trace, none resizable) in a process of its own, too; its reading of the trace is not counted. CPU
seconds tell on a machine that others use; the best of some repetitions counts. A first run, which
is not counted, leaves the compiled files of Python. The ratio is the product's jobs per CPU second
over the loop's.

`--beside` names the Python of another installation, such as an earlier release: its runs alternate
with those of this one, and `gain` is the ratio of the jobs per CPU second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path

HERE = Path(__file__).parent
#: With it Python compiles all sources at each start.
UNWRITTEN = "PYTHONDONTWRITEBYTECODE"
LOOP = """
import gc, json, sys, time
sys.path.insert(0, sys.argv[2])
import reference
from simulator.traces import swf
from simulator.traces.normalise import NEEDED, machine_size, normalise
trace = swf.read(sys.argv[1], fields=NEEDED)
size = machine_size(trace)
jobs, _ = normalise(trace, size)
columns = [c.tolist() for c in (jobs.submitted, jobs.processors, jobs.estimate, jobs.run)]
gc.disable()
begin = time.process_time()
started = reference.easy(*columns, size)
cpu_s = time.process_time() - begin
waited = sum(s - a for s, a in zip(started, columns[0]))
print(json.dumps({"cpu_s": cpu_s, "mean_wait_s": waited / len(started)}))
"""


def output(*command: str) -> dict[str, float]:
    """Run a command that prints one JSON object."""
    written = {name: value for name, value in os.environ.items() if name != UNWRITTEN}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=written)
    return json.loads(done.stdout)


def row(
    trace: str, options: list[str], loop: bool, repeat: int, beside: str | None
) -> dict[str, object]:
    """Measure one trace."""
    command = ["-P", "-m", "reshape", "simulate", trace, *options, "--json"]
    pythons = [sys.executable] if beside is None else [sys.executable, beside]
    runs = [[output(python, *command) for python in pythons] for _ in range(repeat + 1)][1:]
    told, *others = (min(own, key=itemgetter("cpu_s")) for own in zip(*runs, strict=True))
    jobs, cpu_s = told["jobs"], told["cpu_s"]
    line: dict[str, object] = {"trace": Path(trace).name.split(".")[0], "jobs": jobs}
    line |= {"jobs/s": round(told["jobs_per_s"]), "jobs/cpu_s": round(jobs / cpu_s)}
    line |= {"MiB": told["peak_rss_mib"], "mean_wait_s": round(told["mean_wait_s"], 4)}
    for other in others:
        line |= {"beside/cpu_s": round(jobs / other["cpu_s"]), "its MiB": other["peak_rss_mib"]}
        line |= {"gain": round(other["cpu_s"] / cpu_s, 3)}
    if loop:
        other = output(sys.executable, "-c", LOOP, trace, str(HERE))
        if abs(other["mean_wait_s"] - told["mean_wait_s"]) > 1e-6 * told["mean_wait_s"]:
            raise SystemExit(f"{trace}: the loop waits {other['mean_wait_s']} s on the mean")
        line |= {"loop/cpu_s": round(jobs / other["cpu_s"])}
        line |= {"ratio": round(other["cpu_s"] / cpu_s, 3)}
    return line


def main() -> None:
    """Print the table, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--policy", default="easy")
    parser.add_argument("--select", choices=["count", "first-fit"], help="count unless resizable")
    parser.add_argument("--jobs", metavar="NUMBER", help="the first jobs alone")
    parser.add_argument("--resizable", metavar="SHARE", help="share of the jobs that are resizable")
    parser.add_argument("--repeat", type=int, default=3, help="runs of which the best counts")
    parser.add_argument("--beside", metavar="PYTHON", help="Python of another installation")
    parser.add_argument("--no-loop", action="store_true", help="without the reference loop")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    given = ["--policy", options.policy]
    for name in ("select", "jobs", "resizable"):
        if getattr(options, name) is not None:
            given += [f"--{name}", getattr(options, name)]
    whole = options.jobs is None and options.resizable is None
    loop = whole and options.policy == "easy" and not options.no_loop
    rows = [row(trace, given, loop, options.repeat, options.beside) for trace in options.traces]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    names = list(rows[0])
    print("  ".join(f"{name:>14}" for name in names))
    for line in rows:
        print("  ".join(f"{line.get(name, '-'):>14}" for name in names))


if __name__ == "__main__":
    main()
