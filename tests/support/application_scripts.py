"""Short programs for tests of the application object."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from driver import run


def script(folder: Path, body: str) -> str:
    """Write a program whose body runs within the application's block."""
    path = folder / "program.py"
    lines = [
        "import sys",
        "import numpy as np",
        "import reshape",
        "with reshape.application() as app:",
        textwrap.indent(textwrap.dedent(body), "    "),
    ]
    path.write_text("\n".join(lines))
    return str(path)


def check_wrong_use(folder: Path, messages: Mapping[str, str]) -> None:
    """Check that each statement raises a ReshapeError whose message begins as expected."""
    lines = ["import numpy as np, reshape"]
    for statement in messages:
        lines += [
            "with reshape.application() as app:",
            f"    try: {statement}; print('no error')",
            "    except reshape.ReshapeError as error: print(error)",
        ]
    program = folder / "program.py"
    program.write_text("\n".join(lines))
    done = run(1, str(program))
    assert done.returncode == 0, done.stderr
    for line, expected in zip(done.stdout.splitlines(), messages.values(), strict=True):
        assert line.startswith(expected)
