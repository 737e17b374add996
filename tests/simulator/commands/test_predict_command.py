"""`reshape predict` as a user meets it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from paths import SMALL_TRACE as SMALL

import scheduler.predictions.classification as classification
from reshape.errors import ConfigError
from simulator.commands.predict import predict

KEYS = {
    "jobs", "median_error_s", "iqr_error_s", "p95_error_s", "under_pct", "over_pct",
    "coverage_pct",
}  # fmt: skip


def run(*arguments: object) -> str:
    done = CliRunner().invoke(predict, [str(each) for each in (SMALL, *arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_json_has_a_row_for_each_predictor_and_null_without_quantiles(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = json.loads(run("--json", "--out", out, "--predictor", "exact,user,tsafrir,statistical"))
    rows = found["predictors"]
    assert list(rows) == ["exact", "user", "tsafrir", "statistical"]
    assert all(row.keys() == KEYS and row["jobs"] == found["jobs"] for row in rows.values())
    assert rows["exact"]["p95_error_s"] == 0
    assert rows["user"]["under_pct"] == 0, "runs are cut at the request"
    assert rows["user"]["coverage_pct"] is None
    assert 0 < rows["statistical"]["coverage_pct"] <= 100
    assert json.loads((out / "accuracy.json").read_text()) == found
    with (out / "errors.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == found["jobs"]
    assert all(line["exact_s"] == line["run_s"] for line in lines)
    assert (out / "errors.png").read_bytes().startswith(b"\x89PNG")


def test_a_field_of_a_predictor_is_set() -> None:
    text = run("--predictor", "constant", "--set", "constant.run_s=1", "--json")
    assert json.loads(text)["predictors"]["constant"]["over_pct"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--predictor", "tsafir"), "did you mean tsafrir"),
        (("--predictor", "user", "--set", "constant.run_s=1"), "NAME.FIELD"),
    ],
)
def test_wrong_usage_names_the_fix(arguments: tuple[str, ...], message: str) -> None:
    assert message in run(*arguments)


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ConfigError, match="run"):
        run("--predictor", "constant", "--set", "constant.ran_s=1")


def test_predictors_whose_package_is_missing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: object) -> None:
        raise ConfigError("the predictor classification needs scikit-learn", field="estimates")

    monkeypatch.setattr(classification.Classification, "predictor", missing)
    text = run()
    assert "classification is left out: the predictor classification needs scikit-learn" in text
    assert "hybrid is left out" in text
    assert "\ntsafrir" in text
    with pytest.raises(ConfigError, match="needs scikit-learn"):
        run("--predictor", "classification")
