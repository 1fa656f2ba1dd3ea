"""What `make docs` adds to the pages of docs/: files that they link to, and the command line.

A link from a page to a file of the repository outside docs/ works on a code host. In the site
such a file becomes a page of its own under `source/`, so that the site is complete without the
repository. MkDocs calls the functions `on_…`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

import command_line
from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"
SOURCE = "source"
COMMAND_LINE = "reference/command-line.md"

LINK = re.compile(r"(?<=\]\()(?!#|[a-z]+:)([^)#\s]+)(#[^)\s]*)?(?=\))")
"""The address of a relative link of Markdown, and its anchor."""

LANGUAGES = {".toml": "toml", ".h": "c", ".c": "c", ".rs": "rust", ".service": "ini"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the page of the command line, and a page for each file that a page links to."""
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    pages[COMMAND_LINE] = command_line.page()
    files.append(File.generated(config, COMMAND_LINE, content=pages[COMMAND_LINE]))
    wanted = [path for uri, text in pages.items() for path in _outside(uri, text)]
    added = set()
    while wanted:
        path = wanted.pop()
        if path in added:
            continue
        added.add(path)
        uri, text = _page_uri(path), _page_of(path)
        wanted += _outside(uri, text)
        files.append(File.generated(config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page, in which links to files of the repository lead to their pages."""
    del config, files
    uri = page.file.src_uri

    def to_page(link: re.Match[str]) -> str:
        path = _target(uri, link[1])
        if _in_docs(path):
            inside = posixpath.relpath(path, DOCS)
            to = inside if uri.startswith(SOURCE) else None
        else:
            to = _page_uri(path)
        if to is None:
            return link[0]
        return posixpath.relpath(to, posixpath.dirname(uri)) + (link[2] or "")

    return LINK.sub(to_page, markdown)


def _outside(uri: str, text: str) -> list[str]:
    """The paths in the repository, outside docs/, that a page links to."""
    paths = [_target(uri, link[1]) for link in LINK.finditer(text)]
    return [path for path in paths if not _in_docs(path) and (ROOT / path).exists()]


def _target(uri: str, address: str) -> str:
    """The path in the repository that an address on a page means."""
    if uri.startswith(f"{SOURCE}/"):
        # A page of the repository's own: addresses begin at the file.
        directory = posixpath.dirname(uri.removeprefix(f"{SOURCE}/"))
    else:
        directory = posixpath.join(DOCS, posixpath.dirname(uri))
    return posixpath.normpath(posixpath.join(directory, address))


def _in_docs(path: str) -> bool:
    return path.startswith(f"{DOCS}/")


def _page_uri(path: str) -> str:
    """Where in the site the page of a file of the repository is."""
    return f"{SOURCE}/{path}" if path.endswith(".md") else f"{SOURCE}/{path}.md"


def _page_of(path: str) -> str:
    """The page of a file of the repository: Markdown as it is, all else as code."""
    file = ROOT / path
    if file.is_dir():
        entries = sorted(entry.name for entry in file.iterdir())
        return f"# {path}/\n\n" + "".join(f"- `{name}`\n" for name in entries)
    text = file.read_text()
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text.rstrip()}\n````\n"
