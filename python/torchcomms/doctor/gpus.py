"""The GPUs of this machine, their driver, and which of them reach each other's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchcomms._table import human_bytes
from torchcomms.doctor.report import Row, Section, facts

_NVML = "libnvidia-ml.so.1"
_MOST_LINKS = 18
_DRIVER = Path("/proc/driver/nvidia/version")


def look() -> Section:
    """The facts of every GPU, or one line if torch sees none. Starts the runtime of the GPUs."""
    section = Section("gpus", "GPUs")
    count = torch.cuda.device_count()
    if count == 0:
        section.rows = facts([("GPUs", "none that torch sees")])
        return section
    nvml = Nvml.load()
    for index in range(count):
        section.rows.append(_row(index, count, nvml))
    runtime = torch.version.cuda or torch.version.hip
    driver = nvml.driver() if nvml is not None else None
    section.ok("GPUs", f"{count}, driver {driver or _driver_of_proc()}, torch's runtime {runtime}")
    _judge_reach(section, count)
    if nvml is not None:
        nvml.close()
    return section


def _row(index: int, count: int, nvml: Nvml | None) -> Row:
    properties = torch.cuda.get_device_properties(index)
    reached = [peer for peer in range(count) if reaches(index, peer)]
    return {
        "GPU": index,
        "name": properties.name,
        "memory": human_bytes(properties.total_memory),
        "architecture": f"{properties.major}.{properties.minor}",
        "processors": properties.multi_processor_count,
        "NVLinks": nvml.links(properties.uuid) if nvml else None,
        "reaches": ", ".join(map(str, reached)) or None,
    }


def reaches(index: int, peer: int) -> bool:
    """Returns: whether a GPU can read and write the memory of another one."""
    return index != peer and torch.cuda.can_device_access_peer(index, peer)


def _judge_reach(section: Section, count: int) -> None:
    apart = [(i, j) for i in range(count) for j in range(count) if i != j and not reaches(i, j)]
    if not apart:
        if count > 1:
            section.ok("peer access", "each GPU can access the memory of every other GPU")
        return
    pairs = ", ".join(f"{i} and {j}" for i, j in apart if i < j or (j, i) not in apart)
    section.warn(
        "peer access",
        f"not between GPUs {pairs}: their data go through host memory",
        "on a virtual machine, enable peer access for the GPUs; see nvidia-smi topo -p2p rw",
    )


def _driver_of_proc() -> str:
    try:
        tokens = _DRIVER.read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return "unknown"
    return next((token for token in tokens if token[:1].isdigit() and "." in token), "unknown")


class Nvml:
    """The functions of NVIDIA's management library (NVML) that the doctor needs.

    The library comes with the driver.
    """

    @staticmethod
    def load(open_library: Callable[[str], Any] = ctypes.CDLL) -> Nvml | None:
        """Loads the library. Returns: None if there is none, or if it does not start."""
        try:
            library = open_library(_NVML)
        except OSError:
            return None
        return Nvml(library) if library.nvmlInit_v2() == 0 else None

    def __init__(self, library: Any) -> None:  # noqa: ANN401 (ctypes gives functions no types)
        self._library = library

    def driver(self) -> str | None:
        text = ctypes.create_string_buffer(96)
        if self._library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(len(text))) != 0:
            return None
        return text.value.decode()

    def links(self, uuid: object) -> int | None:
        """The number of NVLinks of this GPU that are up, or None if the library cannot say."""
        gpu = ctypes.c_void_p()
        name = f"GPU-{uuid}".encode()
        if self._library.nvmlDeviceGetHandleByUUID(name, ctypes.byref(gpu)) != 0:
            return None
        up = 0
        for link in range(_MOST_LINKS):
            state = ctypes.c_uint()
            asked = self._library.nvmlDeviceGetNvLinkState(
                gpu, ctypes.c_uint(link), ctypes.byref(state)
            )
            up += int(asked == 0 and state.value == 1)
        return up

    def close(self) -> None:
        self._library.nvmlShutdown()
