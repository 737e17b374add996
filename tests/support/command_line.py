"""The `reshape` command as a subprocess, or in this process."""

from __future__ import annotations

import subprocess
import sys
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner
from waiting import LIMIT_S

from reshape.__main__ import main


def reshape(
    *arguments: object, code: int = 0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `reshape` and check its exit code; no traceback may appear on standard error."""
    command = [sys.executable, "-m", "reshape", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=cwd
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def invoke(
    *arguments: object, code: int = 0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `reshape` in this process, which takes a tenth of the time, and check its exit code."""
    words = [str(word) for word in arguments]
    with chdir(cwd or "."):
        done = CliRunner().invoke(main, words, prog_name="reshape")
    assert done.exit_code == code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
