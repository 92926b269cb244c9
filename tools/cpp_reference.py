#!/usr/bin/env python3
"""Makes the C++ reference: a Markdown page for each public header, out of Doxygen's XML.

    tools/cpp_reference.py FOLDER    write the pages of include/torchcomms into FOLDER

The headers have plain `//` comments. A copy of each header, with those comments in Doxygen's form,
is what Doxygen reads.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cpp_comments
from cpp_comments import LABEL, in_doxygen_form

ROOT = Path(__file__).resolve().parents[1]
DOXYFILE = """
INPUT = {headers}
RECURSIVE = YES
FILE_PATTERNS = *.hpp
STRIP_FROM_PATH = {headers}
OUTPUT_DIRECTORY = {output}
GENERATE_XML = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
SORT_MEMBER_DOCS = NO
MARKDOWN_SUPPORT = NO
AUTOLINK_SUPPORT = NO
QUIET = YES
WARNINGS = NO
ENABLE_PREPROCESSING = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = TC_API= TC_DEVICE=inline TC_ANYWHERE=constexpr TC_SYMBOL= __CUDACC__=1
"""
KINDS = {"define": "Macros", "enum": "Enumerations", "typedef": "Types", "variable": "Variables",
         "function": "Functions"}  # fmt: skip


def page_of(header: str) -> str:
    """The page of a header, by its path below include/torchcomms."""
    return f"api/cpp/{header.removesuffix('.hpp').replace('/', '_')}.md"


# --- Markdown out of Doxygen's XML


def text_of(node: ElementTree.Element | None) -> str:
    """The plain text of a node."""
    return "" if node is None else " ".join("".join(node.itertext()).split())


def prose(node: ElementTree.Element | None) -> str:
    """The paragraphs and lists of a description, as Markdown."""
    return "" if node is None else "\n\n".join(blocks(node))


def blocks(node: ElementTree.Element) -> Iterator[str]:
    for child in node:
        if child.tag == "para":
            yield from paragraph(child)
        else:
            yield from blocks(child)


def paragraph(node: ElementTree.Element) -> Iterator[str]:
    """A paragraph, and the lists that Doxygen puts into it."""
    text = node.text or ""
    for child in node:
        if child.tag in ("itemizedlist", "orderedlist"):
            if text.strip():
                yield markdown(text)
            items = [" ".join(blocks(item)) for item in child]
            yield "\n".join(f"- {item}" for item in items)
            text = child.tail or ""
        else:
            text += "".join(child.itertext()) + (child.tail or "")
    if text.strip():
        yield markdown(text)


def markdown(text: str) -> str:
    """Text of a comment with its code spans, and nothing else that Markdown would act on."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        parts = ["'".join(parts)]
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(r"([*_\[\]])", r"\\\1", html.escape(parts[index], quote=False))
    line = "`".join(parts)
    return LABEL.sub(lambda match: f"**{match[0].strip()}** ", line)


@dataclass(frozen=True)
class Member:
    """A declaration on a page: a function, a type, a value."""

    kind: str
    name: str
    declaration: str
    description: str
    line: int


def described(node: ElementTree.Element) -> str:
    parts = (prose(node.find("briefdescription")), prose(node.find("detaileddescription")))
    return "\n\n".join(part for part in parts if part)


def location(node: ElementTree.Element) -> int:
    found = node.find("location")
    return 0 if found is None else int(found.get("line", "0"))


def template_of(node: ElementTree.Element) -> str:
    """`template <class T>`, or nothing."""
    params = node.find("templateparamlist")
    if params is None:
        return ""
    words = []
    for param in params:
        word = " ".join(
            filter(None, (text_of(param.find("type")), text_of(param.find("declname"))))
        )
        default = text_of(param.find("defval"))
        words.append(f"{word} = {default}" if default else word)
    return f"template <{', '.join(words)}>\n"


def tidy_code(code: str) -> str:
    """C++ as the headers write it: `const T&`, `vector<int>`."""
    code = re.sub(r"\s+([&*]+)(?=\w)", r"\1 ", code)
    code = re.sub(r"\s+([&*]+)", r"\1", code)
    code = re.sub(r"\)(\s*[a-z ]*?)\s*=\s*(0|default|delete)$", r")\1 = \2", code)
    code = re.sub(r"<\s+", "<", code)
    return re.sub(r"\s+>", ">", code)


