"""Lists every copy of the communication libraries, in this process and on the search paths."""

from __future__ import annotations

import ctypes
import importlib.metadata
import mmap
import os
import re
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchcomms.doctor.report import Row, Section

# The name shown for each kind of library, and the file names that belong to it.
_KINDS = {
    "nccl": r"libnccl(-net\w*)?\.so",
    "rccl": r"librccl\.so",
    "gloo": r"libgloo(_cuda)?\.so",
    "oneccl": r"libccl\.so",
    "cuda driver": r"libcuda\.so",
    "cuda runtime": r"libcudart\.so",
    "hip runtime": r"libamdhip64\.so",
    "nvshmem": r"libnvshmem_host\.so",
    "verbs": r"lib(ibverbs|rdmacm|mlx5)\.so",
    "torch (with gloo inside)": r"libtorch_cpu\.so",
    "torchcomms": r"(libtorchcomms\.so|_comms(_\w+)?\.[\w.-]*so)",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
_SUFFIX = re.compile(r"\.so\.([\d.]+)$")
_CACHE_LINE = re.compile(r"=> (/\S+)")


def look() -> Section:
    """Examines the process as it is now; the caller imports the libraries that matter before."""
    section = Section("libraries", "Libraries")
    loaded = list(_loaded())
    for path in loaded:
        section.rows.append(_row(path, "loaded"))
    elsewhere = sorted(set(_on_disk()) - set(loaded))
    for path in elsewhere:
        section.rows.append(_row(path, "on disk"))
    section.rows.sort(key=lambda row: (list(_KINDS).index(str(row["library"])), row["state"]))
    _judge_copies(section)
    _judge_search_path(section)
    return section


def _row(path: Path, state: str) -> Row:
    return {
        "library": _kind(path),
        "state": state,
        "version": _version(path, state == "loaded"),
        "path": str(path),
    }


def _kind(path: Path) -> str | None:
    return next((kind for kind, p in _PATTERNS.items() if p.match(path.name)), None)


def _loaded() -> Iterator[Path]:
    seen = set()
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.partition("/")[1] + line.partition("/")[2])
        if path not in seen and _kind(path):
            seen.add(path)
            yield path.resolve()


def _on_disk() -> Iterator[Path]:
    packages = Path(sysconfig.get_path("purelib"))
    places = [*packages.glob("nvidia/*/lib"), packages / "torch" / "lib"]
    places += [Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place]
    for place in places:
        yield from _matching(place.glob("lib*.so*"))
    yield from _matching(_linker_cache())


def _matching(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if _kind(path) and path.exists():
            yield path.resolve()


def _linker_cache() -> Iterator[Path]:
    """The libraries that the dynamic linker finds by their name alone."""
    try:
        shown = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return  # another C library (musl), whose search path is not known here
    yield from (Path(match[1]) for match in _CACHE_LINE.finditer(shown.stdout))


def _version(path: Path, loaded: bool) -> str | None:
    if loaded and path.name.startswith("libnccl.so"):
        return _ask_nccl(path)
    match = re.search(r"/nvidia/(\w+)/lib/", str(path))
    if match and (owner := _owner(f"nvidia-{match[1].replace('_', '-')}")):
        return owner
    if path.name.startswith("libnccl.so"):
        return _written_inside(path)
    suffix = _SUFFIX.search(path.name)
    return suffix[1] if suffix else None


def _written_inside(path: Path) -> str | None:
    """The version from the banner inside the file: NCCL's file name has only the major version."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            match = re.search(rb"NCCL version (\d+\.\d+\.\d+)", data)
            return match[1].decode() if match else None
    except (OSError, ValueError):  # the file is not readable, or empty
        return None


def _ask_nccl(path: Path) -> str | None:
    """Asks the copy that is already in the process for its version; loads nothing."""
    number = ctypes.c_int()
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    if library.ncclGetVersion(ctypes.byref(number)) != 0:
        return None
    major, rest = divmod(number.value, 10000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _owner(stem: str) -> str | None:
    """The version of the installed distribution `stem` or `stem-cuNN`; of several, all versions."""
    found = [
        f"{name.removeprefix(stem).lstrip('-') or ''} {d.version}".strip()
        for d in importlib.metadata.distributions()
        if (name := (d.metadata["Name"] or "").lower()) == stem or name.startswith(f"{stem}-cu")
    ]
    return ", ".join(sorted(found)) or None


def _judge_copies(section: Section) -> None:
    for kind in ("nccl", "rccl", "oneccl", "cuda runtime", "verbs"):
        rows = [r for r in section.rows if r["library"] == kind and r["state"] == "loaded"]
        names = [Path(str(row["path"])).name.partition(".so")[0] for row in rows]
        for name in sorted({n for n in names if names.count(n) > 1}):
            both = zip(rows, names, strict=True)
            copies = ", ".join(str(row["path"]) for row, n in both if n == name)
            section.problem(
                name,
                f"this process has loaded {names.count(name)} copies of {name}: {copies}",
                "keep one: uninstall the other package, or remove its folder from LD_LIBRARY_PATH",
            )
    installed = {
        name
        for d in importlib.metadata.distributions()
        if re.fullmatch(r"nvidia-nccl-cu\d+", name := (d.metadata["Name"] or "").lower())
    }
    if len(installed) > 1:
        section.warn(
            "nccl",
            f"{' and '.join(sorted(installed))} are both installed and share one folder, so the "
            "later one has overwritten the library of the other",
            f"pip uninstall {' '.join(sorted(installed))}, then install the one that torch needs",
        )


def _judge_search_path(section: Section) -> None:
    for place in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if not Path(place).is_dir():
            section.warn(
                "LD_LIBRARY_PATH",
                f"folder {place} does not exist",
                "remove it from LD_LIBRARY_PATH",
            )
            continue
        for path in sorted(_matching(Path(place).glob("libnccl.so*"))):
            rows = [r for r in section.rows if r["path"] == str(path) and r["state"] == "on disk"]
            if rows:
                section.warn(
                    "nccl",
                    f"{path} is on LD_LIBRARY_PATH, but torch has loaded another copy",
                    f"remove {place} from LD_LIBRARY_PATH unless a program needs that copy",
                )
                break
