"""``reshape simulate``: the schedule of a trace or a workload file under a scenario."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import isnan
from pathlib import Path
from typing import Any

import click

from reshape.cli.options import FiniteRange, HeadedCommand, WholeRange, completed, example
from reshape.collection import no_collection
from reshape.errors import ConfigError, nearest
from reshape.speedup import FORMS
from scheduler import compiled
from scheduler.policies.assignment.dispatcher import DispatchRules
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.redirection import Redirection
from scheduler.policies.registry import known
from scheduler.policies.scenario import Scenario
from scheduler.text.formats import json_text
from scheduler.text.located import FieldPath, Located, Origin, dotted
from scheduler.text.tables import Table, render
from simulator.commands.options import (
    given,
    json_option,
    lenient_option,
    processors_option,
    set_fields,
)
from simulator.engine.costs import ResizeCost
from simulator.engine.physics import ContiguityGain, SharingRules
from simulator.experiment.experiment import Experiment, put
from simulator.experiment.jobs import JobFields, field_of
from simulator.experiment.run import SCHEDULE, Simulation
from simulator.experiment.settings import QuoteRules, Settings
from simulator.results import jobs_csv
from simulator.traces.files import check_place, is_file, replace_all
from simulator.traces.normalise import Rules
from simulator.workload_models import workload_file
from simulator.workload_models.workload import Resizable

#: Field that has fields of its own -> their type.
_BELOW: dict[str, Any] = {
    "jobs": JobFields,
    "jobs.rules": Rules,
    "jobs.resizable": Resizable,
    "jobs.resizable.cost": ResizeCost,
    "contiguity": ContiguityGain,
    "sharing": SharingRules,
    "quotes": QuoteRules,
    "dispatch": DispatchRules,
    "backfill": Backfill,
    "redirection": Redirection,
}
#: Fields that --set does not change: the name of the scenario is --policy.
_LEFT_OUT = frozenset({"name", "jobs.columns"})
_OF_EXPERIMENT, _OF_SCENARIO = Settings.__struct_fields__, Scenario.__struct_fields__


def paths() -> list[str]:
    """Names of all fields that ``--set`` takes, without the parameters of policies."""
    return _paths_of((*_OF_EXPERIMENT, *(f for f in _OF_SCENARIO if f not in _OF_EXPERIMENT)))


def _paths_of(names: tuple[str, ...], above: str = "") -> list[str]:
    made: list[str] = []
    for name in names:
        path = above + name
        if path in _BELOW:
            made += _paths_of(_BELOW[path].__struct_fields__, f"{path}.")
        elif path not in _LEFT_OUT:
            made.append(path)
    return made


def assignments(texts: tuple[str, ...]) -> list[tuple[str, FieldPath, Any]]:
    """Read the texts of ``--set``.

    Returns
    -------
    name, path in the data of an experiment and value of each field; a field comes before those
    below it, so that ``sharing=table`` and ``sharing.penalty=ratio`` go together in either order.

    Raises
    ------
    click.UsageError : a text has no field or no value, or no experiment has such a field.
    """
    read = [(name, _path(name), _value(text)) for name, text in set_fields(texts).items()]
    return sorted(read, key=lambda item: len(item[1]))


def _path(name: str) -> FieldPath:
    """Path of a field; those of the scenario are named without it."""
    steps = tuple(name.split("."))
    if steps[0] in _OF_EXPERIMENT:
        return steps
    if steps[0] in _OF_SCENARIO and name not in _LEFT_OUT:
        return ("scenario", *steps)
    ends = {path.rpartition(".")[2]: path for path in paths()}
    close = get_close_matches(steps[-1], ends, n=1)
    if close:
        hint = f"; did you mean {ends[close[0]]}?"
    else:
        hint = nearest(steps[0], {path.partition(".")[0] for path in paths()})
    raise click.UsageError(f"--set {name}: unknown field{hint}")


def _value(text: str) -> Any:
    """Value of a field: a number, true, false, null, other JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


#: Heading of the help -> parameters of the command.
HEADINGS = {
    "Scenario": (
        "policy", "queue_order", "backfill_order", "estimates", "select", "fields",
    ),
    "Machine": ("processors", "machine", "pools"),
    "Jobs": ("first", "lenient", "resizable", "speedup", "seed"),
    "Results": ("out", "swf_file", "save", "as_json"),
}  # fmt: skip
#: Parameter of the command -> path in the data of an experiment that it sets.
_PATHS: dict[str, FieldPath] = {
    "policy": ("scenario", "name"),
    "first": ("jobs", "first"),
    "lenient": ("jobs", "lenient"),
    "resizable": ("jobs", "resizable", "share"),
    "speedup": ("jobs", "resizable", "speedup"),
    **{
        name: (name,)
        for name in (
            "queue_order", "backfill_order", "estimates", "select", "processors", "machine", "seed",
        )
    },
}  # fmt: skip
#: Columns of the table that compares pools: heading -> (key of the result, format).
_COLUMNS = {
    "ALLOCATIONS": ("allocations", "d"),
    "NODE-HOURS": ("node_hours", ".1f"),
    "USED": ("used_share", ".3f"),
    "TURNAROUND": ("mean_turnaround_s", ".0f"),
    "WAIT": ("mean_wait_s", ".0f"),
    "JOBS": ("jobs", "d"),
    "TOO-LONG": ("too_long", "d"),
    "LOST": ("jobs_lost", "d"),
}


