"""All cells: the CELLS of each module, in the order of the fault table."""

from torchcomms.drill.cells import (
    clock,
    death,
    descriptors,
    disagreement,
    hooks,
    interrupts,
    lifetime,
    membership,
    memory,
    network,
    processes,
    silence,
    sizes,
    store,
    strangers,
    threads,
)

CELLS = sorted(
    (
        *death.CELLS, *silence.CELLS, *network.CELLS, *store.CELLS, *disagreement.CELLS,
        *lifetime.CELLS, *threads.CELLS, *processes.CELLS, *descriptors.CELLS, *memory.CELLS,
        *strangers.CELLS, *sizes.CELLS, *clock.CELLS, *interrupts.CELLS, *hooks.CELLS,
        *membership.CELLS,
    ),
    key=lambda cell: cell.id.partition("/")[0],
)  # fmt: skip
