"""``reshape run``: start a step on the processors of a job, from the script of the job.

All requests to the service may be repeated, so that a step goes on across restarts of the service.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.times import in_local_time
from reshape.wire.connection import located
from reshape.wire.identity import Identity, identity_of_script
from scheduler.client.requests.job_options import per_process_option
from scheduler.client.requests.submission import check_outputs, prepare
from scheduler.client.scripts.step_streams import (
    StepOutput,
    files_of,
    for_first,
    own_input,
    own_outputs,
)
from scheduler.client.tables import exit_status
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection, expect
from scheduler.text.plain import plain

#: Seconds for an answer, after which a request is repeated.
ANSWER_S = 2.0
#: Seconds between two attempts while there is no service, or no connection to it.
RETRY_S = 0.2
#: Seconds between two looks at the output, and at signals.
LOOK_S = 0.1


class StepSession:
    """The requests of a job script for one of its steps, whose output is copied meanwhile.

    Parameters
    ----------
    script : identity of the script.
    outputs : of this process.

    Attributes
    ----------
    is_cancelled : whether the step is to be ended.
    """

    def __init__(self, script: Identity, outputs: Sequence[StepOutput] = ()) -> None:
        self._script, self._outputs, self._key = script, outputs, secrets.token_hex(16)
        self._client: ServiceConnection | None = None
        self.is_cancelled = False

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def start(self, submission: m.Submission) -> m.Submitted:
        """Request the step; wait for the service as long as it is away.

        Raises
        ------
        ReshapeError : the service refuses it.
        """
        who = self._script
        while True:
            request = m.RunStep(job=who.job, token=who.token, key=self._key, submission=submission)
            try:
                answer = self._connected().request(request, ANSWER_S)
            except ServiceUnavailable:
                time.sleep(RETRY_S)
            else:
                return expect(m.Submitted, answer)

    def copy(self) -> None:
        """Copy new output; the end of its reader cancels the step."""
        try:
            for output in self._outputs:
                output.copy()
        except BrokenPipeError:
            self.is_cancelled = True

    def wait(self, step: int) -> m.JobInfo:
        """Wait for the end of the step and describe it.

        Raises
        ------
        ReshapeError : the service does not know the step.
        """
        who, sent_at, is_told = self._script, 0.0, False
        end = m.EndStep(job=who.job, token=who.token, step=step)
        while True:
            self.copy()
            try:
                client = self._connected()
                is_due = time.monotonic() - sent_at > ANSWER_S
                if is_due or (self.is_cancelled and not is_told):
                    sent_at, is_told = time.monotonic(), self.is_cancelled
                    if is_told:
                        client.send(end, RETRY_S)
                    client.send(m.WaitStep(job=who.job, token=who.token, step=step), RETRY_S)
                answer = client.receive(LOOK_S)
            except ServiceUnavailable:
                time.sleep(RETRY_S)
                continue
            if isinstance(answer, m.Failure):
                raise ReshapeError(answer.message)
            if isinstance(answer, m.JobListing):
                ended = next((job for job in answer.jobs if job.job == step), None)
                if ended is None:
                    raise ReshapeError(f"the service does not describe the step, job {step}")
                return ended

    def _connected(self) -> ServiceConnection:
        if self._client is None:
            server = self._script.server
            endpoint, access = located(server) if server.startswith("/") else (server, None)
            self._client = ServiceConnection(endpoint, access)
        return self._client


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-n",
    "processors",
    type=WholeRange(min=1),
    help="Processors to start with.  [default: all of the job]",
)
@click.option(
    "--max",
    "max_processors",
    type=WholeRange(min=1),
    help="Largest number of processors; more than the job has come from the machine."
    "  [default: as -n]",
)
@per_process_option
@click.option(
    "--output",
    default="",
    help="File for the output of the step; %j stands for the number of the job, %s for"
    " the number of the step.  [default: the output of this command]",
)
@click.option(
    "--error",
    default="",
    help="File for the standard error of the step.  [default: as --output, or else the"
    " standard error of this command]",
)
@click.option("--name", default="", help="Name of the step.  [default: name of the program]")
@click.argument("argv", nargs=-1, metavar="PROGRAM [ARGS]...", type=click.UNPROCESSED)
@example(
    "reshape run python solve.py",
    "reshape run -n 2 --max 8 python -m apps.lu --n 1024 --block 64",
)
def run(
    output: str, error: str, processors: int | None, argv: Sequence[str], **fields: Any
) -> None:
    """Run PROGRAM as a step of the job whose script calls this, on -n processors of the job.

    The step waits until so many processors of the job are idle. Its first process gets the standard
    input. It exits with the code of PROGRAM, 128 + N if signal N has ended it. SIGINT or SIGTERM
    cancels the step. See docs/job-scripts.md.
    """
    sys.exit(run_as_step(argv, processors, output, error, **fields))


def run_as_step(
    argv: Sequence[str],
    processors: int | None,
    output: str = "",
    error: str = "",
    *,
    reads_itself: bool = False,
    **fields: Any,
) -> int:
    """Run a program as a step of the job whose script started this process; return its exit code.

    Parameters
    ----------
    processors : number to start with; None: those of the job.
    output, error : files of the step; "": this process copies what it prints.
    reads_itself : whether the processes open their standard input; otherwise the first one gets
        that of this process.
    fields : other parameters of `prepare`.

    Raises
    ------
    ReshapeError : there is no job script, or the service refuses the step.
    """
    script = identity_of_script()
    if script is None:
        raise ReshapeError(
            "reshape run starts a step of a job, and this is no job script: submit a script that"
            " calls it with reshape batch, or the program itself with reshape submit"
        )
    count = processors or int(os.environ["RESHAPE_PROCESSORS"])
    if fields.get("per_process"):  # the processes of the step have more threads than the script
        environment = fields.get("environment") or os.environ
        fields["environment"] = {k: v for k, v in environment.items() if k != "OMP_NUM_THREADS"}
    files = {"output": output, "error": error}
    with ExitStack() as stack:
        source = "" if reads_itself else stack.enter_context(own_input())
        if source and argv:
            fields["name"] = fields.get("name") or Path(argv[0]).name
            argv = for_first(source, argv)
        own = [] if output else stack.enter_context(own_outputs(error=not error))
        files |= files_of(own) if own else {}
        submission = prepare(argv, count, **files | fields)
        check_outputs(submission)  # the service has started this process
        return _run(script, submission, own)


def _run(script: Identity, submission: m.Submission, outputs: Sequence[StepOutput]) -> int:
    """Run a step, and return its exit code.

    The first signal, or the end of the reader of the output, cancels the step; the second signal
    ends this process without waiting for the end of the step. Other signals that the job gets reach
    the step through the service.
    """
    session = StepSession(script, outputs)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if session.is_cancelled:
            sys.exit(128 + number)
        session.is_cancelled = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    try:
        step = session.start(submission)
        ended = session.wait(step.job)
    finally:
        session.close()
    session.copy()
    if ended.state != "COMPLETED":
        how = (
            f"{ended.state} {ended.exit_code}:{ended.signal} ({plain(in_local_time(ended.reason))})"
        )
        click.echo(f"reshape: step {step.label}: {how}", err=True)
    return exit_status(ended)
