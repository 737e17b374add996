"""Jobs from columns of numbers: what is accepted, and the one error for what is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from small_experiments import CENTRES, COLUMNS, trace_text

from reshape.errors import ConfigError, ReshapeError
from simulator import Experiment, Jobs, simulate
from simulator.traces import swf

HOUR = timedelta(hours=1)


class Frame:
    """A data frame as far as it is used; as that of polars it iterates over columns."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {name: np.array(values) for name, values in columns.items()}

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.values())

    @property
    def columns(self) -> list[str]:
        return [*self._columns]

    def __len__(self) -> int:
        return len(self._columns["submit_s"])  # rows, as of a data frame


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("memory", [1] * 12, "memory: unknown column; "),
        ("procesors", [1] * 12, "procesors: unknown column; did you mean processors"),
        ("run_s", None, "run_s: is missing; jobs need submit_s, processors, run_s"),
        ("run_s", [1] * 11 + [np.nan], "run_s: row 11: must be a finite number >= 0, got nan"),
        ("run_s", [1] * 11 + [np.inf], "run_s: row 11: must be a finite number >= 0, got inf"),
        ("run_s", [1] * 11 + [None], "run_s: row 11: must be a number of seconds, got None"),
        ("run_s", [1, "2"] * 6, "run_s: row 0: must be a number of seconds, got '1'"),
        ("submit_s", [0] * 5 + [-1] + [0] * 6, "submit_s: row 5: must be a finite number"),
        ("processors", [1, 2.5] * 6, "processors: row 1: must be a whole number >= 1, got 2.5"),
        ("processors", [1, 0] * 6, "processors: row 1: must be a whole number >= 1, got 0"),
        ("user", [1, -2] * 6, "user: row 1: must be a whole number >= -1, got -2"),
        ("queue", ["a"] * 12, "queue: row 0: must be a number, got"),
        ("run_s", [1] * 11, "run_s: has 11 values and submit_s 12; give one for each job"),
        ("run_s", np.ones((12, 2)), "run_s: must have one dimension, got 2"),
        ("run_s", [[1]] + [1] * 11, "run_s: must have one dimension"),
        ("run_s", 5, "run_s: must be an array or a list, one value for each job, got 5"),
        ("run_s", np.zeros(12, "datetime64[s]"), "run_s: row 0: must be a number of seconds"),
        ("processors", np.ones(12, "timedelta64[s]"), "processors: row 0: must be a number, got"),
        ("processors", [True] * 12, "processors: row 0: must be a number, got True"),
        ("processors", [1, True] * 6 + [None], "processors: row 1: must be a number, got True"),
        ("submit_s", np.array([0, "NaT"] * 6, "datetime64[s]"), "submit_s: row 1: must be a fin"),
        ("submit_s", [datetime(2026, 1, 1), 5] * 6, "submit_s: row 1: must be of the kind of"),
        ("submit_s", [datetime(2026, 1, 1), HOUR] * 6, "submit_s: row 1: must be of the kind of"),
        ("run_s", [1, 1e300] * 6, "run_s: row 1: must be a finite number >= 0 and <= 1e+15, got"),
        ("submit_s", [1767225600 * 10**9] * 12, "not seconds, convert them, or give the dates"),
        ("run_s", np.ma.masked_equal([1, 2] * 6, 2), "run_s: row 1: is masked"),
        ("user", ["ann", None] * 6, "user: row 1: must be a text, got None; give ''"),
        ("user", ["ann", np.nan] * 6, "user: row 1: must be a text, got nan; give ''"),
    ],
)  # fmt: skip
def test_a_wrong_column_gives_one_error(column: str, values: Any, says: str) -> None:
    columns = COLUMNS | {column: values}
    if values is None:
        del columns[column]
    with pytest.raises(ConfigError) as error:
        Jobs(columns)
    assert says in str(error.value)


def test_no_rows() -> None:
    with pytest.raises(ConfigError, match="there is no job"):
        Jobs(submit_s=[], processors=[], run_s=[])
    with pytest.raises(ConfigError, match="submit_s: is missing"):
        Jobs()


def test_a_path_is_not_taken_for_columns() -> None:
    with pytest.raises(ConfigError, match=r"read a file by Jobs.read\('trace.swf'\)"):
        Jobs("trace.swf")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a mapping of columns or a data frame, got list"):
        Jobs([1, 2])  # type: ignore[arg-type]