def function_code(node: ElementTree.Element) -> str:
    words = [word for word in ("static", "explicit") if node.get(word) == "yes"]
    words += ["virtual"] if node.get("virt") in ("virtual", "pure-virtual") else []
    words += ["constexpr"] if node.get("constexpr") == "yes" else []
    kind = tidy_code(text_of(node.find("type")))
    kind = " ".join(word for word in kind.split() if word not in words)
    head = " ".join([*words, kind]).strip()
    code = f"{head} {text_of(node.find('name'))}".strip()
    arguments = tidy_code(text_of(node.find("argsstring")))
    one_line = f"{code}{arguments};"
    if len(one_line) > 90 and "(" in arguments:
        names = [tidy_code(parameter(param)) for param in node.findall("param")]
        tail = arguments[arguments.rindex(")") :]
        one_line = f"{code}(\n    " + ",\n    ".join(names) + f"{tail};"
    return template_of(node) + one_line


def parameter(node: ElementTree.Element) -> str:
    words = [text_of(node.find("type")), text_of(node.find("declname"))]
    array, default = text_of(node.find("array")), text_of(node.find("defval"))
    text = " ".join(filter(None, words)) + array
    return f"{text} = {default}" if default else text


def enum_code(node: ElementTree.Element) -> str:
    rows = []
    for value in node.findall("enumvalue"):
        note = text_of(value.find("briefdescription")) or text_of(value.find("detaileddescription"))
        initial = text_of(value.find("initializer"))
        row = f"  {text_of(value.find('name'))}{' ' + initial if initial else ''},"
        rows.append(f"{row}  // {note}" if note else row)
    strong = "enum class" if node.get("strong") == "yes" else "enum"
    base = text_of(node.find("type"))
    head = " ".join(filter(None, (strong, text_of(node.find("name")), f": {base}" if base else "")))
    return "\n".join([f"{head} {{", *rows, "};"])


def member(node: ElementTree.Element) -> Member:
    kind, name = node.get("kind", ""), text_of(node.find("name"))
    if kind == "function":
        code = function_code(node)
    elif kind == "enum":
        code = enum_code(node)
    elif kind == "define":
        names = [text_of(param) for param in node.findall("param")]
        code = f"#define {name}" + (f"({', '.join(names)})" if names else "")
    else:
        definition = tidy_code(text_of(node.find("type")))
        if kind == "typedef":
            code = f"using {name} = {definition};"
        else:
            initial = text_of(node.find("initializer"))
            initial = f" {initial}" if initial.startswith("=") else initial
            static = "static " if node.get("static") == "yes" else ""
            array = text_of(node.find("argsstring"))
            code = f"{static}{definition} {name}{array}{initial};".replace("(* ", "(*")
    return Member(kind, name, code, described(node), location(node))


def public_members(compound: ElementTree.Element) -> list[Member]:
    """Members that a user or a subclass may name, in the order of the header."""
    nodes = [
        node
        for node in compound.iter("memberdef")
        if node.get("prot") in ("public", "protected") and node.get("kind") in KINDS
    ]
    return sorted((member(node) for node in nodes), key=lambda found: found.line)


def is_shown(found: Member) -> bool:
    """Copies, moves and destructors without a comment say nothing that a reader looks for."""
    is_special = found.name.startswith(("~", "operator=")) or found.declaration.endswith(
        ("= delete;", "= default;")
    )
    return bool(found.name) and not (is_special and not found.description)


def entries(members: list[Member], level: int) -> Iterator[str]:
    """Members with their declarations. Overloads share a heading, fields in a row a block."""
    for kind, group in groupby(members, key=lambda found: found.kind):
        if kind == "variable":
            yield fields(list(group))
            continue
        yield from named(list(group), level)


def fields(members: list[Member]) -> str:
    """Variables as the header has them, with their comments."""
    out = []
    for found in members:
        plain = re.sub(r"\\([*_\[\]])", r"\1", html.unescape(found.description))
        out += textwrap.wrap(plain, 96, initial_indent="// ", subsequent_indent="// ")
        out.append(found.declaration)
    return "```cpp\n" + "\n".join(out) + "\n```"


def named(members: list[Member], level: int) -> Iterator[str]:
    seen: str | None = None
    for found in members:
        if found.name != seen:
            call = "()" if found.kind == "function" else ""
            yield f"{'#' * level} `{found.name}{call}`"
        seen = found.name
        yield f"```cpp\n{found.declaration}\n```"
        if found.description:
            yield found.description


def class_section(compound: ElementTree.Element) -> Iterator[str]:
    """A class or struct: what it is, its bases, its members."""
    kind = compound.get("kind", "class")
    name = text_of(compound.find("compoundname"))
    bases = ", ".join(text_of(base) for base in compound.findall("basecompoundref"))
    yield f"## {kind} `{name.rpartition('::')[2] if '<' not in name else name}`"
    head = template_of(compound) + f"{kind} {name}"
    yield f"```cpp\n{head}{' : ' + bases if bases else ''}\n```"
    if text := described(compound):
        yield text
    yield from entries([m for m in public_members(compound) if is_shown(m)], 3)


