"""No secret of a running service is in an argument list, a log, an answer or an open file."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from ports import free_port
from process_words import words_of

PRINTS = "import os, time; print('token', os.environ['RESHAPE_TOKEN'], flush=True); time.sleep(60)"


def test_where_the_secrets_of_a_service_are(served: Any) -> None:
    served.start("--processors", "2", "--listen", f"127.0.0.1:{free_port()}", "--allow-root")
    job = served.submit([sys.executable, "-c", PRINTS])
    served.when(job, lambda _: "\n" in served.output(job))
    secrets = {"token": served.output(job).split()[1], "agent": served.place.read_secret()}
    for path in (served.directory / "access").glob("*.json"):
        if path.name != "keys.json":
            secrets[path.name] = json.loads(path.read_text())["secret_key"]
    assert len(secrets) == 6

    lines = list(_command_lines())
    logs = {path: path.read_text() for path in served.directory.glob("*.log")}
    answers = {
        command: _run(served, *command)
        for command in (
            ("explain", str(job)),
            ("history", "--json"),
            ("queue", "--json"),
            ("info", str(job), "--json"),
            ("info", "--json"),
        )
    }
    assert len(logs) >= 2
    for name, secret in secrets.items():
        assert not [line for line in lines if secret in line], name
        assert not [path for path, text in logs.items() if secret in text], name
        assert not [command for command, text in answers.items() if secret in text], name
        for path in _files(served.directory):
            if secret.encode() in path.read_bytes():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def _command_lines() -> Iterator[str]:
    for process in psutil.process_iter():
        yield " ".join(words_of(process))


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _run(served: Any, *words: str) -> str:
    command = [
        sys.executable,
        "-m",
        "reshape",
        words[0],
        "--dir",
        str(served.directory),
        *words[1:],
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
