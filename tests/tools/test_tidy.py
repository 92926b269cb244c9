"""tools/tidy.py finds what the house forbids, and nothing in what it allows."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))  # which a script finds beside itself


def load_tidy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tidy", ROOT / "tools" / "tidy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tidy"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


TIDY = load_tidy()
NAMES = TIDY.names
TABLE = TIDY.tomllib.loads((ROOT / "tools" / "house.toml").read_text())
HOUSE = TIDY.House(TABLE)


def findings(path: str, text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    found = []
    if Path(path).suffix in TIDY.CPP:
        found += TIDY.check_includes(HOUSE, path, lines)
        found += TIDY.check_header(path, text)
    found += TIDY.check_python(HOUSE, path, lines)
    found += TIDY.check_rules(HOUSE, path, lines)
    return [finding.text for finding in found]


FORBIDDEN = {
    "upward include": ("src/base/x.cpp", '#include "core/comm.hpp"', "no arrow base -> core"),
    "sibling include": (
        "src/tracing/x.cpp",
        '#include "bootstrap/key_value_store.hpp"',
        "no arrow",
    ),
    "core names a backend": ("src/core/x.cpp", '#include "backends/gloo/x.hpp"', "no arrow"),
    "one backend in another": (
        "src/backends/gloo/x.cpp", '#include "backends/fake/x.hpp"', "no arrow"
    ),
    "climbing include": ("src/core/x.cpp", '#include "../base/env.hpp"', "do not climb"),
    "torch in a torch-free room": ("src/bootstrap/x.cpp", "#include <c10/core/Device.h>", "torch"),
    "torch through a public header": (
        "src/tracing/x.cpp", "#include <torchcomms/comm.hpp>", "torchcomms/base/"
    ),
    "Python outside bindings": ("src/core/x.cpp", "#include <Python.h>", "only bindings"),
    "pybind11 in a backend": (
        "src/backends/gloo/x.cpp", "#include <torch/csrc/utils/pybind.h>", "only bindings"
    ),
    "private include in a public header": (
        "include/torchcomms/x.hpp", '#pragma once\n#include "core/x.hpp"', "public headers only"
    ),
    "unknown room": ("src/attic/x.cpp", "int x;", "no room"),
    "no pragma once": ("src/base/x.hpp", "int x;", "#pragma once"),
    "getenv": ("src/core/x.cpp", 'auto v = std::getenv("HOME");', "environment"),
    "dlclose": ("src/core/x.cpp", "::dlclose(handle);", "never closed"),
    "thread of its own": ("src/core/x.cpp", "std::thread(body).detach();", "on the executor"),
    "thread as a member": ("src/core/x.cpp", "std::jthread thread_;", "on the executor"),
    "thread of the library": ("src/core/x.cpp", "auto f = std::async(body);", "on the executor"),
    "thread of the system": ("src/core/x.cpp", "pthread_create(&t, 0, f, 0);", "on the executor"),
    "thread in a public header": (
        "include/torchcomms/x.hpp", "#pragma once\nstd::thread thread_;", "on the executor"
    ),
    "swallowed error": ("src/core/x.cpp", "try { f(); } catch (...) {}", "swallowed"),
    "empty name": ("src/core/x.cpp", "class StoreManager {};", "what the thing knows"),
    "sleeping test": ("tests/python/test_x.py", "time." + "sleep(1)", "waits for an event"),
    "machine path": ("docs/x.md", "see /" + "home/me/x", "stands alone"),
    "native module in the command line": (
        "python/torchcomms_cli/x.py", "from torchcomms import _comms", "public package"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
def test_finds_what_is_forbidden(name: str) -> None:
    path, text, why = FORBIDDEN[name]
    found = findings(path, text)
    assert any(why in finding for finding in found), found


ALLOWED = {
    "own room": ("src/core/x.cpp", '#include "core/observe/operation_record.hpp"'),
    "arrow": (
        "src/core/x.cpp",
        '#include "bootstrap/key_value_store.hpp"\n#include "base/os/env.hpp"',
    ),
    "torch in core": ("src/core/x.cpp", "#include <ATen/core/Tensor.h>"),
    "pybind11 in bindings": ("src/bindings/x.cpp", "#include <torch/csrc/utils/pybind.h>"),
    "getenv in its one place": ("src/base/os/env.cpp", 'return ::getenv("X");'),
    "thread in the executor": ("src/base/concurrency/executor.cpp", "std::thread(f).detach();"),
    "number of a thread": ("src/core/x.cpp", "std::thread::id caller;"),
    "base header anywhere": ("src/bootstrap/x.cpp", "#include <torchcomms/base/error.hpp>"),
    "test of a room": ("tests/cpp/core/x.cpp", '#include "core/observe/operation_record.hpp"'),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_accepts_what_is_allowed(name: str) -> None:
    assert findings(*ALLOWED[name]) == []


def test_a_build_arrow_beyond_the_house_is_found() -> None:
    found = list(TIDY.check_room(HOUSE, "bootstrap", ["DEPENDS", "core", "TORCH"], "x", 1))
    assert [finding.text for finding in found] == [
        "there is no arrow bootstrap -> core",
        "bootstrap may not see torch",
    ]


HOMONYMS = {
    "two rooms": ("struct Entry {};", "class TC_API Entry final : public Base {};"),
    "in a class": ("class Table { struct Entry { int x; }; };", "namespace { struct Entry {}; }"),
    "out of its class": ("struct Table::Entry {};", "enum class Entry : int { kOne };"),
}


@pytest.mark.parametrize("name", HOMONYMS)
def test_a_homonym_is_found_in_both_files(name: str) -> None:
    files = zip(("src/base/a.hpp", "src/core/b.cpp"), HOMONYMS[name], strict=True)
    found = [text for _, _, text in NAMES.homonyms(files, ["State"])]
    assert found == [
        "type Entry is also defined in src/core/b.cpp",
        "type Entry is also defined in src/base/a.hpp",
    ]


def test_declarations_and_names_that_may_repeat_are_no_homonyms() -> None:
    files = [
        ("src/base/a.hpp", "class Entry; struct Table { struct State {}; };"),
        ("src/core/b.cpp", 'struct Entry {};  // struct Table {}\nauto text = "struct Table {";'),
        ("src/core/c.cpp", "struct Job { struct State {}; }; Entry make() { return {}; }"),
    ]
    assert not list(NAMES.homonyms(files, ["State"]))


def test_a_41st_file_in_a_folder_is_found() -> None:
    files = [f"src/core/f{number}.cpp" for number in range(41)]
    assert list(NAMES.full_folders(files, 40)) == [
        ("src/core", 1, "41 C++ files in one folder; at most 40: group them")
    ]
    assert not list(NAMES.full_folders([*files[:40], "src/core/work/f.cpp"], 40))


BANNED = {
    "class GuestList {": "guest",
    "  struct Meeting final {": "meeting",
    "using OtherWishes = std::vector<int>;": "wishes",
    "  void tell_others(int rank) const;": "others",
    "bool is_told() noexcept {": "told",
    "def settle_all(ranks):": "settle",
}


@pytest.mark.parametrize("line", BANNED)
def test_a_banned_word_in_a_new_name_is_found(line: str) -> None:
    (found,) = NAMES.banned_names([("src/core/a.hpp", 3, line)], TABLE["banned"])
    assert f"{BANNED[line]!r} is no term" in found[2]


@pytest.mark.parametrize(
    "line", ["  return settle(all);", "// the guest", "class Laneway {", 'auto x = "meeting";']
)
def test_words_are_banned_in_declared_names_alone(line: str) -> None:
    assert not list(NAMES.banned_names([("src/core/a.hpp", 3, line)], TABLE["banned"]))


def test_riddles_are_found_in_comments() -> None:
    pattern = TIDY.re.compile(TABLE["prose"]["pattern"])
    lines = [("a.hpp", 1, "// The same of one that is late."), ("a.hpp", 2, "// Returns: true.")]
    assert [number for _, number, _ in NAMES.riddles(lines, pattern)] == [1]


def test_the_tree_is_clean() -> None:
    command = [sys.executable, ROOT / "tools" / "tidy.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