def test_a_lazy_frame_has_no_values_yet() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"submit_s": [0], "processors": [1], "run_s": [5]})
    with pytest.raises(ConfigError, match="got LazyFrame; collect it first"):
        Jobs(frame.lazy())
    assert Jobs(frame.lazy().collect()).columns["run_s"].tolist() == [5]


def test_a_column_that_is_given_twice() -> None:
    with pytest.raises(ConfigError, match="run_s: is given twice"):
        Jobs(COLUMNS, run_s=[1] * 12)


def test_texts_name_users() -> None:
    by_text = Jobs(COLUMNS | {"user": [f"user{n:.0f}" for n in COLUMNS["user"]]})
    numbers = by_text.columns["user"].tolist()
    assert numbers == [n - 1 for n in COLUMNS["user"]]


def test_arrays_lists_and_frames_are_the_same() -> None:
    kinds = (COLUMNS, Frame(COLUMNS), {n: np.array(v, np.float32) for n, v in COLUMNS.items()})
    ends = [simulate(Jobs(kind), processors=8).jobs["end_s"].tolist() for kind in kinds]
    assert ends[0] == ends[1] == ends[2]
    for kind in (COLUMNS, Frame(COLUMNS)):
        assert simulate(kind, processors=8).jobs["end_s"].tolist() == ends[0]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame(COLUMNS)
    ends = simulate(COLUMNS).jobs["end_s"].tolist()
    for jobs in (frame, Jobs(frame), Jobs(**{name: frame[name] for name in COLUMNS})):
        assert simulate(jobs).jobs["end_s"].tolist() == ends
    with pytest.raises(ConfigError, match="walltimes: unknown column; did you mean walltime_s"):
        Jobs(frame, walltimes=frame["walltime_s"])


NEW_YEAR = datetime(2026, 1, 1)
TIMES: dict[str, tuple[Any, Any]] = {
    "numpy": (
        np.datetime64(NEW_YEAR, "ns") + np.arange(3) * np.timedelta64(60, "s"),
        np.array([90, 60, 1.5]) * 10**9 * np.timedelta64(1, "ns"),
    ),
    "python": (
        [NEW_YEAR + minute * HOUR / 60 for minute in range(3)],
        [timedelta(seconds=seconds) for seconds in (90, 60, 1.5)],
    ),
    "zone": (
        [NEW_YEAR.replace(tzinfo=UTC) + minute * HOUR / 60 for minute in range(3)],
        [90.0, 60.0, 1.5],
    ),
}


def check_times(submit: Any, run: Any) -> None:
    first = NEW_YEAR.replace(tzinfo=UTC).timestamp()
    jobs = simulate(Jobs(submit_s=submit, processors=[2, 2, 2], run_s=run), processors=2).jobs
    assert jobs["submit_s"].tolist() == [first, first + 60, first + 120]
    assert jobs["run_s"].tolist() == [90, 60, 1.5]
    assert jobs["wait_s"].tolist() == [0, 30, 30]


@pytest.mark.parametrize("kind", sorted(TIMES))
def test_times_and_durations_become_seconds(kind: str) -> None:
    check_times(*TIMES[kind])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_times_and_durations_of_data_frames(library: str) -> None:
    module = pytest.importorskip(library)
    for kind in ("python", "zone"):
        submit, run = TIMES[kind]
        check_times(module.Series(submit), module.Series(run))
    if library == "pandas":
        check_times(module.to_datetime(TIMES["python"][0]), module.to_timedelta(TIMES["python"][1]))
        with pytest.raises(ConfigError, match="submit_s: row 1: must be a finite number"):
            Jobs(submit_s=module.Series([NEW_YEAR, None]), processors=[1, 1], run_s=[1, 1])


def test_every_row_is_a_row_of_the_results_or_noted(tmp_path: Path) -> None:
    columns = {"submit_s": [0, 1, 2], "processors": [1, 1, 1], "run_s": [5, 0, 5]}
    for more in ({}, {"walltime_s": [5, 0, 6]}):
        result = simulate(Jobs(columns | more))
        assert result.jobs["job"].tolist() == ["1", "2", "3"]
        assert result.jobs["run_s"].tolist() == [5, 0, 5]
        assert "without run time" in result.notes[-1]
    Experiment(Jobs(columns)).save(tmp_path / "own.yaml")
    assert Experiment.from_file(tmp_path / "own.yaml").run().metrics["jobs"] == 3
    dropped = simulate(Jobs(columns).with_rules(without_run="drop"), processors=1)
    assert dropped.notes == ["3 jobs: 1 without requested time, 1 without run time; 2 kept"]
    assert simulate(Jobs(COLUMNS), processors=8).notes == []


