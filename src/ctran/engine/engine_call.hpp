#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "ctran/reduction/reduction.hpp"
#include "schedule/algorithm.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::ctran {

using transport::Bytes;
using transport::ConstBytes;

// The peer of a receive that takes the next message with its tag from any rank, unless another
// receive waits for that message.
inline constexpr int kAnySource = -1;

inline constexpr std::chrono::milliseconds kNoTimeout = std::chrono::milliseconds::max();

// The timeout of a call, and the name of the user's setting for it ("timeout= of that call"), which
// error texts show. `setting` is a string with static lifetime; "" means not given.
struct CallTimeout {
  template <class Rep, class Period>
  constexpr CallTimeout(std::chrono::duration<Rep, Period> how_long,
                        std::string_view setting_name = {})
      : duration(how_long), setting(setting_name) {}
  constexpr std::chrono::milliseconds remaining() const { return duration - elapsed; }

  std::chrono::milliseconds duration;
  std::string_view setting;
  std::chrono::milliseconds elapsed{0};  // time already spent on earlier parts of the same call
};

// One operation as plain data. Counts are elements, as in the table at schedule::Problem.
//
// Buffers are lists of pieces that follow each other; a list of tensors is one piece per tensor. No
// piece may split an element. Together the pieces have exactly the size that the operation needs.
// The buffers of a rank that has no input or no output are ignored.
//
// In-place use is allowed as schedule::Problem says; any other overlap is not.
// Lifetime: the engine copies the lists and the offsets of `blocks` and `arriving`. The memory
// itself belongs to the caller, and the engine uses it until the call has ended.
struct EngineCall {
  std::string_view name;  // the public name ("all_gather_v"), for error texts; has static lifetime
  schedule::Operation operation = schedule::Operation::kBarrier;
  uint8_t dtype = 0;  // number of c10::ScalarType; a reduction needs a dtype with arithmetic
  uint32_t element_bytes = 1;  // of the dtype, or of any unit that is moved without arithmetic
  ReduceOpCode op = ReduceOpCode::kSum;
  PremulFactor factor = {};        // of PREMUL_SUM: the factor of this rank
  int root = 0;                    // send, receive: the peer (may be this rank) or kAnySource
  int tag = 0;                     // send, receive: messages match by (peer, tag)
  schedule::Blocks blocks = {};    // one per rank; Blocks::even(count, size) for whole vectors
  schedule::Blocks arriving = {};  // all_to_all: the blocks that this rank receives
  std::span<const ConstBytes> input = {};
  std::span<const Bytes> output = {};
  CallTimeout timeout = kNoTimeout;
  // The algorithm that a hint asks for, equal on all ranks. nullptr: the context's AlgorithmChooser
  // decides. An algorithm that cannot do this problem fails the call with kUnsupported and names
  // what is missing.
  const schedule::Algorithm* algorithm = nullptr;
  int64_t chunk = -1;  // elements; -1: the chooser decides
  // Runs only a consistency barrier: the ranks compare what they are about to call, and the barrier
  // fails if the fields that a fingerprint covers differ.
  bool is_consistency_check = false;
};

// Gets the completion of a call, exactly once.
// Threads: runs on the thread that notices the completion, which holds no lock. May start other
// calls; must not block or wait.
class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  virtual void on_complete(const CommError* error) noexcept = 0;  // nullptr: the call has succeeded
};

class Task;
class Window;

// A handle to a call or a batch in flight. Dropping the handle neither cancels the call nor waits
// for it.
// Threads: any, several at once.
// Lifetime: may outlive its group; the end of the group completes the call.
class TC_API EngineWork {
 public:
  EngineWork() noexcept = default;  // an empty handle, which is done
  EngineWork(const EngineWork& other) noexcept;
  EngineWork(EngineWork&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
  EngineWork& operator=(EngineWork other) noexcept {
    std::swap(task_, other.task_);
    return *this;
  }
  ~EngineWork();

  // Returns: whether the call has completed, with or without an error. Its memory may be used again
  // then.
  bool done() const noexcept;
  // Makes progress once, unless another thread is making progress, and then returns done().
  bool poll() noexcept;
  // Makes progress until the call has completed.
  // Throws: the error of the call, each time.
  void wait();
  // Waits at most `limit`. The call continues after a timeout.
  // Returns: done(). Does not throw the error of the call.
  bool wait_for(std::chrono::milliseconds limit);
  // Returns: the sender's rank after a receive from kAnySource has succeeded; kAnySource otherwise.
  int source() const noexcept;
  // Returns: the error of a completed call, else nullptr.
  // Lifetime: valid as long as this handle.
  const CommError* error() const noexcept;

 private:
  friend class EngineGroup;
  friend class Window;
  explicit EngineWork(Task* task) noexcept : task_(task) {}
  Task* task_ = nullptr;
};

}  // namespace torch::comms::ctran
