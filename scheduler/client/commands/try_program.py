"""``reshape try``: run a program with resizes on purpose, and compare it with a run without."""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import numpy as np

from reshape.cli.options import SECONDS, FiniteRange, ParsedText, WholeRange, example
from reshape.errors import ReshapeError
from scheduler.client.requests.submission import check_program, job_environment
from scheduler.client.trial.comparison import TrialComparison, TrialResults
from scheduler.client.trial.driver import MistakeError, remove_memory_of_killed_trials
from scheduler.client.trial.plan import Kill, Step, parse, random_plan, written_plan
from scheduler.client.trial.run import Program, TrialRun

RTOL = 1e-12
_EQUAL, _MISTAKE = 0, 1


def _pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise ValueError("an empty expression matches everything: leave the option out")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


@click.command("try", context_settings={"allow_interspersed_args": False})
@click.option("-n", "size", type=WholeRange(min=1), required=True, help="Processes at the start.")
@click.option("--max", "maximum", type=WholeRange(min=1), help="Largest number of processes.")
@click.option(
    "--resizes",
    type=WholeRange(min=1),
    default=10,
    show_default=True,
    help="Number of random resizes.",
)
@click.option(
    "--seed",
    type=WholeRange(min=0),
    help="Seed of the random resizes.  [default: another each time]",
)
@click.option(
    "--at",
    type=ParsedText("resizes", parse, list),
    metavar="ITERATION:SIZE,...",
    help="These resizes instead of random ones, each after so many iterations.",
)
@click.option(
    "--kill",
    "kills",
    is_flag=True,
    help="At random resizes, also kill the group that joins, or the job, which restarts.",
)
@click.option(
    "--rtol",
    type=FiniteRange(min=0),
    default=RTOL,
    show_default=True,
    help="Largest relative difference that counts as rounding; 0: bit for bit.",
)
@click.option(
    "--ignore",
    type=ParsedText("regex", _pattern, re.Pattern),
    multiple=True,
    metavar="REGEX",
    help="Do not compare lines, facts (name=value) and names of files that match; repeatable.",
)
@click.option(
    "--limit",
    "limit_s",
    type=SECONDS,
    default=30.0,
    show_default=True,
    help="Time without progress after which a run hangs; give more than an iteration takes.",
)
@click.argument(
    "argv", nargs=-1, required=True, metavar="PROGRAM [ARGS]...", type=click.UNPROCESSED
)
@example(
    "reshape try -n 3 --max 6 --seed 1 -- python solve.py",
    "reshape try -n 3 --at 10:4,20:1 -- python solve.py",
)
@click.pass_context
def try_program(
    ctx: click.Context,
    size: int,
    maximum: int | None,
    resizes: int,
    seed: int | None,
    at: list[tuple[int, int]] | None,
    kills: bool,
    rtol: float,
    ignore: Sequence[re.Pattern[str]],
    limit_s: float,
    argv: Sequence[str],
) -> None:
    """Run PROGRAM with resizes on purpose, without a service, and compare it with a run without.

    Each run gets a copy of the working directory. Output, facts of app.report and files have to be
    equal; differences of floating-point numbers by rounding are shown, and are no mistake. The exit
    code is 0 if they are equal, 1 if there is a mistake, 2 for wrong usage. See docs/try.md.
    """
    if at is None and maximum is None:
        raise click.UsageError("give --max for random resizes, or --at for those that you choose")
    if maximum is not None and maximum < size:
        raise click.UsageError(f"--max {maximum} is below -n {size}")
    if at is not None and maximum is not None:
        raise click.UsageError("--max is for random resizes, --at for those that you choose")
    if at is not None and kills:
        raise click.UsageError("--kill is for random resizes: give --max in place of --at")
    seed = secrets.randbelow(1 << 16) if seed is None else seed
    rng = np.random.default_rng(seed)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    remove_memory_of_killed_trials()
    with tempfile.TemporaryDirectory(prefix="reshape-try-") as scratch:
        program = Program(argv, size, Path.cwd(), job_environment(os.environ), limit_s)
        runs = [TrialRun(program, Path(scratch) / name) for name in ("without", "with")]
        try:
            check_program(argv[0], program.folder, program.environment)
            plan = written_plan(rng, size, at) if at else []
            plain = _run(runs[0], (), "without resizes")
            steps = _checked(plan, runs[0]) if at else []
            if maximum is not None:
                allows, killed = _allows(runs[0]), _killed(runs[0]) if kills else ()
                steps = random_plan(rng, size, maximum, _points(runs[0]), resizes, allows, killed)
                if not steps:
                    raise ReshapeError(f"--max {maximum}: the program can have no size but {size}")
                click.echo(f"{len(steps)} resizes at random, --seed {seed}:")
            resized = _run(runs[1], steps, "with resizes")
        except MistakeError as mistake:
            click.echo(mistake)
            ctx.exit(_MISTAKE)
        except ReshapeError as error:
            raise click.UsageError(str(error)) from None
        repeats = any(step.kill == "job" for step in runs[1].done)
        differences = TrialComparison(rtol, ignore, once=repeats)
        differences.compare(plain, resized)
        ctx.exit(_conclude(runs[1], steps, differences))


