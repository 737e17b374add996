"""Configuration of the documentation site: `make docs` writes it to docs/_build/html."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

os.environ["RESHAPE_COMPILED"] = "0"  # compiled modules have neither docstrings nor signatures
sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

# The signature of a structure evaluates annotations, also of names imported for type checking only.
from simulator.experiment import run
from simulator.experiment.watches import QuotedStart
from simulator.many_centres.schedule import CentresSchedule
from simulator.pools import PoolRun

for hidden in (CentresSchedule, PoolRun, QuotedStart):
    setattr(run, hidden.__name__, hidden)

project = "ReSHAPE for Python"
author = "The ReSHAPE for Python authors"
release = version = installed_version("reshape-mpi")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "command_tree",
    "docstrings",
    "outside_pages",
    "structures",
]
exclude_patterns = ["_build"]
nitpicky = False  # types of private modules appear in signatures and have no page

# Pages
smartquotes = False  # two hyphens begin an option
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

# Docstrings
default_role = "name"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "inherited-members": False}

# HTML: without requests to other hosts
html_theme = "furo"
html_title = f"ReSHAPE for Python {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
