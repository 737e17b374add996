"""``reshape run``: start a step on the processors of a job, from the script of the job."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from reshape.times import in_local_time
from reshape.wire.identity import Identity, identity_of_script
from scheduler.client.job_options import per_process_option
from scheduler.client.scripts.step_input import for_first, own_input
from scheduler.client.scripts.step_output import StepOutput, files_of, own_outputs
from scheduler.client.scripts.step_session import StepSession
from scheduler.client.submission import check_outputs, prepare
from scheduler.client.tables import exit_status
from scheduler.protocol import messages as m
from scheduler.text.plain import plain


class Cancellation:
    """Whether a signal, or the end of the reader of the output, has cancelled the step.

    The first signal cancels it; the second one ends this process without waiting for its end. Other
    signals that the job gets reach the step through the service.
    """

    def __init__(self) -> None:
        self.is_wanted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.is_wanted:
            sys.exit(128 + number)
        self.is_wanted = True


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "-n",
    "processors",
    type=WholeRange(min=1),
    help="Processors to start with.  [default: those of the job]",
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
    help="File for the output of the step; %j stands for the number of the job, %s for that of the"
    " step.  [default: the output of this command]",
)
@click.option(
    "--error",
    default="",
    help="File for the standard error of the step.  [default: that of --output, or else the"
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
    input. The exit code is that of PROGRAM, 128 + N if signal N has ended it. SIGINT or SIGTERM
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
    """Run a step, and return its exit code."""
    cancellation = Cancellation()
    session = StepSession(script, secrets.token_hex(16))

    def look() -> None:
        try:
            for output in outputs:
                output.copy()
        except BrokenPipeError:
            cancellation.is_wanted = True

    try:
        step = session.start(submission)
        ended = session.wait(step.job, look, lambda: cancellation.is_wanted)
    finally:
        session.close()
    look()
    if ended.state != "COMPLETED":
        how = (
            f"{ended.state} {ended.exit_code}:{ended.signal} ({plain(in_local_time(ended.reason))})"
        )
        click.echo(f"reshape: step {step.label}: {how}", err=True)
    return exit_status(ended)
