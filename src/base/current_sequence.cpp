#include "base/current_sequence.hpp"

#include <utility>

namespace torch::comms::base {
namespace {

thread_local uint64_t current = 0;

}  // namespace

uint64_t current_sequence() noexcept { return current; }

ScopedSequence::ScopedSequence(uint64_t number) noexcept
    : previous_(std::exchange(current, number)) {}
ScopedSequence::~ScopedSequence() { current = previous_; }

}  // namespace torch::comms::base