def header_page(header: str, xml: Path, compounds: dict[str, ElementTree.Element]) -> str:
    """The page of one header, whose compound is in the file `xml`."""
    compound = compounds[xml.stem]
    out = [f"# `{header}`", f"```cpp\n#include <torchcomms/{header}>\n```"]
    if text := described(compound):
        out.append(text)
    classes = [compounds[node.get("refid", "")] for node in compound.findall("innerclass")]
    for found in sorted((c for c in classes if is_public(c)), key=location):
        out += class_section(found)
    free = [m for m in free_members(header, compound, compounds) if is_shown(m)]
    for kind, title in KINDS.items():
        if members := [found for found in free if found.kind == kind]:
            out += [f"## {title}", *entries(members, 3)]
    return "\n\n".join(out) + "\n"


def free_members(
    header: str, file: ElementTree.Element, compounds: dict[str, ElementTree.Element]
) -> list[Member]:
    """What a header declares outside of classes. Doxygen keeps it with the namespaces."""
    found = public_members(file)
    for node in file.findall("innernamespace"):
        namespace = compounds[node.get("refid", "")]
        if "detail" in text_of(namespace.find("compoundname")).split("::"):
            continue
        found += [
            member(one)
            for one in namespace.iter("memberdef")
            if one.get("kind") in KINDS and file_of(one) == header
        ]
    unique = {(one.line, one.name): one for one in found}
    return sorted(unique.values(), key=lambda one: one.line)


def file_of(node: ElementTree.Element) -> str:
    """The header of a declaration, by its path below include/torchcomms."""
    found = node.find("location")
    return "" if found is None else found.get("file", "").rpartition("/headers/")[2]


def is_public(compound: ElementTree.Element) -> bool:
    name = text_of(compound.find("compoundname"))
    return compound.get("prot") == "public" and "detail" not in name.split("::")


# --- Running Doxygen


def doxygen(headers: Path, folder: Path) -> Path:
    """Doxygen's XML of the headers; `folder` is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    copies = folder / "headers"
    for header in sorted(headers.rglob("*.hpp")):
        copy = copies / header.relative_to(headers)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(in_doxygen_form(header.read_text()))
    settings = DOXYFILE.format(headers=copies, output=folder)
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True, cwd=folder)
    return folder / "xml"


def index_page(headers: list[str]) -> str:
    links = [f"- [`{name}`]({Path(page_of(name)).name})" for name in headers]
    return (
        "# C++ headers\n\nThe headers are in `torchcomms/include` of the installed package. "
        "Their namespace is `torch::comms`; device code is in `torchcomms::device`.\n\n"
        + "\n".join(links)
        + "\n"
    )


def from_xml(headers: list[str], xml: Path) -> dict[str, str]:
    """The pages of these headers, by their paths on the site."""
    index = ElementTree.parse(xml / "index.xml").getroot()
    compounds: dict[str, ElementTree.Element] = {}
    files: dict[str, Path] = {}
    for entry in index.findall("compound"):
        refid, kind = entry.get("refid", ""), entry.get("kind", "")
        if kind not in ("class", "struct", "file", "union", "namespace"):
            continue
        found = ElementTree.parse(xml / f"{refid}.xml").getroot().find("compounddef")
        assert found is not None
        compounds[refid] = found
        if kind == "file":
            files[file_of(found)] = xml / f"{refid}.xml"
    out = {"api/cpp/index.md": index_page(headers)}
    for header in headers:
        out[page_of(header)] = header_page(header, files[header], compounds)
    return out


def pages(headers: Path, cache: Path) -> dict[str, str]:
    """The pages of all headers below a folder; Doxygen runs only if one of them has changed."""
    digest = hashlib.sha256()
    for source in (Path(__file__), Path(cpp_comments.__file__)):
        digest.update(source.read_bytes())
    names = sorted(str(header.relative_to(headers)) for header in headers.rglob("*.hpp"))
    for name in names:
        digest.update(name.encode() + (headers / name).read_bytes())
    kept = cache / "cpp_reference.json"
    if kept.is_file():
        stored = json.loads(kept.read_text())
        if stored["digest"] == digest.hexdigest():
            return dict(stored["pages"])
    made = from_xml(names, doxygen(headers, cache / "doxygen"))
    kept.write_text(json.dumps({"digest": digest.hexdigest(), "pages": made}))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the pages go")
    folder = parser.parse_args().folder
    for name, text in pages(ROOT / "include" / "torchcomms", ROOT / "build" / "docs").items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
