#include "core/work/scoped_interrupt_check.hpp"

#include <utility>

namespace torch::comms {
namespace {

thread_local const ScopedInterruptCheck* innermost_check = nullptr;

}  // namespace

ScopedInterruptCheck::ScopedInterruptCheck(std::function<void()> check)
    : check_(std::move(check)), outer_(std::exchange(innermost_check, this)) {}

ScopedInterruptCheck::~ScopedInterruptCheck() { innermost_check = outer_; }

void ScopedInterruptCheck::run_all() {
  for (const auto* each = innermost_check; each != nullptr; each = each->outer_) each->check_();
}

}  // namespace torch::comms
