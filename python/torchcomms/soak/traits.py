"""Derives the traits of a backend from its own description."""

from __future__ import annotations

import torchcomms
from torchcomms.algorithms import catalogue, kernels
from torchcomms.soak.plan import BITWISE, COLLECTIVES, COMMON, DTYPES, Traits

# Backends that use a vendor library.
_VENDORS = ("nccl", "nccl-lazy", "ncclx", "rccl", "rcclx", "xccl")

_ALGORITHM, _CHUNK_BYTES = "ctran::algorithm", "ctran::chunk_bytes"
# Algorithms that refuse calls in which pairs of ranks may exchange different counts.
_EXCLUDED = {
    "all_to_all": ("bruck",),
    "all_to_all_v_single": ("bruck",),
}
_KERNELS = "ncclx::algorithm"
_KERNEL_ALGORITHMS = ("one_shot_ll", "one_shot_line", "two_shot_line")
_CHUNKS = ("0", "64", "1000", "4096", "65536", "1000000")
HintChoices = tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...]


def traits_of(comm: torchcomms.TorchComm, streams: int) -> Traits:
    """The traits of the backend of `comm`."""
    about, name = comm.describe(), comm.get_backend()
    able = about["capabilities"]
    on_device = name in _VENDORS or any("kernels" in link for link in about["links"])
    reductions = [op for op in able["reduce_ops"] if op != "PREMUL_SUM"]
    if "PREMUL_SUM" in able["reduce_ops"]:
        reductions += ["PREMUL_NUMBER", "PREMUL_TENSOR"]
    if name in _VENDORS:
        reductions = [op for op in reductions if op not in BITWISE]
    return Traits(
        reductions=tuple(reductions),
        dtypes=COMMON if name in _VENDORS else tuple(DTYPES),
        self_messages=name != "gloo",
        free_order=not on_device and comm.get_device().type == "cpu",
        streams=streams,
        graphs=able["graph_capture"] and comm.get_device().type == "cuda",
        same_bits=name == "ctran",
        # Kernels need a second rank; without kernels, tensors are staged through the host.
        graphs_alone=name in _VENDORS,
        hint_choices=_hint_choices(name, on_device),
    )


def _hint_choices(backend: str, on_device: bool) -> HintChoices:
    """Hints of single calls: every available algorithm, also where it is not the fastest."""
    if backend == "ncclx":
        hints = ((_KERNELS, ("auto", "nccl", "kernels", *_KERNEL_ALGORITHMS)),)
        return tuple((row, hints) for row in dict.fromkeys(r["operation"] for r in kernels()))
    if backend != "ctran" or on_device:
        return ()
    found: dict[str, list[str]] = {}
    for row in catalogue():
        found.setdefault(row["operation"], []).append(row["name"])
    hint_choices = []
    for name in COLLECTIVES:
        operation = name.removesuffix("_single").removesuffix("_v")
        excluded = _EXCLUDED.get(name, ())
        values = tuple(f"{operation}:{a}" for a in found.get(operation, ()) if a not in excluded)
        hint_choices.append((name, ((_ALGORITHM, values), (_CHUNK_BYTES, _CHUNKS))))
    return tuple(hint_choices)
