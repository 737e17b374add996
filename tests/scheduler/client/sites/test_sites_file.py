"""Files that name the services between which a user chooses."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from reshape.errors import ConfigError
from scheduler.client.sites.sites_file import read_sites


def file(folder: Path, text: str) -> Path:
    path = folder / "sites.yaml"
    path.write_text(text)
    return path


def test_sites_have_prices_limits_and_places(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{}")
    text = (
        "deadline_s: 3\nsites:\n"
        "  - {name: a, directory: left, units_per_hour: 2, cost_per_unit: 3, cpu_factor: 1.5,"
        " max_processors: 4, max_walltime: '2:00:00'}\n"
        "  - {name: b, access: b.json}\n"
    )
    found = read_sites(file(tmp_path, text))
    assert found.deadline_s == 3
    first, second = found.sites
    assert (first.service, first.price, first.cpu_factor) == (tmp_path / "left", 6.0, 1.5)
    assert (first.max_processors, first.max_walltime_s) == (4, 7200.0)
    assert (second.service, second.max_processors, second.max_walltime_s) == (
        tmp_path / "b.json",
        None,
        inf,
    )
    assert found.named("b") == second
    assert found.named("c") is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("10:00", 600), ("'10:00'", 600), ("2h", 7200), ("90", 90)],
)
def test_a_walltime_means_the_same_with_and_without_quotes(
    tmp_path: Path, value: str, seconds: float
) -> None:
    """YAML reads 10:00 without quotes as the number 600."""
    text = f"sites: [{{name: a, directory: left, max_walltime: {value}}}]"
    assert read_sites(file(tmp_path, text)).sites[0].max_walltime_s == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sites: []", "sites"),
        ("sites: [{name: a}]", "needs one of directory and access"),
        ("sites: [{name: a, directory: x, access: y}]", "needs one of directory and access"),
        ("sites: [{name: 'a:b', directory: x}]", "sites[0].name"),
        ("sites: [{name: a, directory: x}, {name: a, directory: y}]", "two sites are named 'a'"),
        ("sites: [{name: a, directory: x}, {name: b, directory: x}]", "is named twice"),
        ("sites: [{name: a, access: gone.json}]", "there is no access file"),
        ("sites: [{name: a, directory: x, max_walltime: soon}]", "sites[0].max_walltime"),
        ("sites: [{name: a, directory: x, costs: 3}]", "costs"),
        ("sites: [{name: a, directory: x}]\ndeadline_s: 0", "deadline_s"),
    ],
)
def test_a_wrong_sites_file_is_refused_by_line_and_field(
    tmp_path: Path, text: str, message: str
) -> None:
    path = file(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_sites(path)
    assert str(path) in str(error.value)
    assert message in str(error.value)
