#include "standin/kernels/counted.hpp"

#include <cstring>
#include <vector>

#include "ctran/kernels/messages/device_counts.hpp"
#include "standin/kernels/messages.hpp"

namespace torch::comms::standin {

void run(Launch& launch, const kernels::AllToAllVDynamic& exchange) {
  using kernels::DeviceCountedBuffer;
  if (!launch.goes_on()) return;
  const DeviceCountedBuffer input{static_cast<char*>(const_cast<void*>(exchange.input)),
                                  exchange.input_counts, exchange.input_elements};
  const DeviceCountedBuffer output{static_cast<char*>(exchange.output), exchange.output_counts,
                                   exchange.output_elements};
  const auto part = [&](const DeviceCountedBuffer& tensor, int rank) {
    return kernels::part_of(tensor, launch.size(), rank);
  };
  const auto place = [&](const DeviceCountedBuffer& tensor, int rank) {
    const auto found = part(tensor, rank);
    const size_t at = found.begin * exchange.element_bytes;
    auto* const there = static_cast<char*>(exchange.zero_copy_targets[rank]);
    const bool receives = &tensor == &output;
    return kernels::KernelMessage{found.count == 0 ? nullptr : tensor.data + at,
                                  found.count * exchange.element_bytes,
                                  rank,
                                  receives ? 1 : 0,
                                  receives && there != nullptr ? there + at : nullptr,
                                  exchange.requests_zero_copy};
  };
  const auto from = place(input, launch.rank()), to = place(output, launch.rank());
  if (!part(input, 0).is_possible || !part(output, 0).is_possible || from.bytes != to.bytes)
    return launch.refuse_counts();
  if (from.bytes > 0) std::memcpy(to.data, from.data, from.bytes);
  std::vector<kernels::KernelMessage> messages;
  for (int peer = 0; peer < launch.size(); ++peer)
    if (peer != launch.rank())
      for (const auto* tensor : {&input, &output}) messages.push_back(place(*tensor, peer));
  run(launch, messages);
}

}  // namespace torch::comms::standin
