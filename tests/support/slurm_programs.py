"""Slurm's commands over a service, and environments with clients of Slurm from the index."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke

from scheduler.client.slurm.programs import main

#: Seconds to install a client, and to let it work.
INSTALL_S, WORK_S = 240, 400


#: Signals of which a command may change the handler for its process.
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SlurmPrograms:
    """The commands of ``reshape slurm-commands`` for a service.

    Parameters
    ----------
    served : the service, which runs.
    folder : empty; it gets the commands.
    python : interpreter that writes them, and runs them.
    """

    def __init__(self, served: Any, folder: Path, python: Path | str = sys.executable) -> None:
        self._served = served
        words = ["slurm-commands", "--dir", served.directory, folder]
        if python == sys.executable:
            invoke(*words)
        else:
            command = [python, "-m", "reshape", *words]
            subprocess.run(command, check=True, capture_output=True)
        #: Variables with which the commands are found first.
        self.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        for name in ("RESHAPE_DIR", "RESHAPE_ACCESS"):
            self.environment.pop(name, None)

    def run(self, *words: object, code: int = 0, stdin: str | None = None, **more: Any) -> str:
        """Run a command in the folder of the test's work; return what it prints.

        Parameters
        ----------
        code : exit code that it has to have; then 1 returns its standard error.
        """
        done = subprocess.run(
            [str(word) for word in words],
            env=self.environment | {name: str(value) for name, value in more.items()},
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self._served.work,
            check=False,
            timeout=WORK_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    def call(
        self, name: str, *words: object, code: int = 0, stdin: str | None = None, **more: str
    ) -> str:
        """Do the same in this process, which takes a tenth of the time."""
        directory = str(self._served.directory)
        with (
            pytest.MonkeyPatch.context() as patch,
            chdir(self._served.work),
            redirect_stdout(StringIO()) as stdout,
            redirect_stderr(StringIO()) as stderr,
        ):
            for variable, value in {"RESHAPE_DIR": directory, **more}.items():
                patch.setenv(variable, value)
            if stdin is not None:
                patch.setattr(sys, "stdin", StringIO(stdin))
            handlers = {number: signal.getsignal(number) for number in _HANDLED}
            try:
                ended = main(name, "RESHAPE_DIR", directory, [str(word) for word in words])
            except SystemExit as error:  # of argparse
                ended = int(error.code or 0)
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)
        assert ended == code, stdout.getvalue() + stderr.getvalue()
        return (stderr if code else stdout).getvalue()


def installed(folder: Path, *packages: str) -> str:
    """Make a virtual environment with packages; return its interpreter.

    The test is skipped where the package index cannot be reached.
    """
    venv = [sys.executable, "-m", "venv", "--without-pip", folder]
    subprocess.run(venv, check=True, timeout=INSTALL_S)
    python = str(folder / "bin" / "python")
    # Only modules that are used are compiled, at their import.
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    try:
        done = subprocess.run(
            [*pip, *packages],
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALL_S,
            env=_plain(),
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{', '.join(packages)}: the package index did not answer in time")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        pytest.skip(f"{', '.join(packages)} cannot be installed: {last[0]}")
    return python


def _plain() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
