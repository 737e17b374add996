"""Running the Python blocks of a page of docs/."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from paths import ROOT

_BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)
_MARK = "-- end of block {}"


def check_blocks(name: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run the blocks of a page in their order; they have to print what the page shows.

    They are one script, whose classes are in `__main__` as those of a notebook.

    Parameters
    ----------
    folder : working directory.
    environment : variables in addition to those of this process.
    """
    page = (ROOT / "docs" / name).read_text()
    blocks = _BLOCK.findall(page)
    assert len(blocks) == page.count("```python")
    script = "".join(f"{code}\nprint({_MARK.format(i)!r})\n" for i, (code, _) in enumerate(blocks))
    (folder / "page.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rest = done.stdout
    for i, (_, shown) in enumerate(blocks):
        printed, _, rest = rest.partition(_MARK.format(i) + "\n")
        assert printed == shown, f"{name}: {printed!r} in place of {shown!r}"
    assert rest == ""
    for path in re.findall(r"\]\(([\w./]+)\)", page):
        assert (ROOT / "docs" / path).exists(), path
