#include "transport/protocol/eager_tuner.hpp"

#include <algorithm>

namespace torch::comms::transport {

EagerThresholdTuner::EagerSizeClass& EagerThresholdTuner::class_of(uint64_t bytes) noexcept {
  return classes_[std::min(path_tuner_.class_number(bytes), classes_.size() - 1)];
}

void EagerThresholdTuner::on_sent(uint64_t bytes, Time copy) noexcept {
  auto& size_class = class_of(bytes);
  size_class.min_copy = std::min(size_class.min_copy, copy);
  const bool is_usual = path_tuner_.default_path(bytes) == CopyPathTuner::CopyPath::kCopyInOut;
  if (++size_class.copies < kSamplesPerEstimate && is_usual) return;
  path_tuner_.add_sample(CopyPathTuner::CopyPath::kCopyInOut, bytes,
                         2 * (is_usual ? size_class.min_copy : copy));
  size_class.min_copy = Time::max();
  size_class.copies = 0;
}

// Where each rank has a core the receiver may just have come late, which is not a cost of the path.
// So the measured copy time bounds the sample.
void EagerThresholdTuner::on_peer_read(uint64_t bytes, Time after) noexcept {
  const double read_ns = class_of(bytes).read_ns;
  const Time copied = Time(static_cast<int64_t>(read_ns)) + kAnnounceOverhead;
  path_tuner_.add_sample(CopyPathTuner::CopyPath::kRemoteRead, bytes,
                         read_ns > 0 && !is_oversubscribed_ ? std::min(after, copied) : after);
}

void EagerThresholdTuner::on_peer_refused(uint64_t bytes) noexcept {
  path_tuner_.add_sample(CopyPathTuner::CopyPath::kRemoteRead, bytes, Time::max());
}

void EagerThresholdTuner::on_local_read(uint64_t bytes, Time copy) noexcept {
  auto& read_ns = class_of(bytes).read_ns;
  read_ns = CopyPathTuner::smoothed(read_ns, static_cast<double>(std::max(copy, Time(1)).count()));
}

}  // namespace torch::comms::transport
