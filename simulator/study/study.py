"""A study: one function run at every point of a grid of parameters, then one report of all runs.

A study file lists what varies::

    study: Does the order of backfilling matter?
    run: simulator.studies.backfilling:run
    report: simulator.studies.backfilling:report      # optional
    fixed: {trace: small.swf, processors: 64}
    cases:                                            # combinations written out
      - {policy: fcfs, backfill_order: null}
      - {policy: easy, grid: {backfill_order: [fcfs, sjf]}}    # a case may have a grid of its own
    grid: {load: [0.8, 1.0, 1.2]}                     # every combination, the last varies fastest
    seeds: 10                                         # 1 to 10; or a list
    full: {grid: {load: [0.6, 0.8, 1.0, 1.2, 1.4]}}   # what `--full` changes

The runs are cases x grid x seeds, in this order. `run(parameters)` returns plain data, and
`report(rows, out)` returns a `Report` on all runs; both are module-level functions, so that other
processes can import them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import product
from math import floor, isnan, log10
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from reshape.errors import ConfigError, ReshapeError, nearest
from reshape.key_values import key_value
from scheduler.text.located import FieldPath, Located, Origin, value_of
from scheduler.text.tables import Table, render
from simulator.results.statistics import Interval, mean_interval

T = TypeVar("T")
Parameters: TypeAlias = dict[str, Any]
SEED = "seed"
TRACES = "traces"
#: Endings by which a parameter is recognised as the name of a trace.
ENDINGS = (".swf", ".swf.gz")
_INSTALLED = Path(__file__).parents[1] / "examples"
#: Studies and traces that come with the package: installed, or in a source tree.
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[2] / "examples"


class Row(msgspec.Struct, frozen=True):
    """A finished run: its parameters (without `traces`) and its result, as plain data."""

    parameters: Mapping[str, Any]
    result: Mapping[str, Any]


class Report(msgspec.Struct, frozen=True):
    """The report of a study.

    Parameters
    ----------
    text : printed.
    data : a JSON object: printed by ``--json``, and the contents of report.json.
    files : name -> contents, such as pictures; put into the directory of ``--out``.
    """

    text: str
    data: Mapping[str, Any] = {}
    files: Mapping[str, bytes] = {}


class StudyGrid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the runs of a study.

    Parameters
    ----------
    fixed : parameters that all runs share.
    cases : combinations of parameters, one after the other; a case may have a `grid` of its own.
    grid : lists of values, of which every combination runs; the last one varies fastest.
    seeds : 1 to this number, or a list.
    """

    fixed: dict[str, Any] = {}
    cases: list[dict[str, Any]] = []
    grid: dict[str, Any] = {}  # of lists; `_check` names one that is not a list
    seeds: int | list[int] | None = None


