"""Machine files that name several centres."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import EXAMPLES

from reshape.errors import ConfigError
from scheduler.text.located import Located
from simulator.many_centres.rules import CentreDescription, described_centres


def file(folder: Path, text: str) -> Path:
    path = folder / "centres.yaml"
    path.write_text(text)
    return path


def read_centres(path: Path) -> list[CentreDescription]:
    return described_centres(Located.read(path))


def test_the_example_names_three_centres_with_their_prices() -> None:
    found = read_centres(EXAMPLES / "centres.yaml")
    assert [(c.name, c.processors) for c in found] == [
        ("CTC", 412),
        ("SDSC", 128),
        ("SDSC-Blue", 1152),
    ]
    assert [round(centre.price, 2) for centre in found] == [470.4, 50.0, 1800.0]


def test_a_centre_has_defaults(tmp_path: Path) -> None:
    text = "centres: [{name: a, processors: 12, scenario: fcfs}]"
    (found,) = read_centres(file(tmp_path, text))
    assert (found.processors, found.chosen.name, found.cpu_factor) == (12, "fcfs", 1.0)


@pytest.mark.parametrize(
    ("centre", "message"),
    [
        ("{name: a}", "centres[0].processors: is missing"),
        ("{name: a, nodes: 2}", "centres[0].nodes: the processors of a centre are only counted"),
        ("{name: a, processors: 0}", "centres[0].processors"),
        ("{name: a, processors: 2, cpu_factor: 0}", "centres[0].cpu_factor"),
        ("{name: a, processors: 2, scenario: eazy}", "did you mean easy"),
        ("{name: a, processors: 2, set: {redirection.theta: 5}}", "leave redirection out"),
        ("{name: a, processors: 2, set: {backfill_ordr: sjf}}", "centres[0].set"),
        ("{name: a, processors: 2}, {name: a, processors: 3}", "two centres are named 'a'"),
        ("{name: a, procesors: 2}", "procesors"),
    ],
)
def test_an_error_names_file_and_field(tmp_path: Path, centre: str, message: str) -> None:
    path = file(tmp_path, f"centres: [{centre}]")
    with pytest.raises(ConfigError) as error:
        read_centres(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
