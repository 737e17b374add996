"""Batch site files."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape.errors import ConfigError
from scheduler.client.sites import records
from scheduler.config.batch_site_file import is_batch_site_file, read_batch_site
from scheduler.config.sites_file import read_sites


def test_a_batch_site_file(tmp_path: Path) -> None:
    file = tmp_path / "pbs.yaml"
    file.write_text(
        "system: psij-pbs\njobs: jobs\nnodes: 4\nprocessors_per_node: 8\noptions: [queue=short]\n"
    )
    found = read_batch_site(file)
    assert (found.system, found.processors, found.options) == ("psij-pbs", 32, ("queue=short",))
    assert found.folder == tmp_path / "jobs"
    assert found.keep_s == 60 * 86400.0
    file.write_text("system: slurm\njobs: jobs\nprocessors_per_node: 8\nkeep_days: null\n")
    assert read_batch_site(file).keep_s is None
    file.write_text(
        "system: psij-pbs\njobs: jobs\nnodes: 4\nprocessors_per_node: 8\nkeep_days: 31\n"
    )
    assert read_batch_site(file).keep_s is not None
    assert (read_batch_site(file).keep_s or 0.0) > records.RETRIED_S
    assert is_batch_site_file(file)
    assert not is_batch_site_file(tmp_path)
    (tmp_path / "sites.yaml").write_text("sites: [{name: pbs, batch: pbs.yaml}]\n")
    (site,) = read_sites(tmp_path / "sites.yaml").sites
    assert (site.place, site.gives_quotes) == (file, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: a\nprocessors_per_node: 1", "system"),
        ("system: slurm\njobs: a\nprocessors_per_node: 0", "processors_per_node"),
        ("system: slurm\njobs: a\nprocessors_per_node: 1\nnode: 2", "node"),
        ("system: slurm\njobs: a\nprocessors_per_node: 1\nkeep_days: 30", "keep_days"),
    ],
)
def test_invalid_files_name_the_field(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_batch_site(tmp_path / "x.yaml")
    (tmp_path / "sites.yaml").write_text("sites: [{name: x, batch: x.yaml}]\n")
    with pytest.raises(ConfigError, match=message):
        read_sites(tmp_path / "sites.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "sites.yaml").write_text("sites: [{name: x, batch: y.yaml}]\n")
    with pytest.raises(ConfigError, match=r"there is no batch site file .*y\.yaml"):
        read_sites(tmp_path / "sites.yaml")
