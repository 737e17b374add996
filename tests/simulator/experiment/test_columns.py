"""Jobs from columns of numbers: what is accepted, and the one error for what is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from small_experiments import COLUMNS, trace_text

from reshape.errors import ConfigError
from simulator import Experiment, Jobs, simulate
from simulator.traces import swf


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
        ("submit_s", np.zeros(12, "datetime64[s]"), "submit_s: row 0: must be a number of"),
        ("submit_s", np.zeros(12, "timedelta64[s]"), "submit_s: row 0: must be a number of"),
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
    with pytest.raises(ConfigError, match="must be a mapping of columns or a data frame"):
        Jobs([1, 2])  # type: ignore[arg-type]


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
