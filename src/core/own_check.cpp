#include "core/own_check.hpp"

#include <utility>

namespace torch::comms {
namespace {

thread_local const OwnCheck* innermost_check = nullptr;

}  // namespace

OwnCheck::OwnCheck(std::function<void()> check)
    : check_(std::move(check)), before_(std::exchange(innermost_check, this)) {}

OwnCheck::~OwnCheck() { innermost_check = before_; }

void OwnCheck::run() {
  for (const auto* each = innermost_check; each != nullptr; each = each->before_) each->check_();
}

}  // namespace torch::comms