@click.command(
    cls=HeadedCommand,
    headings=HEADINGS,
    context_settings={"max_content_width": 100},
)
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    metavar="NAME",
    shell_complete=completed(lambda: known("scenario")),
    default="easy",
    show_default=True,
    help="Scenario: fcfs, easy, conservative, easy++, malleable, fcfs-pr, ..., or module:Class"
    " (docs/policies.md).",
)
@click.option(
    "--queue-order",
    metavar="ORDER",
    help="Order: fcfs, sjf, lxwf, priority, aging or module:Class.",
)
@click.option(
    "--backfill-order", metavar="ORDER", help="Order in which EASY tries jobs behind the head."
)
@click.option(
    "--estimates",
    metavar="NAME",
    help="Run times: user, exact, or a predictor such as tsafrir (docs/predictions.md).",
)
@click.option(
    "--select",
    metavar="NAME",
    help="Processor selection: first-fit, tree, submesh, ... (docs/machines.md); count: do not"
    " distinguish processors.  [default: count if possible]",
)
@click.option(
    "--set",
    "fields",
    metavar="PATH=VALUE",
    shell_complete=completed(lambda: [f"{path}=" for path in paths()]),
    multiple=True,
    help="Set a field of the scenario, such as backfill.max_jobs=100, or of the experiment,"
    " such as sharing.penalty=ratio; repeatable.",
)
@processors_option
@click.option(
    "--machine",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Nodes and network (docs/machines.md), or several centres (docs/sites.md).",
)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="Nodes from an elastic pool (docs/pool.md); several are compared.",
)
@click.option(
    "--jobs",
    "first",
    type=WholeRange(min=1),
    metavar="NUMBER",
    help="Take only the first jobs, by submission.",
)
@click.option(
    "--resizable",
    metavar="SHARE",
    type=FiniteRange(0, 1),
    help="Share of the jobs of a trace that are made resizable.",
)
@click.option(
    "--speedup",
    metavar="MODEL",
    help=f"Speedup of the resizable jobs: {FORMS}.  [default: downey]",
)
@click.option("--seed", type=WholeRange(min=0), metavar="NUMBER", help="Seed of all random draws.")
@lenient_option
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Directory for all results."
)
@click.option(
    "--swf",
    "swf_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Trace with the simulated waits.",
)
@click.option(
    "--save",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The experiment, which simulate reads in place of TRACE.",
)
@json_option
@example(
    "reshape simulate HPC2N.swf.gz --policy easy --backfill-order sjf --json",
    "reshape simulate trace.swf --policy fcfs-pr --resizable 0.5 --speedup amdahl:serial=0.02",
    "reshape simulate trace.swf --machine tree.yaml --select tree --set contiguity=0.25",
    "reshape simulate trace.swf --set jobs.rules.overrun=keep --set backfill.reservations=4",
    "reshape simulate trace.swf --machine centres.yaml --set assign=less-waittime",
    "reshape simulate trace.swf --policy conservative --save experiment.yaml",
    "reshape simulate experiment.yaml --policy easy",
)
@no_collection()
def simulate(trace: Path, **options: Any) -> None:
    """Simulate the jobs of TRACE, a file in the Standard Workload Format, plain or gz.

    TRACE may also be a workload file of resizable jobs, or an experiment file, both in YAML; the
    options change fields of the latter. --set changes the fields without an option of their own:
    docs/simulator.md lists all fields.
    """
    begin = time.monotonic() - _age_s()
    pools: Sequence[str | None] = options["pools"] or (None,)
    _check_results(options, pools)
    described = [Described(trace, options, pool) for pool in pools]
    experiment = described[0].experiment
    if options["save"] is not None:
        experiment.save(options["save"])
    writes_trace = options["swf_file"] is not None or options["out"] is not None
    results: list[dict[str, Any]] = []
    jobs = 0
    for one in described:
        with one.errors():
            run = one.experiment.run(whole_trace=writes_trace)
        jobs += len(run.schedule.jobs)
        results.append(_written(run, options))
    if len(results) == 1:
        result = results[0] | _usage(begin, jobs)
        click.echo(json_text(result) if options["as_json"] else _as_text(result, run))
        report = run.schedule.report
        for note in run.notes:
            if report is None or note != report.sentence:  # which is in the result
                click.echo(f"reshape: {note}", err=True)
        return
    if options["as_json"]:
        whole = {**run.head, "pools": results, **_usage(begin, jobs)}
        click.echo(json_text(whole))
        return
    rows = [
        [*(format(result[key], form) for key, form in _COLUMNS.values()), result["pool"]]
        for result in results
    ]
    click.echo(render(Table([*_COLUMNS, "POOL"], rows, frozenset({"POOL"}))))


