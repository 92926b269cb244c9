#include "base/issued_number.hpp"

#include <utility>

namespace torch::comms::base {
namespace {

thread_local uint64_t current = 0;

}  // namespace

uint64_t issued_number() noexcept { return current; }

IssuedNumber::IssuedNumber(uint64_t number) noexcept : before_(std::exchange(current, number)) {}
IssuedNumber::~IssuedNumber() { current = before_; }

}  // namespace torch::comms::base
