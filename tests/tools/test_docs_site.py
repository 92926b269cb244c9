"""The parts of the documentation site that are functions: links, C++ comments, the glossary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

import cpp_comments  # noqa: E402 (the path comes first)
import cpp_reference  # noqa: E402
import docs_site  # noqa: E402
from devtool import cli, site  # noqa: E402


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


def test_only_linked_sources_become_pages() -> None:
    pages = {
        "docs/a/b.md": "[x](../../src/core/comm/comm.cpp) [y](c.md)",
        "HACKING.md": "[z](cmake)",
    }
    assert docs_site.linked_sources(pages) == {"src/core/comm/comm.cpp", "cmake"}


def test_a_fence_inside_of_a_source_does_not_end_its_page() -> None:
    page = docs_site.source_page("tests/docs/markdown.py")
    assert page.endswith("`````\n")
    assert "```[^`]*" in page or "```" in page


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


def test_text_of_a_comment_has_no_markup_but_code() -> None:
    assert cpp_reference.markdown("a `b*c` d*e <f>") == r"a `b*c` d\*e &lt;f&gt;"
    assert cpp_reference.markdown("Threads: any.") == "**Threads:** any."


def test_fields_keep_their_comments() -> None:
    field = cpp_reference.Member("variable", "a_b", "int a_b = 1;", r"of `x` and a\_b &lt;c&gt;", 3)
    assert list(cpp_reference.entries([field], 3)) == [
        "```cpp\n// of `x` and a_b <c>\nint a_b = 1;\n```"
    ]


def test_a_long_function_has_a_line_for_each_parameter() -> None:
    parameters = "".join(
        f"<param><type>const std::string &amp;</type><declname>name_{i}</declname></param>"
        for i in range(4)
    )
    arguments = ", ".join(f"const std::string &amp;name_{i}" for i in range(4))
    node = ElementTree.fromstring(
        f'<memberdef kind="function" virt="virtual"><type>void</type><name>call</name>'
        f"<argsstring>({arguments}) const</argsstring>{parameters}</memberdef>"
    )
    assert cpp_reference.function_code(node) == (
        "virtual void call(\n    const std::string& name_0,\n    const std::string& name_1,\n"
        "    const std::string& name_2,\n    const std::string& name_3) const;"
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib comes with Python 3.11")
def test_the_glossary_page_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "glossary.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_build_is_strict_and_the_server_is_local() -> None:
    assert "--strict" in site.build_command(site.SITE)
    assert site.serve_command(8001)[-1] == "127.0.0.1:8001"


def test_other_packages_make_another_environment(tmp_path: Path) -> None:
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("mkdocs==1\n")
    first = site.fingerprint(Path("python3"), wanted)
    wanted.write_text("mkdocs==2\n")
    assert site.fingerprint(Path("python3"), wanted) != first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["docs", "--port", "8000"], "--port is of --serve"),
        (["docs", "--serve", "--port", "0"], "is no port"),
        (["docs", "--serve", "--port", "70000"], "is no port"),
        (["docs", "extra"], "takes no further arguments"),
    ],
)
def test_wrong_arguments_are_refused(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["./dev", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
