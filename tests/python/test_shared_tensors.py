"""share_cpu_tensors() in one process: where tensors lie, and what forked children see."""

from __future__ import annotations

import pytest
import torchcomms

from tests.harness.programs import forked, python

pytestmark = pytest.mark.skipif(
    not torchcomms.is_backend_built("ctran"), reason="needs backend ctran"
)

FOLDERS = """
    import torch, torchcomms
    def is_shared(tensor):
        place = tensor.data_ptr()
        with open("/proc/self/maps") as maps:
            for line in maps:
                first, last = (int(part, 16) for part in line.split()[0].split("-"))
                if first <= place < last:
                    return "torchcomms-tensors" in line
        raise AssertionError("it is nowhere")
"""


def run(program):
    forked(FOLDERS + program).expect_success()


def test_large_tensors_lie_in_shared_memory_from_then_on():
    run("""
    early = torch.ones(1 << 20)
    torchcomms.share_cpu_tensors()
    late, small = torch.ones(1 << 20), torch.ones(100)
    assert is_shared(late) and not is_shared(early) and not is_shared(small)
    assert is_shared(late.clone()) and late.sum() == 1 << 20
    early.resize_(2 << 20)
    late.resize_(2 << 20)
    assert late[: 1 << 20].sum() == 1 << 20
    place = late.data_ptr()
    del late
    again = torch.zeros(2 << 20)
    assert is_shared(again) and again.sum() == 0
    torchcomms.share_cpu_tensors(False)
    assert not is_shared(torch.ones(1 << 20)) and is_shared(again)
    torchcomms.share_cpu_tensors()
    assert is_shared(torch.ones(1 << 20))
    """)


def test_the_environment_asks_for_it():
    program = (
        FOLDERS
        + """
    print(is_shared(torch.ones(1 << 20)))
    """
    )
    for value, wanted in (("1", "True"), ("0", "False")):
        ended = python(program, TORCHCOMM_SHARE_CPU_TENSORS=value).expect_success()
        assert ended.out.strip() == wanted


def test_a_value_that_is_none_is_a_warning_and_torch_loads():
    ended = python("import torch, torchcomms", TORCHCOMM_SHARE_CPU_TENSORS="perhaps")
    assert "RuntimeWarning: CPU tensors are not shared" in ended.expect_success().err
    assert "TORCHCOMM_SHARE_CPU_TENSORS='perhaps'" in ended.err


def test_what_is_no_bool_is_refused():
    with pytest.raises(TypeError, match="wanted is 1, expected a bool"):
        torchcomms.share_cpu_tensors(1)


def test_workers_of_a_data_loader_have_tensors_of_their_own():
    run("""
    import torch.utils.data
    torchcomms.share_cpu_tensors()
    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.data = torch.arange(1 << 20).reshape(16, -1)
        def __len__(self):
            return 16
        def __getitem__(self, row):
            self.data[row] += 1  # its own
            assert not is_shared(torch.ones(1 << 20))
            return self.data[row]
    rows = Rows()
    assert is_shared(rows.data)
    loaded = list(torch.utils.data.DataLoader(rows, num_workers=2, multiprocessing_context="fork"))
    for row, batch in enumerate(loaded):
        assert torch.equal(batch[0], torch.arange(row << 16, (row + 1) << 16) + 1)
    assert torch.equal(rows.data.flatten(), torch.arange(1 << 20))
    """)
