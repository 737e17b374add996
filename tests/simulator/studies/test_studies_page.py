"""The example study of docs/studies/README.md runs and prints the output of the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from paths import ROOT

PAGE = ROOT / "docs" / "studies" / "README.md"


def test_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert [kind for kind, _ in blocks] == ["yaml", "python", "text", "python", "text"]
    (_, study), (_, run), (_, table), (_, report), (_, verdicts) = blocks
    (tmp_path / "my_study.py").write_text(run + report)
    command = [sys.executable, "-m", "reshape", "study", "my_study.yaml", "--out", "out"]
    for text, expected in ((study, table), (f"{study}report: my_study:report\n", verdicts)):
        (tmp_path / "my_study.yaml").write_text(text)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == expected
    assert {"waits.png", "waits.svg", "report.json"} <= {
        f.name for f in (tmp_path / "out").iterdir()
    }
