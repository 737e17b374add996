"""The `reshape` command as a subprocess."""

from __future__ import annotations

import subprocess
import sys


def reshape(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `reshape` and check its exit code; no traceback may appear on standard error."""
    command = [sys.executable, "-m", "reshape", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done
