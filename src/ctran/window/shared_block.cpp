#include "ctran/window/shared_block.hpp"

#include <algorithm>

#include "transport/shm/segment.hpp"

namespace torch::comms::ctran {

SharedBlock::SharedBlock(uint64_t size)
    : file_(transport::shm::create_memory("torchcomms-window", std::max<uint64_t>(size, 1))),
      mapping_(transport::shm::map_memory(file_, std::max<uint64_t>(size, 1))),
      size_(size) {}

}  // namespace torch::comms::ctran
