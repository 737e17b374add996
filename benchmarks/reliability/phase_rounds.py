"""Rounds of a fault campaign in which a fault happens in a phase of a resize across hosts.

What the campaigns of faults of hosts (`hosts_campaign`) and of Slurm (`slurm_campaign`) share: the
phases, their options, the files of their rounds, and the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
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

from scheduler.protocol import messages as m  # noqa: E402
from scheduler.text.tables import Table, render  # noqa: E402

CANNOT_RUN = 77
PROCESSORS = 2
#: Phase -> what the log of the service says of the resized job {job} at its beginning.
PHASES = {
    "running": "job={job} starts on processors ",
    "starting": "job={job} is to expand to ",
    "ready": "job={job} serial=1 ready",
    "joining": "job={job} serial=1 joining",
    "both": "job={job} serial=1 committed",
    "leaving": "job={job} is to contract to ",
    "left": "job={job} serial=2 committed",
}
#: Options of a service whose resizable job expands onto another host, and leaves its first one.
STEPS = ("--verify", "--scenario", "scripted:Scripted")
STEPS = (*STEPS, "--set", "resizing.steps='4 2/1'", "--set", "resizing.hold=5")
#: Seconds that a round may take besides the time for which a host is cut off.
PATIENCE_S = 150.0


class Round(NamedTuple):
    """One round; `host` is "" for a fault that hits no host."""

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


class Campaign(NamedTuple):
    """A campaign.

    Parameters
    ----------
    doc : description of the program; its first line is that of ``--help``.
    faults : names of the faults; ``cut-S`` may have any number of seconds.
    without_host : faults that hit no host.
    hosts : names of the hosts that a fault may hit.
    run_round : runs a round with the option ``--node-lost``.
    """

    doc: str
    faults: Sequence[str]
    without_host: Sequence[str]
    hosts: Sequence[str]
    run_round: Callable[[Round, float], Outcome]


def synthetic(iterations: int) -> list[str]:
    """Return a program that computes and verifies 128 MiB, 0.2 s for an iteration on a host."""
    argv = [sys.executable, "-m", "apps.synthetic", "--iterations", str(iterations)]
    return [*argv, "--seconds", "0.2", "--speedup", "amdahl:serial=0", "--mib", "128"]


def until_phase(cluster: Cluster, job: int, phase: str) -> None:
    """Wait until a job is in a phase.

    Raises
    ------
    TimeoutError : it did not come to that.
    """
    log, end = cluster.directory / "serve.log", time.monotonic() + PATIENCE_S
    text = PHASES[phase].format(job=job)
    while text not in log.read_text():
        if time.monotonic() > end:
            raise TimeoutError(f"the phase was not reached: the log does not say {text!r}")
        time.sleep(0.003)


@contextmanager
def drained(cluster: Cluster, *names: str) -> Iterator[None]:
    """Let nodes drain until the end of the block, so that jobs start on the others."""
    for name in names:
        cluster.ask(m.ChangeMachine(change=m.DrainNode(name)))
    yield
    for name in names:
        cluster.ask(m.ChangeMachine(change=m.ResumeNode(name)))


def outcome_of(cluster: Cluster, job: int, began: float, wrong: Iterable[str]) -> Outcome:
    """Describe a round that began at `began` (monotonic seconds)."""
    listed = "; ".join(wrong)
    info = cluster.job(job)
    resizes = ", ".join(f"{r.old}-{r.new} {r.outcome.split(':')[0]}" for r in info.resizes)
    took_s = time.monotonic() - began
    return Outcome(resizes, info.restarts, info.requeues, took_s, listed)


def wrong_of_job(cluster: Cluster, job: int, limit_s: float) -> Iterator[str]:
    """Wait for the end of a resizable job; yield what is wrong with it."""
    yield from wrong_end(cluster, job, limit_s)
    # Facts that a program reports at its end are lost if there is no service then.
    if not any(line.endswith(" verified") for line in cluster.output(job).splitlines()):
        yield f"the data of job {job} is not verified"


def wrong_end(cluster: Cluster, job: int, limit_s: float) -> Iterator[str]:
    """Wait for the end of a job; yield what is wrong with it."""
    try:
        info = cluster.wait(job, limit_s)
    except TimeoutError:
        yield f"job {job} hangs ({cluster.job(job).state})"
        return
    if info.state != "COMPLETED":
        yield f"job {job} ended as {info.state}: {info.reason}"


def wrong_output(cluster: Cluster, job: int, word: str) -> Iterator[str]:
    """Yield what is wrong with the output of a job each of whose ranks prints one word.

    A rank may write a word and the end of its line separately, and mpiexec passes on what it reads
    from several ranks in any order.
    """
    printed = cluster.output(job)
    if sorted(printed) != sorted(f"{word}\n" * PROCESSORS):
        yield f"job {job} was disturbed: it printed {printed!r}"


def wrong_next_job(cluster: Cluster, processors: int) -> Iterator[str]:
    """Run a job on all processors; yield what is wrong with it."""
    try:
        last = cluster.submit(["true"], processors)
        if (info := cluster.wait(last)).state != "COMPLETED":
            yield f"the next job ended as {info.state}: {info.reason}"
    except TimeoutError:
        yield "the next job hangs"


def wrong_remains(cluster: Cluster, names: Iterable[str]) -> Iterator[str]:
    """Yield processes of jobs and their folders in shared memory that hosts still have."""
    for name in names:
        try:
            cluster.until(lambda name=name: not _left_on(cluster, name), 20.0)  # type: ignore[misc]
        except TimeoutError:
            yield f"left on {name}: {' '.join(_left_on(cluster, name))}"


def _left_on(cluster: Cluster, name: str) -> list[str]:
    processes = "pgrep -l -r R,S,D -f 'hydra|apps.synthetic'"
    script = f"{processes}; ls -d /dev/shm/reshape-*/job-* 2>/dev/null; true"
    command = cluster.hosts[name].command(["sh", "-c", script])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if not line.endswith(" sh")]


def _all_rounds(campaign: Campaign) -> list[Round]:
    """All combinations of faults, phases and hosts."""
    rounds: list[Round] = []
    for fault, phase in product(campaign.faults, PHASES):
        hosts = [""] if fault in campaign.without_host else campaign.hosts
        rounds += [Round(fault, phase, host) for host in hosts]
    return rounds


def _read_rounds(campaign: Campaign) -> Callable[[str], list[Round]]:
    """Return what reads rounds such as ``cut-6:joining:n2,service:both``."""

    def read(text: str) -> list[Round]:
        rounds = [Round(*[*word.split(":"), "", ""][:3]) for word in text.split(",")]
        for this in rounds:
            _check("fault", this.fault, campaign.faults)
            _check("phase", this.phase, PHASES)
            if (this.fault in campaign.without_host) != (this.host == ""):
                listed = ", ".join(campaign.without_host)
                raise argparse.ArgumentTypeError(
                    f"a fault of the {listed} alone has no host: {this}"
                )
        return rounds

    return read


def _check(what: str, word: str, known: Iterable[str]) -> None:
    """Raise an error for an unknown word; a host may be cut for any number of seconds."""
    kind, _, seconds = word.partition("-")
    if word not in known and not (what == "fault" and kind == "cut" and seconds.isdigit()):
        raise argparse.ArgumentTypeError(f"unknown {what} {word!r}: use {', '.join(known)}")


def _read_outcomes(path: Path | None) -> dict[Round, Outcome]:
    """Read the rounds that a file of `--out` has; empty if there is none."""
    done: dict[Round, Outcome] = {}
    if path is not None and path.exists():
        for line in path.read_text().splitlines():
            row = json.loads(line)
            this = Round(*(row[name] for name in Round._fields))
            done[this] = Outcome(*(row[name] for name in Outcome._fields))
    return done


def run_campaign(campaign: Campaign, words: Sequence[str] | None) -> int:
    """Run the rounds and print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=campaign.doc.split("\n")[0])
    parser.add_argument("--rounds", type=_read_rounds(campaign), help="these rounds alone")
    parser.add_argument("--node-lost", type=float, default=60.0, help="node_lost_s, seconds (60)")
    parser.add_argument("--parallel", type=int, default=1, help="rounds at the same time (1)")
    parser.add_argument("--out", type=Path, help="file of the rounds, a line of JSON for each")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args(words)
    rounds = options.rounds or _all_rounds(campaign)
    done = _read_outcomes(options.out)

    def one(this: Round) -> Outcome:
        if this in done:
            return done[this]
        try:
            outcome = campaign.run_round(this, options.node_lost)
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
        print(_table(rounds, outcomes))
        print(f"{len(rounds)} rounds, {wrong} with something wrong")
    return int(wrong > 0)


def _table(rounds: Sequence[Round], outcomes: Sequence[Outcome]) -> str:
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
    return render(Table(heads, rows, left=left))
