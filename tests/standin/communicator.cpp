#include "standin/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "gpu/cpu_runtime.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::standin {
namespace {

constexpr int kFirstFactor = 5;  // above the operations that everybody has

}  // namespace

Communicator::Communicator(std::string name, int rank, int size, bool blocks)
    : name_(std::move(name)), rank_(rank), size_(size), blocks_(blocks) {}

abi::Result Communicator::connect() {
  const auto fault = next_fault("connect");
  return begin([this, fault]() -> abi::Result {
    if (fault.fails) return kSystemError;
    auto mailboxes = Mailboxes::join(name_, rank_, size_ + (fault.hangs ? 1 : 0), stopped_);
    std::lock_guard lock(mutex_);
    mailboxes_ = std::move(mailboxes);
    return mailboxes_ ? abi::kSuccess : kSystemError;
  });
}

abi::Result Communicator::begin(std::function<abi::Result()> body) {
  if (blocks_) return body();
  {
    std::lock_guard lock(mutex_);
    ++under_way_;
    beginning_ = true;
  }
  std::thread([self = shared_from_this(), body = std::move(body)] {
    const auto result = body();
    if (result != abi::kSuccess) self->error_ = result;
    std::lock_guard lock(self->mutex_);
    self->beginning_ = false;
    --self->under_way_;
    self->changed_.notify_all();
  }).detach();
  return abi::kInProgress;
}

abi::Result Communicator::state() {
  if (const auto error = error_.load(); error != abi::kSuccess) return error;
  {
    std::lock_guard lock(mutex_);
    if (beginning_) return abi::kInProgress;
  }
  if (polls_.load() > 0) {
    --polls_;
    return abi::kInProgress;
  }
  return abi::kSuccess;
}

abi::Result Communicator::accepted() {
  if (blocks_) return abi::kSuccess;
  polls_ = polls_in_progress();
  return polls_.load() > 0 ? abi::kInProgress : abi::kSuccess;
}

void Communicator::launch(abi::Stream stream, const PlannedFault& fault,
                          std::function<abi::Result()> body) {
  // A captured operation is under way when its graph is.
  const bool captured = gpu::Runtime::cpu().capture_of(stream) != 0;
  const auto begin_one = [](Communicator& comm) {
    std::lock_guard lock(comm.mutex_);
    ++comm.under_way_;
  };
  if (!captured) begin_one(*this);
  gpu::cpu_launch(stream, [=, self = shared_from_this(), body = std::move(body)] {
    if (captured) begin_one(*self);
    {
      std::lock_guard turn(self->turn_);
      if (fault.is_lost) self->error_ = abi::kRemoteError;
      if (fault.hangs || fault.is_lost) self->mailboxes_->sleep(-1, self->stopped_);
      if (fault.slower_us > 0) self->mailboxes_->sleep(fault.slower_us, self->stopped_);
      if (!self->stopped_)
        if (const auto result = body(); result != abi::kSuccess) self->error_ = result;
    }
    std::lock_guard lock(self->mutex_);
    --self->under_way_;
    self->changed_.notify_all();
  });
}

void Communicator::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return under_way_ == 0; });
}

void Communicator::abort() {
  stopped_ = true;
  {
    std::lock_guard lock(mutex_);
    if (mailboxes_) mailboxes_->abandon();
  }
  drain();
}

void* Communicator::add_registration(void* data, size_t size_bytes) {
  std::lock_guard lock(mutex_);
  static std::atomic<uintptr_t> last{0};
  auto* const registration = reinterpret_cast<void*>(++last);
  registrations_[registration] = {data, size_bytes};
  return registration;
}
bool Communicator::remove_registration(void* registration) {
  std::lock_guard lock(mutex_);
  return registrations_.erase(registration) > 0;
}
size_t Communicator::registrations() {
  std::lock_guard lock(mutex_);
  return registrations_.size();
}

bool Communicator::Window::has(int rank, const void* data, size_t bytes) const {
  const auto* const begin = parts[static_cast<size_t>(rank)]->at();
  const auto* const at = static_cast<const char*>(data);
  return at >= begin && bytes <= size_bytes && at + bytes <= begin + size_bytes;
}

abi::Result Communicator::open_window(const void* data, size_t size_bytes, uint64_t kind,
                                      abi::Window* window) {
  const auto own = place_of(data, size_bytes).value_or(Place{});
  std::vector<std::vector<char>> all;
  const auto result = gather_all(&own, sizeof own, DataType::kInt8, nullptr, kind, all);
  if (result != abi::kSuccess) return result;
  auto opened = std::make_shared<Window>();
  opened->size_bytes = size_bytes;
  for (const auto& bytes : all) {
    Place place;
    std::memcpy(&place, bytes.data(), sizeof place);
    if (place.size_bytes != size_bytes) return kInvalidArgument;
    opened->parts.push_back(std::make_unique<Mapped>(place));
    if (opened->parts.back()->at() == nullptr) return kSystemError;
  }
  *window = reinterpret_cast<abi::Window>(opened.get());
  std::lock_guard lock(mutex_);
  windows_[*window] = std::move(opened);
  return abi::kSuccess;
}

