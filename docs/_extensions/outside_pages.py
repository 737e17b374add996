"""Pages whose text is a file outside docs/, such as CONTRIBUTING.md, and links between pages.

Such a page is a file of one line in docs/project, which links the text. The site shows the text
in its place, and links to the text anywhere in the pages lead to the page.
"""

from __future__ import annotations

import re
from os.path import relpath
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
#: Target of a Markdown link to a file, with its anchor.
LINK = re.compile(r"\]\((?!\w+:)([\w./-]+)(#[\w-]*)?\)")
#: Link whose text is the name of a page's file; the site shows the title of the page.
FILE_NAME = re.compile(r"\[(?:\.\./)*[\w/-]+\.md\]\((?=[\w./-]+\.md)")
STUB = re.compile(r"\AThe text of this page is \[[^]]+\]\(([\w./-]+)\)\.\n\Z")


def texts() -> dict[Path, Path]:
    """Each file outside docs/ that is a page, and the page in docs/project."""
    found = {}
    for page in sorted((DOCS / "project").glob("*.md")):
        stub = STUB.match(page.read_text())
        if stub is None:
            raise ValueError(f"{page} must be one line that links the text of the page")
        found[(page.parent / stub[1]).resolve()] = page
    return found


def moved(text: str, folder: Path, page: Path) -> str:
    """Text with its links as they are written in another file.

    Parameters
    ----------
    text : Markdown.
    folder : folder of the file with the text.
    page : page that shows it.
    """
    pages = texts()

    def link(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        return f"]({relpath(pages.get(target, target), page.parent)}{found[2] or ''})"

    return LINK.sub(link, text)


def on_source_read(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the text in the place of the link to it, and let links lead to pages."""
    page = Path(app.env.doc2path(name))
    text = page
    if page.parent == DOCS / "project":
        text = {page: text for text, page in texts().items()}[page]
        app.env.note_dependency(str(text))
        source[0] = text.read_text()
    source[0] = FILE_NAME.sub("[](", moved(source[0], text.parent, page))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("source-read", on_source_read)
    return {"parallel_read_safe": True}
