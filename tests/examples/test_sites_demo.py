"""The demonstration of several sites: real services and MPI programs, no leftovers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from demo_processes import demo_results, of_the_demo, wait_for_programs
from paths import EXAMPLES
from process_words import words_of
from waiting import LIMIT_S

from scheduler.node.directory import ServiceDirectory

COMMAND = [sys.executable, str(EXAMPLES / "sites" / "sites_demo.py"), "--processors", "4"]


@pytest.fixture
def environment(tmp_path: Path, temporary: Path) -> dict[str, str]:
    """An environment with a home and a temporary directory of this test."""
    (tmp_path / "home").mkdir()
    given = {"TMPDIR": str(temporary), "HOME": str(tmp_path / "home")}
    rest = {name: value for name, value in os.environ.items() if name != "RESHAPE_SUBMISSIONS"}
    return rest | given


@pytest.mark.long
def test_the_demo_sends_one_workload_by_each_metric(
    tmp_path: Path, temporary: Path, environment: dict[str, str]
) -> None:
    out = tmp_path / "out"
    words = ["--sites", "3", "--jobs", "5", "--seed", "3", "--metric", "wait", "--metric", "queue"]
    results = demo_results(COMMAND, out, environment, *words)
    assert (results["seed"], results["scenario"]) == (3, "easy")
    assert [site["processors"] for site in results["sites"]] == [4, 2, 1]
    assert list(results["metrics"]) == ["wait", "queue"]
    for metric, its in results["metrics"].items():
        assert (its["jobs"], its["jobs_verified"]) == (5, 5)
        counts = {name: its["sites_of_jobs"].count(name) for name in "ABC"}
        assert its["jobs_by_site"] == counts
        assert its["sites_of_jobs"][0] == "A", "all sites are idle, and ties go to the first"
        assert its["mean_wait_s"] >= 0
        assert its["mean_slowdown"] >= 1
        assert its["makespan_s"] > 0
        assert its["cost"] > 0
        texts = [path.read_text() for path in (out / metric).glob("job-*.out")]
        assert len(texts) == 5
        assert all("verified" in text for text in texts)
        assert all((out / metric / name / "journal.db").is_file() for name in "ABC")
        assert f"<title>Sites by the metric {metric}</title>" in Path(its["page"]).read_text()
    assert of_the_demo(temporary) == []
    assert os.listdir(temporary) == []
    assert not (tmp_path / "home" / ".reshape").exists(), "no record among those of the user"


@pytest.mark.parametrize("victim", [pytest.param("a site", marks=pytest.mark.long), "the demo"])
def test_services_of_sites_end_with_the_demo(
    victim: str, tmp_path: Path, temporary: Path, environment: dict[str, str]
) -> None:
    with subprocess.Popen(
        [*COMMAND, "--sites", "2", "--jobs", "4", "--out", str(tmp_path / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_programs(temporary)
        if victim == "a site":
            site = next(p for p in of_the_demo(temporary) if "serve" in words_of(p))
            words = site.cmdline()
            memory = ServiceDirectory(Path(words[words.index("--dir") + 1])).memory
            site.kill()
        else:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
    if victim == "a site":
        shutil.rmtree(memory)  # its next start would need it
        assert process.returncode == 1
        assert "sites_demo: error: " in errors
    else:
        assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in errors
    assert of_the_demo(temporary) == []
    left = os.listdir(temporary)  # a service that is killed leaves the folder of its socket
    assert len(left) <= (victim == "a site")
