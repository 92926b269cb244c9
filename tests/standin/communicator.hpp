#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "standin/arithmetic.hpp"
#include "standin/mailboxes.hpp"
#include "standin/memory.hpp"
#include "standin/plan.hpp"
#include "vendor/abi.hpp"

// A communicator of the stand-in, and the operations on it. Every operation is a set of messages
// between pairs of ranks, and then plain arithmetic on this one.
namespace torch::comms::standin {

namespace abi = nccl::abi;

// What the results are called by everybody but oneCCL's "in progress", which the API translates.
inline constexpr abi::Result kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5;

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(std::string name, int rank, int size, bool blocks);

  const std::string& name() const noexcept { return name_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool blocks() const noexcept { return blocks_; }

  // Meets the others: now, or on a thread of its own where calls do not block.
  abi::Result connect();
  // Runs `body` now, or on such a thread; state() is "in progress" meanwhile.
  abi::Result begin(std::function<abi::Result()> body);

  // What GetAsyncError says.
  abi::Result state();
  // How a call ends that has been carried out: "in progress" for a while, by plan.
  abi::Result accepted();

  // Runs `body` when `stream` gets there, and no sooner than what was launched before it. `fault`:
  // see plan.hpp.
  void launch(abi::Stream stream, const PlannedFault& fault, std::function<abi::Result()> body);
  // Blocks until everything launched is done.
  void drain();
  // Some rank has aborted: what was gathered may not be what all had.
  bool is_abandoned() const { return mailboxes_->is_abandoned(); }
  // Ends everything that waits, and waits for that.
  void abort();
  // Blocks until somebody does.
  void await_abort() { mailboxes_->sleep(-1, stopped_); }

  // An operation PREMUL_SUM; in device memory the factor is read when an operation runs.
  struct Factor {
    std::vector<char> value;  // empty: it is at `at`
    const void* at;
  };
  abi::RedOp add_factor(const void* factor, abi::DataType dtype, bool on_device);
  void remove_factor(abi::RedOp op);
  // Of an operation that is called now; null for those without.
  std::shared_ptr<const Factor> factor_of(abi::RedOp op);

  // The parts of an operation, inside of run_loop().
  abi::Result exchange(std::vector<Transfer> transfers);
  // What every rank has in `input`, by rank; each scales its own by its factor.
  abi::Result gather_all(const void* input, size_t count, abi::DataType dtype,
                         const std::shared_ptr<const Factor>& factor, uint64_t kind,
                         std::vector<std::vector<char>>& all);
  void reduce_into(void* output, std::vector<std::vector<char>>& all, size_t count,
                   abi::DataType dtype, abi::RedOp op);

  // Memory that was registered; what stands for it is taken back once.
  void* add_registration(void* data, size_t size_bytes);
  bool remove_registration(void* registration);
  size_t registrations();

  // Memory of all ranks, by rank; each has as much as the others.
  struct Window {
    size_t size_bytes;
    std::vector<std::unique_ptr<Mapped>> parts;
    bool has(int rank, const void* data, size_t bytes) const;
  };
  // Collective, in begin(): the window of this rank's part, and the others'.
  abi::Result open_window(const void* data, size_t size_bytes, uint64_t kind, abi::Window* window);
  bool close_window(abi::Window window);
  std::shared_ptr<const Window> window_of(abi::Window window);
  // Whether the memory is a part of some window of this rank's.
  bool is_in_windows(const void* data, size_t size_bytes);
  size_t windows();

  // Inside of run_loop(), too: signals are counted by the rank that sends them, and taken in turn.
  void signal(int peer) { mailboxes_->signal(peer); }
  abi::Result take_signals(int peer, int count);

  std::atomic<int> splits{0};
  std::string title;  // that the configuration gives; set before anybody else sees it

 private:
  const std::string name_;
  const int rank_, size_;
  const bool blocks_;
  std::unique_ptr<Mailboxes> mailboxes_;
  std::atomic<bool> stopped_{false};
  std::atomic<abi::Result> error_{abi::kSuccess};  // what the next state() is, when nothing runs
  std::atomic<int> polls_{0};

  std::mutex mutex_;  // guards all below; partner of changed_
  std::condition_variable changed_;
  int under_way_ = 0;  // tasks on streams, and begin()'s
  bool beginning_ = false;
  std::mutex turn_;  // held by the task that runs
  std::vector<std::shared_ptr<const Factor>> factors_;
  std::map<void*, std::pair<void*, size_t>> registrations_;
  std::map<abi::Window, std::shared_ptr<const Window>> windows_;
  std::map<int, uint64_t> taken_;  // signals, by rank; guarded by turn_
};

}  // namespace torch::comms::standin
