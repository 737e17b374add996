"""The service of a round: it is started again whenever it ends, and gets the jobs of the round."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from faults import SLOW_VARIABLE, STATE_VARIABLE, TASKS, Round

from reshape.errors import ReshapeError, ServiceUnavailable
from scheduler.node.directory import ServiceDirectory
from scheduler.protocol import messages as m
from scheduler.protocol.client import connect

HERE = Path(__file__).resolve().parent
PROCESSORS = 8
#: Walltime of all jobs: a job hangs before it is over (`timed_faults.PATIENCE_S`), and a job whose
#: service is away for minutes beside other load ends before it, too.
WALLTIME_S = 300.0
SERVICE = f"""
processors: {PROCESSORS}
scenario: restless:Restless
verify: true
deadlines: {{start_s: 8, ready_s: 8, join_s: 6, exit_s: 4, node_lost_s: 6}}
"""
NO_ANSWER = "no answer from the scheduler service"
#: Parts of the errors of commands that a service has not answered.
AWAY = (NO_ANSWER, "no scheduler service", "is gone", "is damaged", "waits until there is room")
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


class Outcome(msgspec.Struct):
    """What a round has shown; the last four lists are empty if everything holds."""

    seed: int
    faults: list[str]
    phases: list[str]
    jobs: int = 0
    resizes: int = 0
    restarts: int = 0
    seconds: float = 0.0
    states: list[str] = []
    notes: list[str] = []
    hit: list[int] = []
    lost: list[str] = []
    wrong: list[str] = []
    hung: list[str] = []
    leaked: list[str] = []


class Service:
    """The service of a round; it is started again whenever it has ended.

    Parameters
    ----------
    around : the round; its folder becomes that of the service, too.
    """

    def __init__(self, around: Round, outcome: Outcome) -> None:
        self.around, self.outcome = around, outcome
        self.place = ServiceDirectory(around.folder / "service")
        self.config = around.folder / "service.yaml"
        self.config.write_text(SERVICE)
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.endpoint = ""  # of the present start; the directory forgets it when the service ends
        self.renamed: dict[int, str] = {}  # names that acknowledged updates have given to jobs

    def start(self, *options: str) -> None:
        """Start a process of the service."""
        self.process = self.another(*options)
        self.starts += 1

    def another(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a process that serves the directory."""
        command = [sys.executable, str(HERE / "served.py"), "serve", "--dir", str(self.place.path)]
        with (self.around.folder / "serve.log").open("ab") as log:
            command += ["--config", str(self.config), "--set", f"resizing.seed={self.outcome.seed}"]
            command += options
            return subprocess.Popen(command, stdout=log, stderr=log)

    def keep_up(self) -> None:
        """Start the service again if it has ended."""
        if self.process is not None and self.process.poll() is not None:
            self.outcome.notes.append(f"service ended with {self.process.returncode}")
            time.sleep(0.2 if self.starts < 20 else 2.0)
            self.start()

    def ask(self, message: m.Message, timeout: float = 1.0) -> m.Message | None:
        """Return the answer of the service, None if there is none in time or it refuses."""
        try:
            with connect(self.place.path) as client:
                return client.request(message, timeout)
        except (ReshapeError, OSError) as error:
            if not isinstance(error, ServiceUnavailable) and str(error) not in self.outcome.notes:
                self.outcome.notes.append(str(error))
            return None

    def command(self, name: str, *words: str) -> str:
        """Run a command of `reshape` for the service; return its error, empty if it succeeds."""
        command = [sys.executable, "-m", "reshape", name, "--dir", str(self.place.path), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except subprocess.TimeoutExpired:
            return NO_ANSWER
        error = done.stderr.strip()[-200:] if done.returncode else ""
        note = f"{name} {' '.join(words)}: {error}"
        if error and note not in self.outcome.notes:
            self.outcome.notes.append(note)
        return error

    def wait_up(self, within: float, *, first: bool = False) -> m.Info | None:
        """Wait until the service answers and its node is up."""
        end = time.monotonic() + within
        while time.monotonic() < end:
            if first and self.process is not None and self.process.poll() is not None:
                return None
            self.keep_up()
            info = self.ask(m.ServerInfo())
            if isinstance(info, m.Info) and all(state == "up" for *_, state in info.nodes):
                self.endpoint = self.place.endpoint
                return info
            time.sleep(0.05)
        return None

    def jobs(self) -> dict[int, m.JobInfo] | None:
        """Return all jobs of the service, None if it does not answer."""
        answer = self.ask(m.ListJobs(ended=True, steps=True), 2.0)
        return {job.job: job for job in answer.jobs} if isinstance(answer, m.JobListing) else None


#: A step after another one, then two side by side, one of which resizes.
SCRIPT = rf"""
run="{sys.executable} -m reshape run"
result='echo verified True >> result-$RESHAPE_STEP_JOB'
$run -n 1 sh -c "$result" || exit 1
$run -n 1 --max 3 {sys.executable} {HERE / "job.py"} $1 0.07 & first=$!
$run -n 1 sh -c "sleep 1; $result" & second=$!
wait $first && wait $second && $run -n 2 sh -c "test \$PMI_RANK = 1 || $result" || exit 1
echo verified True >> result-$RESHAPE_JOB
"""


def submit_all(service: Service, work: Path, seed: int) -> dict[int, str]:
    """Submit the jobs of a round; return the kinds of the acknowledged ones by number."""
    numbers = random.Random(seed)
    iterations = str(numbers.randint(40, 60))
    program = [sys.executable, str(HERE / "job.py"), iterations, "0.07"]
    plain = "sleep 4; echo verified True >> result-$RESHAPE_JOB"
    task = plain.replace("4", "2")
    script = ["bash", "-c", SCRIPT, "script", str(numbers.randint(10, 25))]
    submissions: list[tuple[str, list[str], int, int | None, dict[str, Any]]] = [
        ("resizes", program, 2, 6, {}),
        ("requeued", program.copy(), numbers.choice((1, 2)), 4, {"requeue": True}),
        ("plain", ["sh", "-c", plain], 1, None, {}),
        ("script", script, 2, None, {"script": True, "requeue": True}),
        ("array", ["sh", "-c", task], 1, None, {"array": f"0-{TASKS - 1}%2", "requeue": True}),
    ]
    if random.Random(f"minima {seed}").random() < 0.5:  # they start and resize by several groups
        submissions[0] = ("resizes", program, 4, 6, {"min_processors": 1})
        submissions[1] = (
            "requeued",
            submissions[1][1],
            3,
            4,
            {"requeue": True, "min_processors": 1},
        )
    for fault in service.around.faults:
        if fault.kind == "slow state":
            variables = {STATE_VARIABLE: str(fault.amount), SLOW_VARIABLE: str(fault.lasts)}
            submissions[0][4]["environment"] = variables
            program[2] = str(150)  # enough for several expansions
    done: dict[int, str] = {}
    for kind, argv, processors, most, more in submissions:
        number = submit(service, work, argv, processors, most, **more)
        if number is not None:
            done[number] = kind
    others = [str(number) for number, kind in done.items() if kind in ("plain", "array")]
    if others:
        more = {"dependency": f"afterany:{':'.join(others)}"}
        number = submit(service, work, ["sh", "-c", plain.partition("; ")[2]], 1, None, **more)
        done |= {} if number is None else {number: "dependent"}
    return done


def submit(
    service: Service,
    work: Path,
    argv: list[str],
    processors: int,
    most: int | None = None,
    **more: Any,
) -> int | None:
    """Submit a job; return its number, None if the submission is not acknowledged.

    One that is to be queued again after a death writes checkpoints.

    Parameters
    ----------
    more : further fields of the submission; `environment` has variables besides those of here.
    """
    variables = more.pop("environment", {})
    if more.get("requeue"):
        variables |= {"CAMPAIGN_CHECKPOINT_EVERY": "7"}
    submission = m.Submission(
        argv=argv,
        processors=processors,
        max_processors=most,
        walltime_s=WALLTIME_S,
        cwd=str(work),
        environment=dict(os.environ) | variables,
        **more,
    )
    answer = service.ask(m.Submit(submission=submission), 10.0)
    return answer.job if isinstance(answer, m.Submitted) else None
