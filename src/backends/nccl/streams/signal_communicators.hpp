#pragma once

// Assigns the communicators that carry the signals between the ranks of a window.
//
// A library runs the operations that a rank launches in one communicator in the order of the calls,
// whatever their streams. A rank that waits in a communicator could not signal in it, so no rank
// does both in the same one. Rank r waits in the communicators of a set W(r). It signals to s in a
// communicator of W(s) that is not in W(r). Each pair has such a communicator if no set W contains
// another. With k communicators that is possible for as many ranks as there are sets of k/2 of
// them, and not for more (Sperner, "Ein Satz über Untermengen einer endlichen Menge", Math.
// Zeitschrift 27, 1928). 2 ranks need 2 communicators, 8 ranks need 5.
namespace torch::comms::nccl {

// Returns: the number of communicators for `ranks` ranks; 0 for one rank, which does not signal
// itself through a communicator.
int count_signal_communicators(int ranks);

// Returns: the index of the communicator that carries signals of rank `from` to another rank `to`.
int signal_communicator_index(int from, int to, int ranks);

}  // namespace torch::comms::nccl
