"""The blocks of docs/python.md run in their order and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from paths import EXAMPLES, ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", re.DOTALL)
MARK = "-- end of block {}"


def test_the_blocks_print_what_the_page_shows(tmp_path: Path) -> None:
    """As one script, whose classes are in `__main__` as those of a notebook."""
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) == PAGE.count("```python")
    assert len(blocks) > 10
    script = "".join(f"{code}\nprint({MARK.format(i)!r})\n" for i, (code, _) in enumerate(blocks))
    (tmp_path / "page.py").write_text(script)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"MPLBACKEND": "agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rest = done.stdout
    for i, (_, shown) in enumerate(blocks):
        printed, _, rest = rest.partition(MARK.format(i) + "\n")
        assert printed == shown
    assert rest == ""
    files = {path.name for path in tmp_path.iterdir()}
    assert files >= {"results", "load.png", "sweep.sqlite", "easy.yaml"}


def test_the_page_names_what_exists() -> None:
    for path in re.findall(r"\]\(([\w./]+)\)", PAGE):
        assert (ROOT / "docs" / path).exists(), path
