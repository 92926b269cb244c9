"""The parts of the documentation site that are functions: links and C++ comments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import cpp_comments  # noqa: E402 (the path comes first)
import docs_site  # noqa: E402


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("docs/start/install.md", "start/install.md"),
        ("HACKING.md", "internals/hacking.md"),
        ("include/torchcomms", "api/cpp/index.md"),
        ("include/torchcomms/hooks/clog.hpp", "api/cpp/hooks_clog.md"),
        ("src/core/comm/comm.cpp", "source/src/core/comm/comm.cpp.md"),
        ("src/schedule", "source/src/schedule.md"),
        ("src/no_such_file.cpp", None),
    ],
)
def test_a_file_of_the_checkout_has_a_place_on_the_site(path: str, place: str | None) -> None:
    assert docs_site.site_path(path) == place


def test_links_that_leave_the_pages_lead_to_pages() -> None:
    text = (
        "[a](../../src/core/comm/comm.cpp) [b](../../HACKING.md#rules) [c](glossary.md#a)\n"
        "[d](https://pytorch.org/x.md) [e](#here)\n"
        "```text\n[f](../../src/core/comm/comm.cpp)\n```\n"
    )
    page = "internals/architecture.md"
    assert docs_site.with_site_links(f"docs/{page}", page, text) == (
        "[a](../source/src/core/comm/comm.cpp.md) [b](hacking.md#rules) [c](glossary.md#a)\n"
        "[d](https://pytorch.org/x.md) [e](#here)\n"
        "```text\n[f](../../src/core/comm/comm.cpp)\n```\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("// Sends.\nint send();\n", "/// Sends.\nint send();\n"),
        ("int a;  // first\n        // still a\n", "int a;  ///< first\n        ///< still a\n"),
        ("// Of the file.\n\nint a;\n", "/// @file\n/// Of the file.\n\nint a;\n"),
        ("// A.\n// Threads: any.\nint a;\n", "/// A.\n///\n/// Threads: any.\nint a;\n"),
        ("// T<a> @b\nint a;\n", "/// T\\<a\\> \\@b\nint a;\n"),
        ("int f();  // NOLINT(a)\n", "int f();  // NOLINT(a)\n"),
        ("}  // namespace a\n", "}  // namespace a\n"),
        ('auto url = "http://host"; \n', 'auto url = "http://host"; \n'),
    ],
)
def test_comments_become_documentation(before: str, after: str) -> None:
    assert cpp_comments.in_doxygen_form(before) == after
