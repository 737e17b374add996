"""What a run of tests leaves when it is interrupted or killed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import SUPPORT
from process_words import words_of
from waiting import LIMIT_S, wait_until

#: A test that goes on, with a process in a session of its own that names a service directory, and
#: the folder of a job that the test drives. The service has a folder in /dev/shm, and there is
#: another one, of a service of another run.
TESTS = """
import os, subprocess, sys, time
from pathlib import Path

def test_it_goes_on():
    driven = f"/dev/shm/reshape-try-{{os.getpid()}}-1"
    for folder in (*{folders}, driven):
        Path(folder).mkdir()
    words = [sys.executable, "-c", "import time; time.sleep(600)", "--dir", {directory!r}]
    variables = os.environ | {{"RESHAPE_SHM": driven}}
    process = subprocess.Popen(words, env=variables, start_new_session=True)
    Path("started").write_text(str(process.pid))
    Path("started").rename("number")
    time.sleep(600)
"""


@pytest.fixture
def folders() -> Iterator[list[str]]:
    """Names of folders in shared memory."""
    found = [f"/dev/shm/reshape-{secrets.token_hex(8)}" for _ in range(2)]
    yield found
    for folder in found:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("number", "directory"),
    [(signal.SIGINT, "{path}"), (signal.SIGTERM, "service"), (signal.SIGKILL, "service")],
)
def test_processes_and_folders_of_a_run_end_with_it(
    number: signal.Signals, directory: str, tmp_path: Path, folders: list[str]
) -> None:
    service = tmp_path / "service"
    service.mkdir()
    (service / "memory-folder").write_text(Path(folders[0]).name)
    directory = directory.format(path=service)
    (tmp_path / "test_it.py").write_text(TESTS.format(folders=folders, directory=directory))
    words = ["-c", os.devnull, "--rootdir", str(tmp_path), "-p", "left_behind", "test_it.py"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        wait_until(lambda: (tmp_path / "number").exists() or run.poll() is not None)
        process = int((tmp_path / "number").read_text())
        assert words_of(process)
        run.send_signal(number)
        output, _ = run.communicate(timeout=LIMIT_S)
    if number is signal.SIGINT:
        assert f"left behind: process {process}: {sys.executable} -c" in output
    own = (Path(folders[0]), Path(f"/dev/shm/reshape-try-{run.pid}-1"))
    wait_until(lambda: not words_of(process) and not any(folder.exists() for folder in own))
    assert Path(folders[1]).exists()
