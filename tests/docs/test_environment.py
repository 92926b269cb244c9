"""docs/reference/environment.md is the registry in prose: same names, types, defaults, order."""

from __future__ import annotations

from tests.docs.markdown import ROOT, code_spans, rows

PAGE = ROOT / "docs" / "reference" / "environment.md"


def _documented() -> list[tuple[str, str, str]]:
    out = []
    for row in rows(PAGE):
        if list(row.cells)[:3] == ["variable", "type", "default"]:
            name = code_spans(row.cells["variable"])[0]
            default = "".join(code_spans(row.cells["default"]))
            out.append((name, row.cells["type"], default))
    return out


def test_the_page_lists_exactly_the_registry() -> None:
    from torchcomms import _comms

    registry = [(v["name"], v["type"], str(v["default"])) for v in _comms._environment()]
    assert sorted(_documented()) == sorted(registry)


def test_no_variable_is_documented_twice() -> None:
    names = [name for name, _, _ in _documented()]
    assert len(names) == len(set(names))


def test_every_registry_entry_says_what_it_does() -> None:
    from torchcomms import _comms

    assert all(v["doc"].endswith(".") and len(v["doc"]) > 15 for v in _comms._environment())
