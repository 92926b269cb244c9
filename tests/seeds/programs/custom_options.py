"""Custom options of the older reference: no name, a limit, no abort, hints of another backend."""

from datetime import timedelta

import torch
import torchcomms

device = torch.device("cpu")
comm = torchcomms.new_comm(
    "gloo",
    device,
    timeout=timedelta(seconds=60),
    abort_process_on_timeout_or_error=False,
    hints={"torchcomm::ncclx::high_priority_stream": "true", "backend_option": "value"},
)
options = comm.get_options()
tensor = torch.ones(2)
comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=False)
print(
    f"rank {comm.get_rank()} {options.timeout} {options.abort_process_on_timeout_or_error} "
    f"{options.hints['backend_option']} {tensor.tolist()}"
)
comm.finalize()