def test_what_cleaning_changes_in_a_trace_is_noted(tmp_path: Path) -> None:
    text = trace_text({**COLUMNS, "processors": [1.5, *COLUMNS["processors"][1:]]})
    (tmp_path / "odd.swf").write_text(text.replace("\n2 0 ", "\n2 -7 "))
    says = (
        "12 jobs: 1 without submit time, 1 out of order, 2 fractions where whole numbers belong"
        " (processors are rounded down); 11 kept"
    )
    machines: tuple[dict[str, Any], ...] = ({}, {"machine": CENTRES})
    for machine in machines:
        assert simulate(tmp_path / "odd.swf", **machine).notes == [says]
    trace = swf.read(tmp_path / "odd.swf")
    trace.oddities.fractions = 0
    assert "1 fraction" in simulate(Jobs(trace)).notes[0], "those of processors"
    trace.columns["run"] = np.full(12, np.nan)
    with pytest.raises(ReshapeError, match="column run: row 0: must be a number up to"):
        simulate(Jobs(trace))


def test_the_estimate_is_the_run_time_without_walltimes() -> None:
    columns = {name: values for name, values in COLUMNS.items() if name != "walltime_s"}
    jobs = simulate(Jobs(columns)).jobs
    assert jobs["walltime_s"].tolist() == jobs["run_s"].tolist()


def test_the_machine_is_as_large_as_the_largest_job_by_default() -> None:
    assert simulate(Jobs(COLUMNS)).processors == 8


@st.composite
def some_columns(draw: st.DrawFn) -> dict[str, list[float]]:
    count = draw(st.integers(1, 20))
    columns = {
        "submit_s": st.integers(0, 300),
        "processors": st.integers(1, 8),
        "run_s": st.integers(1, 100),
        "walltime_s": st.integers(1, 150),
    }
    return {
        name: draw(st.lists(kind, min_size=count, max_size=count)) for name, kind in columns.items()
    }


@given(some_columns(), st.sampled_from(["fcfs", "easy", "conservative"]))
@examples(100)
def test_columns_give_the_schedule_of_their_trace(
    tmp_path_factory: pytest.TempPathFactory, columns: dict[str, Any], scenario: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "columns.swf"
    path.write_text(trace_text(columns))
    told = swf.read(path).columns
    assert told["requested_processors"].tolist() == columns["processors"]
    of_file = simulate(Jobs.read(path), scenario=scenario)
    of_columns = simulate(Jobs(columns), processors=8, scenario=scenario)
    assert list(of_file.jobs) == list(of_columns.jobs)
    for name in ("job", "submit_s", "processors", "start_s", "end_s", "walltime_s", "state"):
        assert of_file.jobs[name].tolist() == of_columns.jobs[name].tolist(), name
    numbers = {k: v for k, v in of_file.metrics.items() if k != "report"}
    assert {k: v for k, v in of_columns.metrics.items() if k != "report"} == numbers


def test_a_job_larger_than_the_machine_is_an_error_unless_a_rule_says_what_happens(
    tmp_path: Path,
) -> None:
    jobs = Jobs(COLUMNS)
    says = r"processors: row 2: must be at most 4, the processors of the machine, got 8; leave"
    with pytest.raises(ConfigError, match=says):
        simulate(jobs, processors=4)
    Experiment(jobs, processors=4).save(tmp_path / "own.yaml")
    assert "rules" not in (tmp_path / "own.yaml").read_text()
    with pytest.raises(ConfigError, match=says):
        Experiment.from_file(tmp_path / "own.yaml").run()
    for rule, count in (("drop", 10), ("cap", 12)):
        chosen = Experiment(jobs.with_rules(larger=rule), processors=4)
        chosen.save(tmp_path / "own.yaml")
        for experiment in (chosen, Experiment.from_file(tmp_path / "own.yaml")):
            assert experiment.run().metrics["jobs"] == count


def test_a_column_twice_in_a_data_frame() -> None:
    class Twice(Frame):
        columns = (*COLUMNS, "run_s")

    frame = Twice(COLUMNS)
    with pytest.raises(ConfigError, match="run_s: is in the data frame twice; keep one"):
        Jobs(frame)


def test_an_unknown_field_of_a_simulation() -> None:
    with pytest.raises(ConfigError, match="processor: unknown field; did you mean processors"):
        simulate(COLUMNS, processor=8)
