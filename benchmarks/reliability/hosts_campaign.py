"""Faults of hosts in each phase of a resize across hosts.

    python benchmarks/reliability/hosts_campaign.py [--faults cut-5,host] [--phases joining]
        [--hosts n2] [--node-lost SECONDS] [--parallel 2] [--out FILE] [--json]
    python benchmarks/reliability/hosts_campaign.py --rounds cut-6:joining:n2,service:both [...]

A round has a real service and three hosts of two processors, made of namespaces
(`examples/cluster/hosts.py`; root is needed). A job begins on n1, expands onto n2 and leaves n1; it
verifies all of its data, and is queued again if its processes die. A second job runs on n3. As soon
as the service notes the phase, the fault happens:

    cut-S     the host is cut from the network for S seconds
    agent     the agent of the host is killed, and started again after a second
    host      the host is killed
    service   the service is killed, and started again after a second
    both      service and agent are killed, and started again after a second, the agent first

The exit code is 0 if, in every round, both jobs complete with a right result, the job on n3 is not
disturbed, the remaining hosts run a job on all their processors afterwards, and no process and no
shared memory of a job is left; 77 if such hosts cannot be made. Rounds that FILE has already are not
run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "cluster")]

from cluster import Cluster  # noqa: E402
from hosts import NoHosts  # noqa: E402

from reshape.wire import messages as m  # noqa: E402
from scheduler.text.tables import Table, render  # noqa: E402

CANNOT_RUN = 77
PROCESSORS = 2
#: Phase -> what the log of the service says at its beginning.
PHASES = {
    "running": "Start(job=2",
    "starting": "Expand(job=2",
    "ready": "job=2 serial=1 ready",
    "joining": "job=2 serial=1 joining",
    "both": "job=2 serial=1 committed",
    "leaving": "Contract(job=2",
    "left": "job=2 serial=2 committed",
}
FAULTS = ("cut-5", "cut-30", "cut-120", "agent", "host", "service", "both")
#: Seconds that a round may take besides the time for which a host is cut off.
PATIENCE_S = 150.0


class Round(NamedTuple):
    """One round; `host` is "" for a fault of the service."""

    fault: str
    phase: str
    host: str

    @property
    def cut_s(self) -> float:
        """Seconds for which the host is cut off; 0 if it is not."""
        kind, _, seconds = self.fault.partition("-")
        return float(seconds) if kind == "cut" else 0.0


class Outcome(NamedTuple):
    """What happened: how the resizes ended, and what went wrong (empty: nothing)."""

    resizes: str
    restarts: int
    requeues: int
    took_s: float
    wrong: str


def run_round(this: Round, node_lost_s: float) -> Outcome:
    """Run one round with a service of its own."""
    config = f"deadlines: {{node_lost_s: {node_lost_s:g}, heartbeat_s: 0.3, join_s: 5}}"
    options = ["--verify", "--scenario", "scripted:Scripted"]
    options += ["--set", "resizing.steps='4 2/1'", "--set", "resizing.hold=5"]
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="reshape-hosts-") as folder,
        Cluster(Path(folder), 3, PROCESSORS, config, options, policies=SUPPORT) as cluster,
    ):
        wrong = list(_faults_of(cluster, this))
        job = cluster.job(2)
    resizes = ", ".join(f"{r.old}-{r.new} {r.outcome.split(':')[0]}" for r in job.resizes)
    took_s = time.monotonic() - began
    return Outcome(resizes, job.restarts, job.requeues, took_s, "; ".join(wrong))


def _faults_of(cluster: Cluster, this: Round) -> Iterator[str]:
    """Run the jobs of a round with its fault; yield what goes wrong."""
    sleep = f"import time; time.sleep({12 + this.cut_s}); print('right')"
    with _drained(cluster, "n1", "n2"):
        other = cluster.submit([sys.executable, "-c", sleep], PROCESSORS)
        cluster.until(lambda: cluster.job(other).state == "RUNNING")
    synthetic = [sys.executable, "-m", "apps.synthetic", "--iterations", "100", "--seconds", "0.2"]
    synthetic += ["--speedup", "amdahl:serial=0", "--mib", "128"]
    answer = cluster.ask(m.ServerInfo())
    assert isinstance(answer, m.Info)
    job = cluster.submit(synthetic, PROCESSORS, max_processors=2 * PROCESSORS, requeue=True)
    _until(cluster, PHASES[this.phase])
    _strike(cluster, this, answer.pid)
    yield from _end_of(cluster, job, PATIENCE_S + this.cut_s)
    # Facts that a program reports at its end are lost if there is no service then.
    if not any(line.endswith(" verified") for line in cluster.output(job).splitlines()):
        yield f"the data of job {job} is not verified"
    yield from _end_of(cluster, other, PATIENCE_S + this.cut_s)
    if cluster.output(other) != "right\n" * PROCESSORS:
        yield f"job {other} on n3 was disturbed"
    yield from _remains(cluster, this)


def _end_of(cluster: Cluster, job: int, limit_s: float) -> Iterator[str]:
    """Wait for the end of a job; yield what is wrong with it."""
    try:
        info = cluster.wait(job, limit_s)
    except TimeoutError:
        yield f"job {job} hangs ({cluster.job(job).state})"
        return
    if info.state != "COMPLETED":
        yield f"job {job} ended as {info.state}: {info.reason}"


@contextmanager
def _drained(cluster: Cluster, *names: str) -> Iterator[None]:
    """Let nodes drain until the end of the block, so that jobs start on the others."""
    for name in names:
        cluster.ask(m.ChangeNode(node=name, drains=True))
    yield
    for name in names:
        cluster.ask(m.ChangeNode(node=name, drains=False))


def _until(cluster: Cluster, text: str) -> None:
    """Wait until the log of the service has a text."""
    log, end = cluster.directory / "serve.log", time.monotonic() + PATIENCE_S
    while text not in log.read_text():
        if time.monotonic() > end:
            raise TimeoutError(f"the phase was not reached: the log does not say {text!r}")
        time.sleep(0.003)


def _strike(cluster: Cluster, this: Round, service: int) -> None:
    """Let the fault of a round happen."""
    if this.fault in ("service", "both"):
        os.kill(service, 9)
        if this.fault == "both":
            cluster.kill_agent(this.host)
        time.sleep(1)
        if this.fault == "both":
            cluster.start_agent(this.host)
        cluster.start_service()
    elif this.fault == "agent":
        cluster.kill_agent(this.host)
        time.sleep(1)
        cluster.start_agent(this.host)
    elif this.fault == "host":
        cluster.hosts[this.host].kill()
    else:
        cluster.hosts.cut(this.host)
        time.sleep(this.cut_s)
        cluster.hosts.join(this.host)


def _remains(cluster: Cluster, this: Round) -> Iterator[str]:
    """Find what is left of the jobs, and whether the hosts serve again."""
    names = [name for name in cluster.names if this.fault != "host" or name != this.host]
    try:
        cluster.until(lambda: all(cluster.nodes()[name] == "up" for name in names), 60.0)
    except TimeoutError:
        yield f"not up again: {cluster.nodes()}"
        return
    last = cluster.submit(["true"], PROCESSORS * len(names))
    try:
        if (info := cluster.wait(last)).state != "COMPLETED":
            yield f"the next job ended as {info.state}: {info.reason}"
    except TimeoutError:
        yield "the next job hangs"
    for name in names:
        try:
            cluster.until(lambda name=name: not _left_on(cluster, name), 20.0)  # type: ignore[misc]
        except TimeoutError:
            yield f"left on {name}: {' '.join(_left_on(cluster, name))}"


def _left_on(cluster: Cluster, name: str) -> list[str]:
    """Processes of jobs and their folders in shared memory on a host."""
    processes = "pgrep -l -r R,S,D -f 'hydra|apps.synthetic'"
    script = f"{processes}; ls -d /dev/shm/reshape-*/job-* 2>/dev/null; true"
    command = cluster.hosts[name].command(["sh", "-c", script])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if not line.endswith(" sh")]


def rounds_of(faults: Sequence[str], phases: Sequence[str], hosts: Sequence[str]) -> list[Round]:
    """All rounds of these faults, phases and hosts; a fault of the service has no host."""
    found = [Round(*each) for each in product(faults, phases, hosts)]
    return list(
        dict.fromkeys(each._replace(host="") if each.fault == "service" else each for each in found)
    )


def read_outcomes(path: Path | None) -> dict[Round, Outcome]:
    """Read the rounds that a file of `--out` has; empty if there is none."""
    done: dict[Round, Outcome] = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            row = json.loads(line)
            this = Round(*(row[name] for name in Round._fields))
            done[this] = Outcome(*(row[name] for name in Outcome._fields))
    return done


def read_rounds(text: str) -> list[Round]:
    """Read rounds such as ``cut-6:joining:n2,service:both``."""
    rounds = [Round(*[*word.split(":"), "", ""][:3]) for word in text.split(",")]
    for this in rounds:
        _check("fault", this.fault, FAULTS)
        _check("phase", this.phase, PHASES)
        if (this.fault == "service") != (this.host == ""):
            raise argparse.ArgumentTypeError(f"a fault of the service alone has no host: {this}")
    return rounds


def _check(what: str, word: str, known: Iterable[str]) -> None:
    """Raise an error for an unknown word; a host may be cut for any number of seconds."""
    kind, _, seconds = word.partition("-")
    if word not in known and not (what == "fault" and kind == "cut" and seconds.isdigit()):
        raise argparse.ArgumentTypeError(f"unknown {what} {word!r}: use {', '.join(known)}")


def _words(what: str, known: Iterable[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            _check(what, word, known)
        return words

    return read


def main(words: list[str] | None = None) -> int:
    """Run the rounds and print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    hosts = ["n1", "n2"]
    parser.add_argument("--faults", type=_words("fault", FAULTS), default=list(FAULTS))
    parser.add_argument("--phases", type=_words("phase", PHASES), default=list(PHASES))
    parser.add_argument("--hosts", type=_words("host", hosts), default=hosts)
    parser.add_argument("--rounds", type=read_rounds, help="rounds, in place of all combinations")
    parser.add_argument("--node-lost", type=float, default=60.0, help="node_lost_s, seconds (60)")
    parser.add_argument("--parallel", type=int, default=1, help="rounds at the same time (1)")
    parser.add_argument("--out", type=Path, help="file of the rounds, a line of JSON each")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args(words)
    rounds = options.rounds or rounds_of(options.faults, options.phases, options.hosts)

    done = read_outcomes(options.out)

    def one(this: Round) -> Outcome:
        if this in done:
            return done[this]
        try:
            outcome = run_round(this, options.node_lost)
        except (TimeoutError, RuntimeError, subprocess.TimeoutExpired) as error:
            outcome = Outcome("", 0, 0, 0.0, f"{type(error).__name__}: {error}")
        line = json.dumps({**this._asdict(), **outcome._asdict()})
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(f"{line}\n")
        print(f"{this}: {outcome.wrong or 'right'}", file=sys.stderr, flush=True)
        return outcome

    try:
        with ThreadPoolExecutor(options.parallel) as pool:
            outcomes = list(pool.map(one, rounds))
    except NoHosts as reason:
        print(f"the campaign cannot run here: {reason}", file=sys.stderr)
        return CANNOT_RUN
    wrong = sum(bool(outcome.wrong) for outcome in outcomes)
    if options.json:
        pairs = zip(rounds, outcomes, strict=True)
        rows = [{**this._asdict(), **outcome._asdict()} for this, outcome in pairs]
        print(json.dumps({"rounds": rows, "wrong": wrong}))
    else:
        print(table(rounds, outcomes))
        print(f"{len(rounds)} rounds, {wrong} with something wrong")
    return int(wrong > 0)


def table(rounds: Sequence[Round], outcomes: Sequence[Outcome]) -> str:
    """Write a row for each round."""
    heads = ("FAULT", "PHASE", "HOST", "RESIZES", "RESTARTS", "REQUEUES", "SECONDS", "WRONG")
    rows = [
        (
            this.fault,
            this.phase,
            this.host or "-",
            outcome.resizes,
            str(outcome.restarts),
            str(outcome.requeues),
            f"{outcome.took_s:.0f}",
            outcome.wrong or "-",
        )
        for this, outcome in zip(rounds, outcomes, strict=True)
    ]
    left = frozenset({"FAULT", "PHASE", "HOST", "RESIZES", "WRONG"})
    return render(Table(heads, rows, left=left), False)


if __name__ == "__main__":
    sys.exit(main())
