#include "ctran/window/window_registrations.hpp"

#include "ctran/engine/engine.hpp"

namespace torch::comms::ctran {

const transport::MemoryHandle& WindowRegistrations::add(transport::Transport& link,
                                                        transport::Bytes bytes) {
  return memories_.emplace_back(link.register_memory(bytes))->handle();
}

void WindowRegistrations::clear() noexcept {
  if (memories_.empty()) return;
  if (engine_->is_forked()) {  // the tables belong to the parent, in an unknown state
    for (auto& memory : memories_) static_cast<void>(memory.release());
    memories_.clear();
    return;
  }
  const EngineLock lock(*engine_);
  memories_.clear();
}

}  // namespace torch::comms::ctran
