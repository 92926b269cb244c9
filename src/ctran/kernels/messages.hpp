#pragma once

#include "ctran/kernels/library.hpp"

// Messages between two ranks: pure functions of what is alike on both.
namespace torch::comms::ctran::kernels {

// Whether the message makes sense on this rank.
constexpr bool is_sound(const Team& team, const Message& message) {
  return message.peer >= 0 && message.peer < team.size && message.peer != team.rank &&
         (message.data != nullptr || message.bytes == 0);
}
constexpr bool is_sound(const Team& team, const Exchange& exchange) {
  if (exchange.count < 1 || exchange.count > kMaxMessages || exchange.blocks < 0) return false;
  for (int32_t i = 0; i < exchange.count; ++i)
    if (!is_sound(team, exchange.messages[i])) return false;
  return true;
}

}  // namespace torch::comms::ctran::kernels