def _check_results(options: Mapping[str, Any], pools: Sequence[str | None]) -> None:
    """Check before the simulation that the results can be written."""
    out: Path | None = options["out"]
    if out is not None and len(pools) > 1:
        raise click.UsageError("--out takes the files of one pool; give one --pool")
    if options["save"] is not None and len(pools) > 1:
        raise click.UsageError("--save writes one experiment; give one --pool")
    for name, option in given().items():
        if options["pools"] and name == "swf_file":
            raise click.UsageError(f"{option} does not apply to --pool; leave it out")
    for path in (options["swf_file"], options["save"], out and out / jobs_csv.NAME):
        if path is not None:
            check_place(path, make_parent=path.parent == out)


def _written(run: Simulation, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files that the options ask for, and give the numbers."""
    result, out = run.summary, options["out"]
    files: dict[Path, bytes] = {}
    if options["swf_file"] is not None:
        files[options["swf_file"]] = run.swf()
    if out is not None:
        contents = run.files()
        files |= {out / name: data for name, data in contents.items()}
        if run.trace is not None and run.pool is None and run.centres is None:
            files[out / SCHEDULE] = run.swf()
    replace_all(files)
    return result


def _as_text(result: Mapping[str, Any], run: Simulation) -> str:
    """Result as text; a number that does not exist is "-"."""
    report = run.schedule.report
    lines = [] if report is None else [report.sentence]
    apart = ("report", "advance_reservations")
    shown = {name: value for name, value in result.items() if name not in apart}
    for name, value in shown.items():
        if isinstance(value, float):
            value = "-" if isnan(value) else f"{value:.10g}"
        lines.append(f"{name:22} {value}")
    return "\n".join(lines)


def _usage(begin: float, jobs: int) -> dict[str, Any]:
    """Seconds since `begin`, jobs a second, memory, and whether the core ran compiled."""
    wall_s = time.monotonic() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "wall_s": round(wall_s, 3),
        "cpu_s": round(time.process_time(), 3),
        "jobs_per_s": round(jobs / wall_s, 1),
        "peak_rss_mib": round(peak / (1 << 20 if sys.platform == "darwin" else 1024), 1),
        "core": compiled.STATE,
    }


def _age_s() -> float:
    """Age of this process in seconds; 0 where the system does not provide it."""
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


class Described:
    """The data of an experiment: contents of a file, and what the command line changes.

    Parameters
    ----------
    source : trace, workload file, or experiment file.
    options : of the command.
    pool : one of the pools that are compared; None: there is none.

    Raises
    ------
    click.UsageError : a wrong name or value, or options that do not go together.
    """

    def __init__(self, source: Path, options: Mapping[str, Any], pool: str | None) -> None:
        self._tree, folder = _contents(source)
        self._set: dict[str, str] = {}  # option -> field that it set
        with self.errors():
            for name, option in given().items():
                if name in _PATHS:
                    value = options[name]
                    self._put(_PATHS[name], str(value) if name == "machine" else value, option)
            if pool is not None:
                self._put(("pool",), pool, f"--pool {pool}")
            for field, path, value in assignments(options["fields"]):
                self._put(path, value, f"--set {field}")
            self.experiment = Experiment.of_tree(self._tree, folder)

    def _put(self, path: FieldPath, value: Any, option: str) -> None:
        """Set a value, and note the option that does."""
        put(self._tree, path, value, Origin(option))
        self._set[option] = dotted(path)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Let errors of an experiment be errors of the options that set the wrong fields.

        Raises
        ------
        click.UsageError : in place of an error that names an option, or a field and no file.
        """
        try:
            yield
        except ConfigError as error:
            option = error.file
            if option is None and error.field:
                option = self._tree.origin(tuple(error.field.split("."))).source
            if option is None:
                raise click.UsageError(str(error)) from None
            if option not in self._set:
                raise
            within = f"{self._set[option]}.".startswith(f"{error.field}.")
            where = "" if within else f"{error.field}: "
            raise click.UsageError(f"{option}: {where}{error.message}") from None


def _contents(source: Path) -> tuple[Located, Path]:
    """Contents of an experiment file, or those that name another file, and their folder."""
    if source.suffix in workload_file.ENDINGS:
        tree = Located.read(source)
        if not workload_file.looks_like_one(tree.values):
            if isinstance(tree.values.get("jobs"), str):
                jobs = field_of(Path(tree.values["jobs"]))
                tree.override(("jobs",), {jobs: tree.values["jobs"]}, tree.origin(("jobs",)))
            return tree, source.parent
    if not is_file(source):
        raise ConfigError("cannot be read: No such file", file=str(source))
    tree = Located()
    tree.override(("jobs", field_of(source)), str(source), Origin(str(source)))
    return tree, Path()