def _run(run: TrialRun, steps: Sequence[Step], how: str) -> TrialResults:
    """Run the program; a mistake says in which run it was found."""
    try:
        return run.run(steps, lambda step: click.echo(f"  {step}"))
    except MistakeError as mistake:
        raise MistakeError(f"mistake, {how}: {mistake}") from None


def _points(run: TrialRun) -> list[int]:
    """Resize points of a run without resizes, of which there has to be one."""
    if not run.points:
        raise MistakeError(
            "mistake: the program has no resize point: it needs the block 'with "
            "reshape.application() as app:', and a loop of app.iterations with several iterations"
        )
    return run.points


def _allows(run: TrialRun) -> Callable[[int], bool]:
    """Which sizes the program can have; the one at the start has to be one of them."""
    topology, start = run.topology, run.program.size
    try:
        if topology is not None:
            topology.check_start(start)
    except ValueError as error:
        raise ReshapeError(f"-n {start}: {error}") from None
    return lambda size: topology is None or size in topology.valid_sizes(start, max(size, start))


def _killed(plain: TrialRun) -> Sequence[Kill]:
    """What can be killed: the whole job only within a resize, or if it has checkpoints."""
    kills: list[Kill] = ["joining group", "job in the resize"]
    return [*kills, "job"] if plain.has_checkpoints else kills


def _checked(steps: Sequence[Step], plain: TrialRun) -> Sequence[Step]:
    """Return the steps if the program can have these sizes at these resize points."""
    points, allows = _points(plain), _allows(plain)
    for step in steps:
        if step.at not in points:
            raise ReshapeError(
                f"--at {step.at}:{step.size}: the program has no resize point there; it has "
                f"{len(points)}, after iteration {points[0]} to {points[-1]}"
            )
        if not allows(step.size):
            raise ReshapeError(
                f"--at {step.at}:{step.size}: the program declares the topology {plain.topology}, "
                f"which does not allow {step.size} processes"
            )
    return steps


def _conclude(run: TrialRun, steps: Sequence[Step], differences: TrialComparison) -> int:
    """Tell the result of the comparison; return the exit code."""
    for line in differences.mistakes:
        click.echo(f"mistake: {line}")
    for line in [*differences.rounding, *sorted(run.notes)]:
        click.echo(f"note: {line}")
    if len(run.done) < len(steps):
        click.echo(f"note: the program ended before {len(steps) - len(run.done)} of the resizes")
    if any(step.kill == "job" for step in run.done):
        click.echo("note: after a restart from a checkpoint lines are repeated: each counts once")
        if any(line.startswith("file ") for line in differences.mistakes):
            click.echo(
                "note: a checkpoint does not hold the files that a program writes by itself: see"
                " 'Files that the program appends to' in docs/checkpoints.md"
            )
    if differences.mistakes:
        click.echo("note: --ignore REGEX leaves out what differs in each run, such as times")
        return _MISTAKE
    count = f"{len(run.done)} resize{'s' * (len(run.done) != 1)}"
    click.echo(f"equal: output, facts and files are those of a run without resizes, after {count}")
    return _EQUAL
