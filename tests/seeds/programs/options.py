"""Hints, limits and options as the oldest feature summary shows them."""

from datetime import timedelta

import torch
from torchcomms import CommOptions, ReduceOp, new_comm

device = torch.device("cpu")
options = CommOptions()
options.abort_process_on_timeout_or_error = False
options.timeout = timedelta(seconds=30)
options.name = "my_comm"
options.hints = {"key": "value"}

comm = new_comm(
    "gloo",
    device,
    abort_process_on_timeout_or_error=False,
    timeout=timedelta(seconds=30),
    name="my_comm",
    hints={"key": "value"},
)
tensor = torch.ones(4)
hints = {"torchcomm::ncclx::high_priority_stream": "true"}
comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, hints=hints)
comm.all_reduce(tensor, ReduceOp.SUM, async_op=False, timeout=timedelta(seconds=60))
shown = comm.get_options()
print(
    f"rank {comm.get_rank()} {comm.get_name()} {tensor.tolist()} {shown.timeout} "
    f"{shown.hints['key']} {options.name == comm.get_name()}"
)
comm.finalize()
