"""The jobs of an experiment: where they come from, which of them run, and which are resizable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from numpy.typing import NDArray

from reshape.errors import ConfigError
from reshape.speedup import Model, written
from scheduler.text.formats import counted
from scheduler.text.located import converted
from simulator.engine.costs import ResizeCost
from simulator.experiment.columns import (
    NAMES,
    Frame,
    given_columns,
    plain_numbers,
    trace_of,
)
from simulator.traces import swf
from simulator.traces.files import is_file
from simulator.traces.normalise import BOUNDS, Rules, largest_size
from simulator.traces.swf import Trace
from simulator.workload_models import workload_file
from simulator.workload_models.generate import PRIO, make, prio, request_of
from simulator.workload_models.workload import Resizable, Workload

#: Rules of cleaning of columns, which a program makes for a certain machine: no row is left out.
OF_COLUMNS = Rules(larger="error", without_run="keep")


class JobFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The jobs of an experiment as plain data, as its file has them.

    Parameters
    ----------
    trace, workload, model, columns : the source, one of them unless the jobs are in memory: a trace
        (.swf, .swf.gz); a workload file (.yaml); the name of a model; columns by name.
    options : parameters of the model.
    lenient : leave out malformed lines of the trace, and report their number.
    rules : of cleaning. Jobs of columns that are larger than the machine are an error by default,
        and those without a run time are kept.
    first : number of jobs that run, the first ones by submission; None: all.
    resizable : how a share of the jobs is made resizable; None: it is not.
    """

    trace: str | None = None
    workload: str | None = None
    model: str | None = None
    columns: dict[str, list[Any]] | None = None
    options: dict[str, Any] = {}
    lenient: bool = False
    rules: Rules = Rules()
    first: Annotated[int, msgspec.Meta(ge=1)] | None = None
    resizable: Resizable | None = None


