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

// The peer of a receive that takes the next message with its tag that no other receive waits for.
inline constexpr int kAnySource = -1;

inline constexpr std::chrono::milliseconds kNoTimeout = std::chrono::milliseconds::max();

// How long a call may take, from now on but for what is spent, and what its user calls that, for
// the error of whoever meets its end: "timeout= of that call". Lives forever; "": not said.
struct CallTimeout {
  template <class Rep, class Period>
  constexpr CallTimeout(std::chrono::duration<Rep, Period> how_long, std::string_view called = {})
      : duration(how_long), setting(called) {}
  constexpr std::chrono::milliseconds remaining() const { return duration - elapsed; }

  std::chrono::milliseconds duration;
  std::string_view setting;
  std::chrono::milliseconds elapsed{0};  // on what belongs to it and came before
};

// One operation as plain data. Counts are elements, as the table at schedule::Problem says.
//
// Buffers are lists of pieces that follow each other (a list of tensors is one piece a tensor); no
// piece cuts an element. Together they have exactly what the operation needs of them: on a rank
// that has no input or output they are not looked at. Lists, offsets of `blocks` and `arriving` are
// copied; the memory itself is the caller's and is used until the call has ended. In place as
// schedule::Problem says; any other overlap is not allowed.
struct EngineCall {
  std::string_view name;  // the public one ("all_gather_v"), for errors; lives forever
  schedule::Operation operation = schedule::Operation::kBarrier;
  uint8_t dtype = 0;           // number of c10::ScalarType; with arithmetic where it adds
  uint32_t element_bytes = 1;  // of the dtype, or of any unit to be moved where nothing is added
  ReduceOpCode op = ReduceOpCode::kSum;
  PremulFactor factor = {};        // of PREMUL_SUM: this rank's own
  int root = 0;                    // send, receive: the peer, which may be this rank; or kAnySource
  int tag = 0;                     // send, receive: they match by (peer, tag)
  schedule::Blocks blocks = {};    // one a rank; Blocks::even(count, size) for whole vectors
  schedule::Blocks arriving = {};  // all_to_all
  std::span<const ConstBytes> input = {};
  std::span<const Bytes> output = {};
  CallTimeout timeout = kNoTimeout;
  // From hints, equal on all ranks. Nothing: the family's chooser decides. A choice that cannot do
  // this problem: kUnsupported, naming what is missing.
  const schedule::Algorithm* algorithm = nullptr;
  int64_t chunk = -1;  // elements; -1: chosen
  // Instead of running it: a barrier of ranks that are about to call it, which fails where they
  // are not alike in all of the above that is compared.
  bool is_consistency_check = false;
};

// Learns that a call has ended: exactly once, on whatever thread noticed, which holds no lock. May
// start other calls; must not block and not wait.
class CompletionListener {
 public:
  virtual ~CompletionListener() = default;
  virtual void on_complete(const CommError* error) noexcept = 0;  // nullptr: it did what it should
};

class Task;
class Window;

// A call, or a batch, in flight. A handle: dropping it neither cancels nor waits.
//
// Threads: any, several at once. It may outlive its group, whose end ends it.
class TC_API EngineWork {
 public:
  EngineWork() noexcept = default;  // done
  EngineWork(const EngineWork& other) noexcept;
  EngineWork(EngineWork&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
  EngineWork& operator=(EngineWork other) noexcept {
    std::swap(task_, other.task_);
    return *this;
  }
  ~EngineWork();

  // Whether it has ended, well or not; its memory may be used again then.
  bool done() const noexcept;
  // The same after a look at the links, unless another thread is looking.
  bool poll() noexcept;
  // Makes progress until it has ended. Throws its error, each time.
  void wait();
  // Does not throw its error. False: not within `limit`; it goes on.
  bool wait_for(std::chrono::milliseconds limit);
  // Of a receive from kAnySource that has ended well: who has sent; else kAnySource.
  int source() const noexcept;
  // Of a call that ended badly, else nullptr. Valid as long as this handle.
  const CommError* error() const noexcept;

 private:
  friend class EngineGroup;
  friend class Window;
  explicit EngineWork(Task* task) noexcept : task_(task) {}
  Task* task_ = nullptr;
};

}  // namespace torch::comms::ctran
