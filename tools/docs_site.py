"""MkDocs hook: adds the pages that are made from sources, and mends links that leave docs/.

* `api/cpp/<header>.md`: the C++ reference, by tools/cpp_reference.py.
* `internals/hacking.md`: HACKING.md of the checkout.
* `source/<path>.md`: every file of the checkout that a page links to.

On a code host the links of the pages lead to the files themselves.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cpp_reference

ROOT = Path(__file__).resolve().parents[1]
HEADERS = "include/torchcomms/"
# Pages of the checkout outside of docs/, and folders, and where the site has them.
PLACES = {
    "HACKING.md": "internals/hacking.md",
    "README.md": "README.md",
    "include/torchcomms": "api/cpp/index.md",
}
LANGUAGES = {
    ".cmake": "cmake", ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".hpp": "cpp", ".py": "python",
    ".toml": "toml",
}  # fmt: skip

_FENCE = re.compile(r"^ *```")
# The words behind a language are of the tests of the documentation: `python notest`.
_WORDS = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s]+)(?P<after>\))")


def site_path(path: str) -> str | None:
    """Where the site has a file or folder of the checkout; None: it is not on the site.

    >>> site_path("docs/start/install.md"), site_path("src/core/comm/comm.cpp")
    ('start/install.md', 'source/src/core/comm/comm.cpp.md')
    """
    if path in PLACES:
        return PLACES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith(HEADERS) and path.endswith(".hpp"):
        return cpp_reference.page_of(path.removeprefix(HEADERS))
    if not (ROOT / path).exists():
        return None
    return f"source/{path}.md"


def repository_path(page: str, target: str) -> str:
    """The file of the checkout that a link of a page leads to; both paths are of the checkout."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def map_links(text: str, change: Callable[[str], str]) -> str:
    """`text` with the target of each relative link changed; fenced blocks stay as they are."""

    def changed(match: re.Match[str]) -> str:
        target = match["target"]
        is_relative = "://" not in target and not target.startswith(("#", "mailto:"))
        return match["before"] + (change(target) if is_relative else target) + match["after"]

    out, fenced = [], False
    for line in text.splitlines(keepends=True):
        is_fence = _FENCE.match(line) is not None
        fenced ^= is_fence
        out.append(line if fenced or is_fence else _LINK.sub(changed, line))
    return "".join(out)


def with_site_links(page: str, place: str, text: str) -> str:
    """The text of a page of the checkout as the site shows it at `place`."""

    def change(target: str) -> str:
        path, mark, fragment = target.partition("#")
        inside = site_path(repository_path(page, path))
        if inside is None:
            return target  # MkDocs reports it
        return posixpath.relpath(inside, posixpath.dirname(place) or ".") + mark + fragment

    return map_links(text, change)


def linked_sources(pages: dict[str, str]) -> set[str]:
    """Files and folders of the checkout, outside of docs/, that pages link to. By path: text."""
    found: set[str] = set()

    def note(page: str, target: str) -> str:
        found.add(repository_path(page, target.partition("#")[0]))
        return target

    for page, text in pages.items():
        map_links(text, lambda target, page=page: note(page, target))
    return {path for path in found if (site_path(path) or "").startswith("source/")}


def source_page(path: str) -> str:
    """A file as a page; of a folder the names of what is in it."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"
    place = ROOT / path
    if place.is_dir():
        names = sorted(entry.name for entry in place.iterdir() if not entry.name.startswith("_"))
        return head + "".join(f"- `{name}`\n" for name in names)
    language = LANGUAGES.get(PurePosixPath(path).suffix, "text")
    return f"{head}`````{language}\n{place.read_text()}`````\n"


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 (MkDocs' types are in its environment)
    """Adds the generated pages. Called by MkDocs once for each build."""
    from mkdocs.structure.files import File

    hacking = (ROOT / "HACKING.md").read_text()
    place = PLACES["HACKING.md"]
    pages = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    made = {place: with_site_links("HACKING.md", place, hacking)}
    made.update(cpp_reference.pages(ROOT / HEADERS, ROOT / "build" / "docs"))
    for path in sorted(linked_sources({**pages, "HACKING.md": hacking})):
        made[f"source/{path}.md"] = source_page(path)
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ANN401
    """Leads links that leave docs/ to the site's page of that file. Called by MkDocs by page."""
    del config, files
    uri = page.file.src_uri
    markdown = _WORDS.sub(r"\1", markdown)
    if not os.path.exists(ROOT / "docs" / uri):
        return markdown
    return with_site_links(f"docs/{uri}", uri, markdown)
