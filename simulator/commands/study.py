"""``reshape study``: many runs of one function, in parallel, and the report of all."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from reshape.cli.options import WholeRange, completed, example
from reshape.errors import ReshapeError, nearest
from scheduler.text.formats import counted
from simulator.study.runner import (
    RUNS,
    InlineExecutor,
    Outcome,
    ResultFile,
    RunFailure,
    as_json,
    compute,
    outcomes,
    processes,
)
from simulator.study.study import (
    TRACES,
    Parameters,
    Report,
    Row,
    Study,
    function,
    identity,
    missing_traces,
    read_study,
    shipped_studies,
    shipped_traces,
)
from simulator.traces.files import check_place, replace_all

ARCHIVE = "https://www.cs.huji.ac.il/labs/parallel/workload/logs.html"
SHOWN_FAILURES = 5
WRITTEN = ("report.json", "report.txt")


@click.command()
@click.argument("name", required=False, shell_complete=completed(shipped_studies))
@click.option("--seeds", metavar="N|LIST", help="Seeds, in place of the ones of the study file.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PARAMETER=VALUE",
    help="Set a parameter to a value, or to a list of values such as [0.8, 1].",
)
@click.option("--scenarios", metavar="LIST", help="Run only these scenarios, separated by commas.")
@click.option("--policies", metavar="LIST", help="Run only these policies, separated by commas.")
@click.option(
    "--full", is_flag=True, help="Run the larger grid of the study file (its field full)."
)
@click.option(
    "--traces",
    envvar="RESHAPE_TRACES",
    default=".",
    type=click.Path(path_type=Path),
    show_envvar=True,
    help="Directory of the traces.  [default: the current one]",
)
@click.option(
    "-j",
    "--workers",
    type=WholeRange(min=1),
    help="Number of processes.  [default: one for each CPU]",
)
@click.option("--mpi", is_flag=True, help="Run on the ranks of the enclosing mpiexec.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory for all results.")
@click.option("--fresh", is_flag=True, help="Repeat runs that are done already.")
@click.option("--json", is_flag=True, help="Print one JSON object.")
@example(
    "reshape study backfilling --seeds 5",
    "reshape study my.yaml --traces ~/traces --out results --set 'load=[0.8, 1]'",
    "mpiexec -n 9 reshape study my.yaml --mpi --traces ~/traces --out results",
)
def study(name: str | None, workers: int | None, mpi: bool, **options: Any) -> None:
    """Run the study NAME: one that comes with the package, or a YAML file.

    Without NAME, list the studies that come with the package. With --out, runs are kept as they are
    done: after an interruption the same command computes what is missing.
    """
    if name is None:
        click.echo(_listing())
        return
    if mpi and workers is not None:
        raise click.UsageError("--workers with --mpi: mpiexec -n sets the number; leave one out")
    width = _ranks() - 1 if mpi else workers or len(os.sched_getaffinity(0))
    with _pool(width, mpi) as pool:
        if pool is not None:  # this is not one of the ranks that only work
            _study(name, pool, width, options)


def _study(name: str, pool: Executor, width: int, options: Mapping[str, Any]) -> None:
    out, traces = options["out"], options["traces"]
    lists = {"scenario": options["scenarios"], "policy": options["policies"]}
    selected = {key: text.split(",") for key, text in lists.items() if text is not None}
    seeds, full = options["seeds"], options["full"]
    chosen = read_study(_file(name), options["changes"], seeds, full=full, selected=selected)
    if missing := missing_traces(chosen, traces):
        raise ReshapeError(
            f"not in {traces.absolute()}: {', '.join(missing)}; put them there (from {ARCHIVE}),"
            " or name their directory by --traces DIR or RESHAPE_TRACES"
        )
    if out is not None:
        check_place(out / "report.json", make_parent=True)
    with ResultFile(out and out / RUNS, identity, fresh=options["fresh"]) as kept:
        _run_missing(chosen, kept, pool, width, traces, keeps=out is not None)
        report = _report(chosen, _rows(chosen, kept), out)
        data = as_json(report.data)
        if out is not None:
            written = msgspec.json.format(data, indent=2) + b"\n", f"{report.text}\n".encode()
            lines = kept.lines([identity(chosen.run, run) for run in chosen.runs])
            files = {**dict(zip(WRITTEN, written, strict=True)), **report.files, RUNS: lines}
            replace_all({out / name: contents for name, contents in files.items()})
    click.echo(data if options["json"] else report.text)


def _rows(chosen: Study, kept: ResultFile) -> list[Row]:
    """Rows of the study in its order; all of its runs must have finished."""
    results = ((run, kept.get(identity(chosen.run, run))) for run in chosen.runs)
    return [Row(run, msgspec.json.decode(result)) for run, result in results if result is not None]


def _run_missing(
    chosen: Study, kept: ResultFile, pool: Executor, width: int, traces: Path, *, keeps: bool
) -> None:
    """Compute the runs that have no result yet; raises ReshapeError naming those that failed."""
    from rich.console import Console

    from simulator.study.progress import StudyProgress

    missing = [
        number
        for number, run in enumerate(chosen.runs)
        if kept.get(identity(chosen.run, run)) is None
    ]
    folder = {TRACES: str(traces.absolute())}

    def submit(executor: Executor, number: int, _: bool) -> Future[Outcome | None]:
        run = chosen.runs[number] | folder
        return executor.submit(compute, chosen.run, chosen.folder, run)

    before, failed = len(chosen.runs) - len(missing), []
    with StudyProgress(Console(stderr=True), chosen.title, before, len(chosen.runs)) as progress:
        for number, outcome in outcomes(missing, submit, pool, width, processes):
            if isinstance(outcome, RunFailure):
                failed.append((number, outcome))
            else:
                kept.add(chosen.run, chosen.runs[number], outcome)
                progress.step()
    if failed:
        in_order = [(chosen.runs[number], outcome) for number, outcome in sorted(failed)]
        raise ReshapeError(_failures_text(in_order, len(missing), keeps))


def _failures_text(failed: list[tuple[Parameters, RunFailure]], runs: int, kept: bool) -> str:
    """Text on the runs that failed."""
    lines = [f"{len(failed)} of {counted(runs, 'run')} failed"]
    lines[0] += "; the others are kept" if kept else "; --out DIR would keep the others"
    for run, failure in failed[:SHOWN_FAILURES]:
        values = ", ".join(f"{key}={value!r}" for key, value in run.items())
        lines.append(f"  {values or 'the only run'}: {failure.message}")
    if len(failed) > SHOWN_FAILURES:
        lines.append(f"  and {len(failed) - SHOWN_FAILURES} more")
    details = next((failure.details for _, failure in failed if failure.details), "")
    return "\n".join(lines) + (f"\nthe first of them in full:\n{details}" if details else "")


def _report(chosen: Study, rows: list[Row], out: Path | None) -> Report:
    from simulator.study.study import means

    if chosen.report is None:
        return means(rows, out)
    try:
        report = function(chosen.report, chosen.folder)(rows, out)
    except ReshapeError:
        raise
    except Exception:
        raise ReshapeError(
            f"{chosen.report} failed; no report was written:\n{traceback.format_exc()}"
        ) from None
    if not isinstance(report, Report):
        raise ReshapeError(
            f"{chosen.report} must give a simulator.study.study.Report, got {report!r}"
        )
    for name in report.files:
        if Path(name).name != name or name in (RUNS, *WRITTEN):
            raise ReshapeError(f"{chosen.report}: {name!r} is not a name for a file")
    return report


def _file(name: str) -> Path:
    """Study file of a name: one that comes with the package, else a path."""
    shipped = shipped_studies()
    if name in shipped:
        return shipped[name]
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    raise click.UsageError(f"there is no study {name!r}{nearest(name, shipped)}")


def _listing() -> str:
    from scheduler.text.located import Located
    from scheduler.text.tables import Table, render

    rows = [(name, Located.read(file).values["study"]) for name, file in shipped_studies().items()]
    table = render(Table(["NAME", "STUDY"], rows, left=frozenset({"NAME", "STUDY"})))
    return "\n".join([table, "", "traces that come along:", *map(str, shipped_traces())])


def _ranks() -> int:
    """Number of processes that mpiexec started, at least 2."""
    from mpi4py import MPI

    if MPI.COMM_WORLD.size < 2:
        raise click.UsageError(
            "--mpi needs mpiexec and at least 2 processes, the first of which hands out the runs;"
            " write mpiexec -n 5 reshape study ... --mpi"
        )
    return MPI.COMM_WORLD.size


def _pool(width: int, mpi: bool) -> AbstractContextManager[Executor | None]:
    """Pool that computes the runs; under MPI, all ranks but the first serve it until it closes."""
    if mpi:
        from mpi4py.futures import MPICommExecutor

        return cast(AbstractContextManager[Executor | None], MPICommExecutor())
    return processes(width) if width > 1 else InlineExecutor()