bool Communicator::close_window(abi::Window window) {
  std::lock_guard lock(mutex_);
  return windows_.erase(window) > 0;
}

std::shared_ptr<const Communicator::Window> Communicator::window_of(abi::Window window) {
  std::lock_guard lock(mutex_);
  const auto found = windows_.find(window);
  return found == windows_.end() ? nullptr : found->second;
}

bool Communicator::is_in_windows(const void* data, size_t size_bytes) {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, window] : windows_)
    if (window->has(rank_, data, size_bytes)) return true;
  return false;
}

size_t Communicator::windows() {
  std::lock_guard lock(mutex_);
  return windows_.size();
}

abi::Result Communicator::take_signals(int peer, int count) {
  auto& taken = taken_[peer];
  const auto total = taken + static_cast<uint64_t>(count);
  if (mailboxes_->await_signals(peer, total, stopped_) != Mailboxes::End::kDone)
    return kSystemError;
  taken = total;
  return abi::kSuccess;
}

abi::RedOp Communicator::add_factor(const void* factor, abi::DataType dtype, bool on_device) {
  Factor copied{{}, factor};
  if (!on_device) {
    const auto* bytes = static_cast<const char*>(factor);
    copied.value.assign(bytes, bytes + size_of(dtype));
  }
  std::lock_guard lock(mutex_);
  factors_.push_back(std::make_shared<const Factor>(std::move(copied)));
  return static_cast<abi::RedOp>(kFirstFactor + static_cast<int>(factors_.size()) - 1);
}

void Communicator::remove_factor(abi::RedOp op) {
  std::lock_guard lock(mutex_);
  factors_.at(static_cast<size_t>(op) - kFirstFactor).reset();
}

std::shared_ptr<const Communicator::Factor> Communicator::factor_of(abi::RedOp op) {
  if (static_cast<int>(op) < kFirstFactor) return nullptr;
  std::lock_guard lock(mutex_);
  return factors_.at(static_cast<size_t>(op) - kFirstFactor);
}

abi::Result Communicator::exchange(std::vector<Transfer> transfers) {
  switch (mailboxes_->run(transfers, stopped_)) {
    case Mailboxes::End::kMismatch:
      return kInvalidUsage;
    case Mailboxes::End::kStopped:
      return kSystemError;
    case Mailboxes::End::kDone:
      break;
  }
  return abi::kSuccess;
}

abi::Result Communicator::gather_all(const void* input, size_t count, abi::DataType dtype,
                                     const std::shared_ptr<const Factor>& factor, uint64_t kind,
                                     std::vector<std::vector<char>>& all) {
  const size_t size_bytes = count * size_of(dtype);
  all.assign(static_cast<size_t>(size_), std::vector<char>(size_bytes));
  auto& own = all[static_cast<size_t>(rank_)];
  if (size_bytes > 0) std::memcpy(own.data(), input, size_bytes);
  if (factor)
    scale(own.data(), factor->value.empty() ? factor->at : factor->value.data(), count, dtype);
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    transfers.push_back({peer, true, own.data(), size_bytes, kind});
    transfers.push_back({peer, false, all[static_cast<size_t>(peer)].data(), size_bytes, kind});
  }
  return exchange(std::move(transfers));
}

namespace {

// What NCCL 2.28 reaches of so many elements where it multiplies for one rank, as far as is known:
// a block has 16 KB, or more beyond 32 blocks, and all have the same number of elements, rounded
// down.
size_t reached_alone(size_t count, abi::DataType dtype) {
  constexpr size_t kBlock = 16 << 10;
  const size_t blocks = std::clamp<size_t>((count * size_of(dtype) + kBlock - 1) / kBlock, 1, 32);
  const size_t pack = std::max<size_t>(16 / size_of(dtype), 1);
  return std::min(count, (count / blocks + pack - 1) / pack * pack * blocks);
}

}  // namespace

void Communicator::reduce_into(void* output, std::vector<std::vector<char>>& all, size_t count,
                               abi::DataType dtype, abi::RedOp op) {
  auto& total = all[0];
  for (size_t rank = 1; rank < all.size(); ++rank)
    combine(total.data(), all[rank].data(), count, dtype, op);
  if (op == abi::RedOp::kAvg) divide(total.data(), size_, count, dtype);
  const bool multiplies = op == abi::RedOp::kAvg || static_cast<int>(op) >= kFirstFactor;
  const size_t reached = size_ == 1 && multiplies ? reached_alone(count, dtype) : count;
  if (reached > 0) std::memcpy(output, total.data(), reached * size_of(dtype));
}

}  // namespace torch::comms::standin
