"""A process has no context on the GPUs of others: each would take half a gigabyte there."""

from __future__ import annotations

from tests.gpu.programs import on_each_backend, on_gpus

LIVES = """
    import ctypes, gc, os, threading
    import torch, torchcomms
    from torchcomms import ReduceOp
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    driver = ctypes.CDLL("libcuda.so.1")
    tensor = torch.ones(1 << 16, device=device)

    def check(after):
        flags, active = ctypes.c_uint(), ctypes.c_int()
        for other in range(torch.cuda.device_count()):
            state = ctypes.byref(flags), ctypes.byref(active)
            assert driver.cuDevicePrimaryCtxGetState(other, *state) == 0
            assert active.value == (other == rank), f"after {after}: {active.value} on GPU {other}"

    def new(name):
        return torchcomms.new_comm("%(backend)s", device, name,
                                   abort_process_on_timeout_or_error=False)

    def captured(comm):
        comm.all_reduce(tensor, ReduceOp.SUM, False)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            comm.all_reduce(tensor, ReduceOp.SUM, False)
        return graph

    check("importing")
    comm = new("usual")
    comm.all_reduce(tensor, ReduceOp.SUM, False).wait_blocking()
    comm.all_reduce(tensor, ReduceOp.SUM, True).wait()
    torch.cuda.synchronize()
    check("operations")
    child = comm.split(list(range(size)), "child")
    child.barrier(False)
    child.finalize()
    check("a split")
    graph = captured(comm)
    graph.replay()
    torch.cuda.synchronize()
    comm.finalize()
    check("its end")
    del graph, child, comm
    gc.collect()
    check("its graph")

    # Whoever drops a communicator has left it, for all others; so all of them are through by then.
    usual = new("usual, too")
    comm = new("dropped")
    work = comm.all_reduce(tensor, ReduceOp.SUM, True)
    usual.barrier(False)
    torch.cuda.synchronize()
    del comm
    gc.collect()
    work.wait()
    del work
    comm = new("dropped before its graph")
    graph = captured(comm)
    usual.barrier(False)
    torch.cuda.synchronize()
    del comm
    gc.collect()
    graph.replay()
    torch.cuda.synchronize()
    del graph
    gc.collect()
    usual.finalize()
    check("what was dropped")

    comm = new("aborted")
    comm.all_reduce(tensor, ReduceOp.SUM, False).wait_blocking()
    comm.barrier(False)
    torch.cuda.synchronize()
    comm.abort()
    comm.finalize()
    check("an abort")

    # A thread that set no device: torch's own operations leave it with the first one.
    def in_thread():
        comm = new("of a thread")
        comm.all_reduce(tensor, ReduceOp.SUM, False).wait_blocking()
        comm.finalize()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    check("a thread")
    comm = new("lent to a thread")
    seen = []
    def lent():
        comm.all_reduce(tensor, ReduceOp.SUM, False).wait_blocking()
        seen.append(torch.cuda.current_device())
    thread = threading.Thread(target=lent)
    thread.start()
    thread.join()
    comm.finalize()
    assert seen == [0], f"the thread was left with device {seen}"
    check("a thread without a device")
    print("alone")
"""


@on_each_backend
def test_a_process_has_nothing_on_the_gpus_of_others(backend):
    for finished in on_gpus(LIVES % {"backend": backend}):
        assert finished.expect_success().out.strip().endswith("alone")
