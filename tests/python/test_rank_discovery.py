"""Who am I, among how many: the variables of each launcher, their order, and the selector."""

from __future__ import annotations

import pytest
import torchcomms

from tests.harness.cases import Failures, check_context, refused
from tests.harness.environment import environment

pytestmark = pytest.mark.worlds(sizes=(2,))

OURS = {"TORCHCOMM_RANK": "{rank}", "TORCHCOMM_SIZE": "{size}"}
OMPI = {"OMPI_COMM_WORLD_RANK": "{rank}", "OMPI_COMM_WORLD_SIZE": "{size}"}
PMI = {"PMI_RANK": "{rank}", "PMI_SIZE": "{size}"}
PALS = {"PALS_RANKID": "{rank}", "PALS_SIZE": "{size}"}
TORCHRUN = {"RANK": "{rank}", "WORLD_SIZE": "{size}"}
SLURM = {"SLURM_PROCID": "{rank}", "SLURM_NTASKS": "{size}"}
IN_ORDER = (OURS, OMPI, PMI, PALS, TORCHRUN, SLURM)
NOTHING = {name: None for family in IN_ORDER for name in family}
METHOD = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD"


def place(context, variables, label):
    """Rank and size that new_comm finds; wrong ones would never meet the other ranks."""
    filled = {
        name: text and text.format(rank=context.rank, size=context.size)
        for name, text in variables.items()
    }
    with environment(**{**NOTHING, METHOD: None, **filled}):
        comm = torchcomms.new_comm(
            context.backend,
            context.device,
            f"discovery_{label}",
            store=context.store(f"discovery_{label}"),
            timeout=20.0,
        )
    found = comm.get_rank(), comm.get_size()
    comm.finalize()
    assert found == (context.rank, context.size), f"found rank and size {found}"


def wrong(family):
    """The same variables with values of a job that does not exist."""
    return {
        name: text.replace("{rank}", "6").replace("{size}", "9") for name, text in family.items()
    }


def order(context):
    failures = Failures()
    for i, family in enumerate(IN_ORDER):
        variables = {}
        for later in IN_ORDER[i + 1 :]:
            variables |= wrong(later)
        with failures.case("family", i):
            place(context, {**variables, **family}, f"order_{i}")
    return failures.texts


def test_the_first_family_that_is_set_wins(world):
    """TORCHCOMM, Open MPI, PMI, PALS, torchrun, SLURM."""
    check_context(world, order)


def half_a_pair(context):
    """A family counts only when rank and size are there and make sense."""
    failures = Failures()
    for i, (name, text) in enumerate((("OMPI_COMM_WORLD_RANK", "5"), ("TORCHCOMM_RANK", "5"),
                                      ("PMI_SIZE", "7"))):  # fmt: skip
        with failures.case(name):
            place(context, {name: text, **TORCHRUN}, f"half_{i}")
    for i, (rank, size) in enumerate((("-1", "4"), ("0", "0"), ("0", "-3"))):
        with failures.case("OMPI", rank, size):
            place(
                context,
                {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": size, **TORCHRUN},
                f"senseless_{i}",
            )
    return failures.texts


def test_an_incomplete_family_is_passed_over(world):
    check_context(world, half_a_pair)


def pals_sizes(context):
    failures = Failures()
    for i, size in enumerate(("PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")):
        later = dict.fromkeys(
            ("PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE")[i + 1 :], "9"
        )
        with failures.case(size):
            place(context, {"PALS_RANKID": "{rank}", **later, size: "{size}"}, f"pals_{i}")
    return failures.texts


def test_pals_takes_the_size_from_the_first_of_four(world):
    check_context(world, pals_sizes)


def selected(context):
    failures = Failures()
    everything = {}
    for family in (OMPI, PMI, PALS, TORCHRUN):
        everything |= wrong(family)
    for i, (method, family) in enumerate((
            ("torchrun", TORCHRUN), ("TorchRun", TORCHRUN), ("mpi", OMPI), ("MPI", OMPI),
            ("auto", OMPI), ("AUTO", OMPI), ("pals", {**PALS}), ("manual", OURS),
            ("mpi", OURS), ("", OURS))):  # fmt: skip
        with failures.case(method, i):
            place(context, {**everything, **family, METHOD: method}, f"method_{i}")
    with failures.case("mpi takes PMI"):
        place(context, {**wrong(TORCHRUN), **PMI, METHOD: "mpi"}, "method_pmi")
    return failures.texts


def test_the_selector_limits_where_to_look_and_ours_always_counts(world):
    check_context(world, selected)


def looked_nowhere(context):
    failures = Failures()
    for i, (method, family) in enumerate((
            ("torchrun", OMPI), ("mpi", TORCHRUN), ("mpi", PALS), ("pals", TORCHRUN),
            ("manual", TORCHRUN), ("slurm", TORCHRUN), ("", TORCHRUN), (" auto", TORCHRUN),
            ("auto", {}))):  # fmt: skip
        with failures.case(repr(method), i), refused(RuntimeError, "TORCHCOMM_RANK"):
            place(context, {**family, METHOD: method}, f"nowhere_{i}")
    return failures.texts


def test_nothing_found_is_a_runtime_error_that_says_what_to_set(world):
    """The selector's text is not trimmed, and an empty or unknown one selects ours alone."""
    check_context(world, looked_nowhere)


def nonsense(context):
    failures = Failures()
    for i, (rank, size) in enumerate((("one", "2"), ("0", "two"), ("0.5", "2"), ("2", "2"),
                                      ("5", "2"))):  # fmt: skip
        with failures.case(rank, size), refused(RuntimeError, "TORCHCOMM_"):
            place(context, {"TORCHCOMM_RANK": rank, "TORCHCOMM_SIZE": size}, f"nonsense_{i}")
    return failures.texts


def test_values_that_are_no_rank_of_that_size_are_refused(world):
    check_context(world, nonsense)


def read_inside(context):
    """Torch sets the variables for the length of the call only."""
    comm = context.new_comm()
    with environment(TORCHCOMM_RANK="7", TORCHCOMM_SIZE="8"):
        found = comm.get_rank(), comm.get_size()
        child = comm.split(list(range(context.size)), "read_inside")
        found_child = child.get_rank(), child.get_size()
    comm.finalize()
    child.finalize()
    assert found == found_child == (context.rank, context.size)
    return []


def test_the_variables_are_read_inside_of_new_comm_only(world):
    check_context(world, read_inside)
