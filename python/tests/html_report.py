"""Writes a report, reads it as a browser does, and checks what holds for every one."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from laxity import report

if TYPE_CHECKING:
    from pathlib import Path

VOID = {"meta", "img", "link", "br", "hr", "input", "source"}
PAGE_BYTES_MAX = 3_000_000


class Document(HTMLParser):
    """Takes note of elements, of text, and of everything that points somewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.text += data

    def count(self, tag: str) -> int:
        return sum(1 for element, _ in self.elements if element == tag)


def read(directory: Path, window: tuple[int, int] | None = None) -> Document:
    """Writes a report, and checks what holds for every one."""
    path = report.write(directory, window=window)
    assert path == directory / "report.html"
    text = path.read_text("utf-8")
    document = Document(text)
    tags = {tag for tag, _ in document.elements}
    assert not tags & {"link", "iframe", "object", "embed", "base"}
    for tag, attributes in document.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            address = attributes.get(name)
            is_here = address is None or address.startswith(("data:image/svg+xml;base64,", "#"))
            assert is_here, (tag, address)
        assert not any(name.startswith("on") for name in attributes)
        if tag == "a":
            assert (attributes["href"] or "").removeprefix("#") in {
                attributes.get("id") for _, attributes in document.elements
            }
        if tag == "img":
            assert attributes["alt"]
    outside_images = re.sub(r'src(set)?="data:[^"]*"', "", text)
    assert not re.search(r"@import|url\(|https?://", outside_images)
    assert [document.count(tag) for tag in ("h1", "main", "header", "title")] == [1, 1, 1, 1]
    images = [attributes["src"] for tag, attributes in document.elements if tag == "img"]
    drawings = sorted(path.read_bytes() for path in (directory / "figures").glob("*.svg"))
    assert sorted(base64.b64decode((image or "").partition(",")[2]) for image in images) == drawings
    assert not any(re.search(rb'(href|src)="(?!#)', drawing) for drawing in drawings)
    assert len(list((directory / "figures").glob("*.png"))) == len(drawings)
    narrow = [attributes["srcset"] for tag, attributes in document.elements if tag == "source"]
    assert len(narrow) == len(drawings)
    for wide in drawings:
        follows_light_and_dark(wide)
    for address in narrow:
        drawing = base64.b64decode((address or "").partition(",")[2])
        follows_light_and_dark(drawing)
        width = re.search(rb'<svg [^>]*width="([0-9.]+)pt"', drawing)
        assert width
        assert float(width[1]) <= 260, "text keeps its size on a phone of 390 pixels"
    assert len(text) < PAGE_BYTES_MAX
    return document


def follows_light_and_dark(drawing: bytes) -> None:
    """Each colour of a drawing has another one in the dark, or says that it stays as it is."""
    text = drawing.decode("utf-8")
    sheet, _, body = text.partition("</style>")
    assert "@media screen and (prefers-color-scheme:dark)" in sheet
    for what, colour in set(re.findall(r"(fill|stroke): (#[0-9a-f]{6})", body)):
        assert f'[style*="{what}: {colour}"]{{{what}:' in sheet
    assert 'fill: #ffffff"]{fill:#1c1f23 !important}' in sheet, "the ground is no fixed white"
    assert "fill: #222222" in body
    assert 'fill: #222222"]{fill:#e6e8ea !important}' in sheet