class StudyFile(StudyGrid, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study file.

    Parameters
    ----------
    study : the question, as a title.
    run : function of one run, ``module:function``.
    report : function of the report on all runs; None: means of all numbers.
    full : what the option ``--full`` changes, for runs that take long: values of `fixed` and `grid`
        by name, and all cases and seeds.
    """

    study: str
    run: str
    report: str | None = None
    full: StudyGrid | None = None


class Study(msgspec.Struct, frozen=True):
    """A study that can be run.

    Parameters
    ----------
    title : for displays.
    run, report : functions as ``module:function``; no report: `simulator.study.study.means`.
    folder : of the study file; modules beside it may be named.
    runs : parameters of each run, in order; no two are equal.
    """

    title: str
    run: str
    report: str | None
    folder: str
    runs: list[Parameters]


def read_study(
    file: Path,
    changes: Iterable[str] = (),
    seeds: str | None = None,
    *,
    full: bool = False,
    selected: Mapping[str, Sequence[str]] | None = None,
) -> Study:
    """Read a study file and apply options to it.

    Parameters
    ----------
    changes : texts ``parameter=value``, the value as in YAML. A list replaces what the parameter
        varies over, or makes a fixed one vary; of cases, those with such a value are kept.
    seeds : text that replaces the field `seeds`, also that of `full`.
    full : apply the field `full` before the changes.
    selected : parameter of the cases -> values. Cases with these values are kept. A value that no
        case has is combined with the other parameters of every case.

    Raises
    ------
    ConfigError : names file, line and field, or the option; or a function cannot be imported.
    """
    tree = Located.read(file)
    if seeds is not None:
        option = f"option --seeds {seeds}"
        tree.override(("seeds",), _yaml(seeds, option), Origin(option))
    plan = tree.convert(StudyFile)
    if full:
        plan = _full(tree, plan, keeps_seeds=seeds is not None)
    plan = _written_out(tree, plan)
    _check(tree, plan)
    for name, values in (selected or {}).items():
        plan = _selected(plan, name, values)
    for text in changes:
        plan = _changed(plan, text)
    folder = str(file.resolve().parent)
    for field, target in (("run", plan.run), ("report", plan.report)):
        if target is not None:
            try:
                function(target, folder)
            except ReshapeError as error:
                tree.fail((field,), str(error))
    runs = list(_runs(plan))
    if len({identity(plan.run, run) for run in runs}) < len(runs):
        tree.fail(("cases",), "two runs have the same parameters; keep one")
    return Study(plan.study, plan.run, plan.report, folder, runs)


def identity(target: str, parameters: Mapping[str, Any]) -> bytes:
    """Key of a run: its function and parameters, without the directory of the traces."""
    named = {name: value for name, value in parameters.items() if name != TRACES}
    return msgspec.json.encode([target, named], order="deterministic")


def function(target: str, folder: str) -> Callable[..., Any]:
    """Look up ``module:function``; the module may also be a file in a folder.

    Raises
    ------
    ReshapeError : it cannot be imported, or is not a function.
    """
    if folder not in sys.path:
        sys.path.append(folder)
    module_name, colon, name = target.partition(":")
    if not (colon and module_name and name):
        raise ReshapeError(f"{target!r} is not a function; write module:function")
    try:
        module = import_module(module_name)
    except Exception as error:  # anything that the module raises
        raise ReshapeError(
            f"{target!r} cannot be imported: {type(error).__name__}: {error}; the module must be"
            f" installed, or a file in {folder}"
        ) from error
    attribute = getattr(module, name, None)
    if not callable(attribute):
        names = [each for each, thing in vars(module).items() if callable(thing)]
        raise ReshapeError(f"module {module_name!r} has no function {name!r}{nearest(name, names)}")
    return attribute  # type: ignore[no-any-return]


def trace_path(parameters: Mapping[str, Any], name: str) -> Path:
    """Path of a trace: in the directory of ``--traces``, or among those of the package.

    Raises
    ------
    ReshapeError : it is in neither.
    """
    folder = Path(parameters.get(TRACES, "."))
    for path in (folder / name, SHIPPED / "traces" / name):
        if path.is_file():
            return path
    raise ReshapeError(f"there is no trace {name} in {folder}")


def choice(parameters: Mapping[str, Any], name: str, offered: Mapping[str, T]) -> T:
    """Look up what a parameter of a run names.

    Raises
    ------
    ConfigError : it names none of those offered.
    """
    value = parameters[name]
    if not isinstance(value, str) or value not in offered:
        raise ConfigError(f"unknown value {value!r}{nearest(str(value), offered)}", field=name)
    return offered[value]


def missing_traces(study: Study, folder: Path) -> list[str]:
    """Names of the traces that the runs need and that do not exist, each once."""
    parameters = {TRACES: str(folder)}
    missing: list[str] = []
    for name in dict.fromkeys(name for run in study.runs for name in _trace_names(run)):
        try:
            trace_path(parameters, name)
        except ReshapeError:
            missing.append(name)
    return missing


def shipped_studies() -> dict[str, Path]:
    """Study files that come with the package, by name."""
    files = {file.stem: file for file in (SHIPPED / "studies").glob("*.yaml")}
    return dict(sorted(files.items()))


def shipped_traces() -> list[Path]:
    """Traces that come with the package."""
    files = sorted((SHIPPED / "traces").iterdir())
    return [file for file in files if file.name.endswith(ENDINGS)]


def _trace_names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.endswith(ENDINGS):
        yield value
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _trace_names(below)
    elif isinstance(value, list):
        for below in value:
            yield from _trace_names(below)


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[Parameters]:
    """Every combination, the last parameter varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _runs(plan: StudyFile) -> Iterator[Parameters]:
    seeds = plan.seeds if plan.seeds is not None else []
    numbers = range(1, seeds + 1) if isinstance(seeds, int) else seeds
    seeded: list[Parameters] = [{SEED: seed} for seed in numbers] or [{}]
    for case, point, seed in product(plan.cases or [{}], grid_points(plan.grid), seeded):
        yield plan.fixed | case | point | seed


def _full(tree: Located, plan: StudyFile, *, keeps_seeds: bool) -> StudyFile:
    """Plan with the changes of its field `full`."""
    if plan.full is None:
        tree.fail((), "has no field full, so --full runs nothing more; leave the option out")
    more = plan.full
    fixed = {name: value for name, value in plan.fixed.items() if name not in more.grid}
    grid = {name: values for name, values in plan.grid.items() if name not in more.fixed}
    return msgspec.structs.replace(
        plan,
        fixed=fixed | more.fixed,
        grid=grid | more.grid,
        cases=more.cases if "cases" in tree.values["full"] else plan.cases,
        seeds=plan.seeds if keeps_seeds or more.seeds is None else more.seeds,
    )


def _selected(plan: StudyFile, name: str, values: Sequence[str]) -> StudyFile:
    """Plan with the selected values of a parameter of its cases; see `read_study`."""
    if not any(name in case for case in plan.cases):
        raise ConfigError(
            f"the cases of this study have no parameter {name!r} to select values of; leave the"
            " option out"
        )
    cases = [case for case in plan.cases if case.get(name) in values]
    present = {case[name] for case in cases}
    others: list[Parameters] = []
    for case in plan.cases:
        rest = {key: value for key, value in case.items() if key != name}
        if rest not in others:
            others.append(rest)
    for value in values:
        if value not in present:
            cases += [{**rest, name: value} for rest in others]
    return msgspec.structs.replace(plan, cases=cases)


def _written_out(tree: Located, plan: StudyFile) -> StudyFile:
    """Plan in which each case with a grid of its own is expanded to cases without."""
    cases: list[Parameters] = []
    for i, case in enumerate(plan.cases):
        rest, grid = dict(case), case.get("grid", {})
        rest.pop("grid", None)
        above = ("cases", i, "grid")
        if not isinstance(grid, dict):
            tree.fail(above, f"must be a mapping of parameters to lists, got {grid!r}")
        _check_lists(tree, above, grid)
        for name in grid:
            if name in rest:
                tree.fail((*above, name), "is given in the case itself too; keep one")
        cases += [rest | point for point in grid_points(grid)]
    return msgspec.structs.replace(plan, cases=cases)


def _check_lists(tree: Located, above: FieldPath, grid: Mapping[str, Any]) -> None:
    for name, values in grid.items():
        if not isinstance(values, list):
            tree.fail((*above, name), f"must be a list, got {values!r}; or put it outside the grid")
        if not values:
            tree.fail((*above, name), "has no values; give at least one, or leave it out")


def _check(tree: Located, plan: StudyFile) -> None:
    """Refuse parameters that are given twice or reserved, and plans without a run."""
    groups: list[tuple[FieldPath, Mapping[str, Any]]] = [(("fixed",), plan.fixed)]
    groups += [(("cases",), case) for case in plan.cases]
    groups += [(("grid",), plan.grid)]
    seen: dict[str, str] = {}
    for field, group in groups:
        for name in group:
            here = str(field[0])
            if name in (SEED, TRACES):
                fix = "give `seeds`" if name == SEED else "give --traces DIR"
                tree.fail((*field, name), f"is set by the runner; {fix} instead")
            if seen.setdefault(name, here) != here:
                tree.fail((*field, name), f"is given under {seen[name]} too; keep one")
    _check_lists(tree, ("grid",), plan.grid)
    if isinstance(plan.seeds, list) and not plan.seeds:
        tree.fail(("seeds",), "has no values; give at least one, or leave it out")
    if isinstance(plan.seeds, int) and plan.seeds < 1:
        tree.fail(("seeds",), f"must be a number >= 1 or a list, got {plan.seeds}")


def _changed(plan: StudyFile, text: str) -> StudyFile:
    """Apply ``parameter=value`` to a plan; see `read_study`."""
    option = f"option --set {text}"
    try:
        name, written = key_value(text)
    except ValueError as error:
        raise ConfigError(str(error), file=option) from None
    value = _yaml(written, option)
    values = value if isinstance(value, list) else [value]
    if name in plan.grid or (name in plan.fixed and isinstance(value, list)):
        if not values:
            raise ConfigError("has no values; give at least one", file=option)
        fixed = {field: v for field, v in plan.fixed.items() if field != name}
        return msgspec.structs.replace(plan, fixed=fixed, grid=plan.grid | {name: values})
    if name in plan.fixed:
        return msgspec.structs.replace(plan, fixed=plan.fixed | {name: value})
    case_values = [case[name] for case in plan.cases if name in case]
    if case_values:
        cases = [case for case in plan.cases if name in case and case[name] in values]
        if not cases:
            field = ", ".join(dict.fromkeys(map(str, case_values)))
            raise ConfigError(f"no case has this value; there are {field}", file=option)
        return msgspec.structs.replace(plan, cases=cases)
    if name == SEED:
        raise ConfigError("give --seeds N, or --seeds '[1, 2]', instead", file=option)
    known_names = {*plan.fixed, *plan.grid, *(name for case in plan.cases for name in case)}
    raise ConfigError(f"unknown parameter {name!r}{nearest(name, known_names)}", file=option)


def _yaml(text: str, source: str) -> Any:
    try:
        return value_of(text)
    except ConfigError:
        raise ConfigError(f"{text!r} is not a YAML value", file=source) from None


def means(rows: Sequence[Row], out: Path | None) -> Report:
    """Mean of each number of the results, over the seeds, with its 95 % interval.

    A line for each combination of the parameters that vary; what is no number is left out.
    """
    groups: dict[bytes, list[Row]] = {}
    for row in rows:
        point = {name: value for name, value in row.parameters.items() if name != SEED}
        groups.setdefault(msgspec.json.encode(point, order="deterministic"), []).append(row)
    varied = _varied(rows)
    numbers = [name for name in _names(row.result for row in rows) if _values(rows, name)]
    data, lines = [], []
    for group in groups.values():
        point = {name: group[0].parameters.get(name) for name in varied}
        intervals = {name: mean_interval(_values(group, name)) for name in numbers}
        data.append({"parameters": point, "results": intervals})
        lines.append([*map(text, point.values()), *map(shown, intervals.values())])
    table = Table([*varied, *numbers], lines, left=frozenset(varied))
    result = msgspec.to_builtins({"runs": len(rows), "means": data})
    return Report(render(table), result)


def shown(interval: Interval) -> str:
    """Write a mean and its interval, both to two digits of the interval."""
    if isnan(interval.mean):
        return "-"
    if isnan(interval.half):
        return f"{interval.mean:.6g}"
    digits = 1 - floor(log10(interval.half)) if interval.half > 0 else 6
    kept = max(0, digits)
    return f"{round(interval.mean, digits):.{kept}f} ± {round(interval.half, digits):.{kept}f}"


def text(value: Any) -> str:
    """Write the value of a parameter."""
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)


def _varied(rows: Sequence[Row]) -> list[str]:
    """Parameters with more than one value, or all if none has."""
    names = [name for name in _names(row.parameters for row in rows) if name != SEED]
    several = [name for name in names if len({repr(row.parameters.get(name)) for row in rows}) > 1]
    return several or names


def _names(mappings: Any) -> list[str]:
    """Names in the order in which they are met first."""
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _values(rows: Sequence[Row], name: str) -> list[float]:
    """Numbers of this name; runs that gave none are left out."""
    values = [row.result.get(name) for row in rows]
    return [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
