#include "core/own_check.hpp"

#include <utility>

namespace torch::comms {
namespace {

thread_local const OwnCheck* innermost = nullptr;

}  // namespace

OwnCheck::OwnCheck(std::function<void()> check)
    : check_(std::move(check)), before_(std::exchange(innermost, this)) {}

OwnCheck::~OwnCheck() { innermost = before_; }

void OwnCheck::run() {
  for (const auto* each = innermost; each != nullptr; each = each->before_) each->check_();
}

}  // namespace torch::comms
