#pragma once

// The communicators that carry the signals between the ranks of a window.
//
// A library runs what one rank launches in one communicator in the order of the calls, whatever
// their streams. A rank that waits in a communicator could not signal in it, so no rank does both
// in the same one: rank r waits in the set W(r) of them, and signals to s in one of W(s) that is
// not of W(r). For all pairs there is such a one where no W contains another; of k communicators
// that goes for as many ranks as there are sets of k/2 of them, and for no more (Sperner, "Ein Satz
// über Untermengen einer endlichen Menge", Math. Zeitschrift 27, 1928). 2 ranks need 2, 8 need 5.
namespace torch::comms::nccl {

// How many communicators `ranks` need; 0 for one rank, which needs none for itself.
int count_signal_communicators(int ranks);

// Which of them takes signals of `from` to `to`, another rank.
int signal_communicator_index(int from, int to, int ranks);

}  // namespace torch::comms::nccl
