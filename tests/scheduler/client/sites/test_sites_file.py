"""Files that name the services between which a user chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape.errors import ConfigError
from scheduler.client.sites.sites_file import read_sites


def file(folder: Path, text: str) -> Path:
    path = folder / "sites.yaml"
    path.write_text(text)
    return path


def test_sites_have_prices_and_places(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{}")
    text = (
        "deadline_s: 3\nsites:\n"
        "  - {name: a, directory: left, units_per_hour: 2, cost_per_unit: 3, cpu_factor: 1.5}\n"
        "  - {name: b, access: b.json}\n"
    )
    found = read_sites(file(tmp_path, text))
    assert found.deadline_s == 3
    first, second = found.sites
    assert (first.service, first.price, first.cpu_factor) == (tmp_path / "left", 6.0, 1.5)
    assert (second.service, second.price, second.cpu_factor) == (tmp_path / "b.json", 0.0, 1.0)
    assert found.named("b") == second
    assert found.named("c") is None


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
        ("sites: [{name: a, directory: x, max_walltime: 2h}]", "sites[0].max_walltime"),
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