class Jobs:
    """The jobs of an experiment. A value: its methods return changed copies.

    ``Jobs(submit_s=..., processors=..., run_s=..., walltime_s=...)`` takes columns of numbers as
    arrays or lists, and ``Jobs(frame)`` those of a data frame or another mapping. `Jobs.read` takes
    a file, and `Jobs.drawn` draws jobs from a model. ``Jobs(trace)`` takes what
    `simulator.traces.swf.read` returned, with columns changed if need be, and ``Jobs(workload)``
    single jobs that a program has made.

    Parameters
    ----------
    source : a mapping of columns, such as a data frame; a `Trace`, or a `Workload`.
    named : columns by name; see `simulator.experiment.columns`.

    Raises
    ------
    ConfigError : a column is missing, unknown or wrong; the message names column and row.
    """

    __slots__ = ("fields", "table")

    def __init__(
        self,
        source: Mapping[str, Iterable[Any]] | Frame | Trace | Workload | None = None,
        /,
        **named: Iterable[Any],
    ) -> None:
        self.fields = JobFields()
        self.table: Trace | Workload | None = None
        if isinstance(source, Trace | Workload) and not named:
            self.table = source
            return
        self.fields = JobFields(columns={}, rules=OF_COLUMNS)
        self.table = trace_of(given_columns(source, named))

    @classmethod
    def of(cls, fields: JobFields, table: Trace | Workload | None = None) -> Jobs:
        """Jobs that plain data describes.

        Parameters
        ----------
        table : jobs in memory, if they are the source and not in the data.

        Raises
        ------
        ConfigError : no source or several, a file that does not exist, an unknown model or option,
            or a field that does not apply to the source.
        """
        sources = [
            name
            for name in ("trace", "workload", "model", "columns")
            if getattr(fields, name) is not None
        ]
        if len(sources) + (table is not None and not sources) != 1:
            what = " and ".join(sources) or "no source"
            raise ConfigError(
                f"jobs have {what}; give one of trace, workload, model and columns", field="jobs"
            )
        if fields.lenient and fields.trace is None:
            raise ConfigError("applies to a trace only; leave it out", field="lenient")
        if fields.options and fields.model is None:
            raise ConfigError("applies to a model only; leave it out", field="options")
        made = cls.__new__(cls)
        made.fields, made.table = fields, table
        if made.single:
            for name, default in (("rules", Rules()), ("first", None), ("resizable", None)):
                if getattr(fields, name) != default:
                    raise ConfigError(
                        "applies to rigid jobs, and not to those of a workload or of the model"
                        " prio; leave it out",
                        field=name,
                    )
        for name in ("trace", "workload"):
            path = getattr(fields, name)
            if path is not None and not is_file(Path(path)):
                raise ConfigError("cannot be read: No such file", file=path)
        if fields.resizable is not None:
            fields.resizable.check()
        if fields.columns and table is None:
            made.table = trace_of(fields.columns)
            made.fields = msgspec.structs.replace(fields, columns={})
        if fields.model == PRIO:
            prio(fields.options, 0)
        elif fields.model is not None:
            request_of(fields.model, fields.options, 0)
        return made

    @classmethod
    def read(cls, path: str | Path, *, lenient: bool = False) -> Jobs:
        """Jobs of a file, which is read when the experiment runs.

        Parameters
        ----------
        path : of a trace (.swf, .swf.gz) or of a workload file (.yaml).
        lenient : leave out malformed lines of a trace, and report their number.

        Raises
        ------
        ConfigError : there is no such file; or `lenient` with a workload file.
        """
        named = {field_of(Path(path)): str(path)}
        return cls.of(converted(named | {"lenient": lenient}, JobFields, "jobs"))

    @classmethod
    def drawn(cls, model: str, **options: Any) -> Jobs:
        """Jobs that a model draws when the experiment runs, by its seed.

        Parameters
        ----------
        model : "lublin", "feitelson96", or "prio", whose jobs are resizable.
        options : `jobs`, the number of jobs; `load`, `queue`, `resources`, `law`, `estimates` and
            `longest_s` as of `TraceRequest`; and parameters of the model, such as `processors`.

        Raises
        ------
        ConfigError : the model or an option is unknown, or a value is wrong.
        """
        return cls.of(JobFields(model=model, options=plain_numbers(options)))

    def with_rules(self, **rules: Any) -> Jobs:
        """Change rules of cleaning, such as ``overrun="keep"``; see `Rules`.

        Raises
        ------
        ConfigError : an unknown rule or value; or the jobs are not those of a trace.
        """
        changed = msgspec.to_builtins(self.fields.rules) | plain_numbers(rules)
        return self._changed(rules=converted(changed, Rules, "rules"))

    def first(self, count: int | None) -> Jobs:
        """Take only the first jobs, by submission, of those that the rules keep; None: all.

        Raises
        ------
        ConfigError : `count` is below 1; or the jobs are those of a workload file.
        """
        count = plain_numbers(count)
        if count is not None and count < 1:
            raise ConfigError(f"must be >= 1, got {count}", field="first")
        return self._changed(first=count)

    def with_resizable(
        self, share: float = 1.0, speedup: str | Model = "downey", **options: Any
    ) -> Jobs:
        """Make a share of the jobs resizable, drawn by the seed of the experiment.

        Parameters
        ----------
        share : from 0 to 1.
        speedup : of the resizable jobs, as ``"amdahl:serial=0.02"``.
        options : further fields of `Resizable`.

        Raises
        ------
        ConfigError : an unknown option or a wrong value; or the jobs are those of a workload file,
            which says itself which of them are resizable.
        """
        options |= {"share": share}
        options["speedup"] = speedup if isinstance(speedup, str) else written(speedup)
        cost = options.get("cost")
        if isinstance(cost, ResizeCost):
            options["cost"] = msgspec.structs.asdict(cost)
        return self._changed(resizable=converted(plain_numbers(options), Resizable, "resizable"))

    def load(
        self,
        seed: int | None,
        *,
        columns: Iterable[str] = swf.FIELDS,
    ) -> Trace | Workload:
        """Read or draw the jobs: the lines of a trace, to be cleaned, or single jobs.

        Parameters
        ----------
        seed : of a model; None: 1.
        columns : of a trace, to read.

        Raises
        ------
        ConfigError : jobs that are not resizable have bounds on their sizes.
        """
        fields = self.fields
        if fields.trace is not None:
            return swf.read(fields.trace, fields=[*columns], lenient=fields.lenient)
        if fields.workload is not None:
            return workload_file.read(Path(fields.workload))
        if fields.model == PRIO:
            return prio(fields.options, 1 if seed is None else seed)[1]
        if fields.model is not None:
            return make(request_of(fields.model, fields.options, 1 if seed is None else seed))
        assert self.table is not None
        if isinstance(self.table, Trace) and fields.resizable is None:
            for name in BOUNDS:
                if name in self.table.columns:
                    raise ConfigError(
                        "has an effect on resizable jobs only: make the jobs resizable"
                        " (Jobs.with_resizable), or leave the column out",
                        field=name,
                    )
        return self.table

    @property
    def single(self) -> bool:
        """Whether they are single jobs from the start, which say themselves what is resizable."""
        fields = self.fields
        return (
            fields.workload is not None or fields.model == PRIO or isinstance(self.table, Workload)
        )

    @property
    def source(self) -> str:
        """Where they come from, for results."""
        fields = self.fields
        path = self.table.path if isinstance(self.table, Trace) else "workload"
        return fields.trace or fields.workload or fields.model or path

    @property
    def draws(self) -> bool:
        """Whether the seed of an experiment has an effect on the jobs."""
        fields, resizable = self.fields, self.fields.resizable
        partly = resizable is not None and 0 < resizable.share < 1
        return partly or fields.model is not None

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of which the jobs were made, (n,) arrays by name; of other sources none."""
        held = self.table.columns if isinstance(self.table, Trace) else {}
        return {name: held[column] for name, (column, _) in NAMES.items() if column in held}

    def data(self) -> dict[str, Any]:
        """The same as plain data, for a file.

        Raises
        ------
        ConfigError : they are a trace or a workload in memory.
        """
        if self.table is not None and self.fields.columns is None:
            raise ConfigError(
                "jobs in memory have no path; write them by swf.write or workload_file.encode, and"
                " give the path of the file",
                field="jobs",
            )
        columns = {name: column.tolist() for name, column in self.columns.items()}
        return self._described() | ({} if self.table is None else {"columns": columns})

    def _described(self) -> dict[str, Any]:
        """The plain data without the contents of columns."""
        data: dict[str, Any] = msgspec.to_builtins(self.fields)
        rules = msgspec.to_builtins(self.fields.rules)
        usual = msgspec.to_builtins(Rules() if self.fields.columns is None else OF_COLUMNS)
        if rules == usual:
            data.pop("rules", None)
        else:
            data["rules"] = {k: v for k, v in rules.items() if v != usual[k]}
        return data

    def _changed(self, **changes: Any) -> Jobs:
        return Jobs.of(msgspec.structs.replace(self.fields, **changes), self.table)

    def __eq__(self, other: object) -> bool:
        """Whether the same jobs are described; those in memory equal only themselves."""
        if not isinstance(other, Jobs):
            return NotImplemented
        return self.fields == other.fields and self.table is other.table

    __hash__ = None  # type: ignore[assignment]  # options are mappings

    def __repr__(self) -> str:
        """The plain data, columns by the number of their rows."""
        data = self._described()
        if isinstance(self.table, Trace):
            data["columns"] = f"{len(self.table)} rows"
        elif self.table is not None:
            data["workload"] = f"{len(self.table.jobs)} jobs"
        return f"Jobs({', '.join(f'{name}={value!r}' for name, value in data.items())})"


def field_of(path: Path) -> str:
    """Field of `JobFields` for a file: "workload", or "trace"."""
    return "workload" if path.suffix in workload_file.ENDINGS else "trace"


def processors_of(workload: Trace | Workload) -> tuple[int | None, str]:
    """Number of processors that a workload names, and a note if it is a guess.

    None: it names none. The machine of columns, and of a trace without a header, is as large as
    their largest job.
    """
    if isinstance(workload, Workload):
        return workload.processors, ""
    if size := workload.declared("MaxProcs"):
        return size, ""
    fix = "processors (--processors) sets another number"
    if size := workload.declared("MaxNodes"):
        return size, (
            f"the machine has {counted(size, 'processor')}, the MaxNodes of the header, which has"
            f" no MaxProcs above 0; {fix}"
        )
    if workload.header:
        return None, ""
    size = largest_size(workload)
    text = f"the machine has {counted(size, 'processor')}, as many as the largest job requests"
    return size, f"{text}; {fix}"
