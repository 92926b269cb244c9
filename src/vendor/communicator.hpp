#pragma once

#include <torchcomms/base/error.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "vendor/first_error.hpp"
#include "vendor/vendor_library.hpp"

namespace torch::comms::nccl {

using Clock = std::chrono::steady_clock;

// The deadline of a call, how it can be interrupted, and what its errors say. The functions are
// called on the thread that waits, and only when needed.
struct WaitOptions {
  Clock::time_point deadline;
  std::function<std::string()> timeout_text;  // of the error after the deadline; not empty
  std::function<Context()> context;           // of every error; empty: none
  std::function<void()> interrupt_check;      // called every 50 ms or more often; may throw
};

// One communicator of a vendor library.
//
// With `config.blocking` 0, calls of the library may return "in progress", each served by a thread
// of the library. The methods here wait for them and end early on abort() and at the deadline.
// Otherwise the calling thread launches operations, which is about ten times faster. Calls that
// wait for other ranks (connect, split, shrink, windows, close) then run on a thread of torchcomms,
// which is abandoned at the deadline. Only one thread at a time is in the library, except for
// abandoned ones.
//
// Throws: CommError: kVendor with the library's own text; kPeerFailed if the library reports a
// peer; kTimeout; kFinalized if it is not connected; kResourceExhausted if no thread can be
// started; kUnsupported if the library has no such function; kInvalidArgument by a built-in
// library; or the reason passed to cancel() or abort(). What WaitOptions::interrupt_check throws.
// Threads: one at a time, except abort(), cancel(), failure(), check_async() and handle(): any.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Makes the unique id that other ranks need to connect with this rank.
  static std::string make_id(const VendorLibrary& library, const Context& context);
  // What a thread runs before it calls the library: makes its device current. Empty: nothing.
  using Prepare = std::function<void()>;
  // Connects with all ranks that pass the same `id`.
  // Blocks: until all ranks are connected, at most until the deadline.
  static std::shared_ptr<Communicator> connect(std::shared_ptr<const VendorLibrary> library,
                                               int size, int rank, const std::string& id,
                                               abi::Config config, Prepare prepare,
                                               const WaitOptions& wait);
  // A connect in progress, for a rank that does other work meanwhile. wait() is called at most
  // once. Without it, a blocking connect ends when all ranks have connected, and a nonblocking one
  // is aborted. The destructor blocks until then, at most 0.7 s.
  class PendingCommInit {
   public:
    PendingCommInit(PendingCommInit&&) noexcept = default;
    PendingCommInit& operator=(PendingCommInit&&) = delete;
    ~PendingCommInit();
    std::shared_ptr<Communicator> wait(const WaitOptions& wait);

   private:
    friend class Communicator;
    PendingCommInit() = default;
    std::shared_ptr<Communicator> communicator_;
    std::future<abi::Result> result_;
  };
  // Begins connect() without waiting. `context` is for errors of the begin.
  static PendingCommInit begin_connect(std::shared_ptr<const VendorLibrary> library, int size,
                                       int rank, const std::string& id, abi::Config config,
                                       Prepare prepare, const Context& context);
  // Takes ownership of a communicator that is connected already, and whose calls block.
  static std::shared_ptr<Communicator> adopt(std::shared_ptr<const VendorLibrary> library,
                                             abi::Comm comm, int size, int rank, Prepare prepare);
  // Aborts what is left of the communicator. A communicator that has not failed is destroyed
  // instead, if the library is built in or cannot abort.
  // Blocks: at most 0.7 s.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const VendorLibrary& library() const noexcept { return *library_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // Returns: the number of ranks in the library's communicator. It differs from size() if the ranks
  // of a split() passed different groups. Returns size() if the library has no CommCount.
  int count();
  // Returns: whether calls of the library block.
  bool is_blocking() const noexcept { return is_blocking_; }
  // Returns: the library's communicator; null before it is connected and after it has ended.
  abi::Comm handle() const noexcept {
    return std::atomic_ref(comm_).load(std::memory_order_acquire);
  }

  // Splits the communicator; collective over all ranks. `color` kNoColor gives null. `key` orders
  // the ranks of a color; this rank will be `rank` of `size`. After any exception, abort this
  // communicator, too: the library may still be working on the split.
  std::shared_ptr<Communicator> split(int color, int key, int rank, int size, abi::Config config,
                                      const WaitOptions& wait);

  // Makes a communicator without the ranks in `excluded_ranks`, in ascending order; collective over
  // the ranks that stay. Each rank moves up by the number of excluded ranks before it. Operations
  // of this communicator are aborted, and it is unusable afterwards; on error it is aborted.
  // `prepare`: of the new communicator.
  // Throws: kUnsupported, without effect, if the library cannot shrink.
  std::shared_ptr<Communicator> shrink(const std::vector<int>& excluded_ranks, abi::Config config,
                                       Prepare prepare, const WaitOptions& wait);

  // Runs several calls of the library as one group. `body` returns the first result that is not
  // success. `wait` returns the WaitOptions, and is called only if the library reports "in
  // progress" or an error.
  // Throws: kSystem for a CommError of `body`, because some of its operations may have started. Any
  // other exception of `body` passes through, and fails the communicator.
  template <class Body, class MakeWait>
  void group(const Body& body, const MakeWait& wait) {
    auto lock = enter();
    library_->GroupStart();
    abi::Result result = abi::kSuccess;
    // The group is also ended after an error: an open group would capture the thread's next calls.
    try {
      result = body(*library_, handle());
    } catch (const CommError& e) {
      library_->GroupEnd();
      throw CommError(Errc::kSystem, std::string(kCutShort) + ": " + e.why(), e.context());
    } catch (...) {
      library_->GroupEnd();
      cancel({Errc::kSystem, kCutShort});
      throw;
    }
    const abi::Result end = library_->GroupEnd();
    if (result == abi::kSuccess || result == library_->vendor().in_progress) result = end;
    complete_call(lock, result, wait);
  }
  // Runs a single call of the library outside of a group.
  template <class Body, class MakeWait>
  void call(const Body& body, const MakeWait& wait) {
    auto lock = enter();
    complete_call(lock, body(*library_, handle()), wait);
  }

  // Registers memory that operations will use.
  // Returns: a registration for deregister_memory().
  // Throws: kUnsupported, without effect, if the library has no registration.
  void* register_memory(void* data, size_t size_bytes, const WaitOptions& wait);
  void deregister_memory(void* registration, const WaitOptions& wait);

  // Registers a window; collective. All ranks pass memory of the same size, aligned to
  // abi::kWindowAlignment. The library must have the functions; see
  // VendorLibrary::require_one_sided().
  // Throws: kUnsupported if the library makes no window of this memory.
  abi::Window open_window(void* data, size_t size_bytes, const WaitOptions& wait);
  void close_window(abi::Window window, const WaitOptions& wait);

  // Makes `other`, of the same ranks, a child of this communicator. Its errors count as errors of
  // this one, and it is aborted and closed together with this one. detach_child() removes it.
  void attach_child(std::shared_ptr<Communicator> other);
  void detach_child(const Communicator& other);

  // Returns: an error of an operation in the background, of a child, too. Null if there is none, if
  // failure() is set, or while another thread is in the library. It does not block. `context` is
  // called only for an error.
  std::exception_ptr check_async(const std::function<Context()>& context) noexcept;

  // Fails all current and later calls with `why`, unless an earlier reason exists. Operations on
  // the device go on until abort().
  // Returns: whether `why` is the first reason.
  bool cancel(const CommError& why) noexcept;
  // As cancel(), and aborts all operations of this communicator and its children on this rank. If
  // the library cannot abort, it is only cancel().
  // Returns: whether `why` is the first reason.
  // Blocks: until the library's abort has returned, at most 0.7 s; then a thread is left behind.
  // While graphs hold operations, the library's abort does not return.
  bool abort(const CommError& why) noexcept;
  const FirstError& failure() const noexcept { return failure_; }

  // Closes the communicator cleanly, and its children before it; collective. All operations must be
  // complete. If it throws, abort the communicator.
  void close(const WaitOptions& wait);

 private:
  static constexpr const char* kCutShort =
      "a group of calls was interrupted, and some of its operations may have started";
  Communicator(std::shared_ptr<const VendorLibrary> library, int size, int rank, bool blocks,
               Prepare prepare);
  using Lock = std::unique_lock<std::mutex>;
  Lock enter();
  // Makes `config` refer to strings of this object, which live as long as the library's
  // communicator.
  void copy_strings(abi::Config& config);
  // Waits while `result` is "in progress".
  // Throws: for any other result but success.
  template <class MakeWait>
  void complete_call(Lock& lock, abi::Result result, const MakeWait& wait) {
    if (result != abi::kSuccess) wait_while_in_progress(lock, result, wait());
  }
  void wait_while_in_progress(Lock& lock, abi::Result result, const WaitOptions& wait);
  // Runs a call that waits for other ranks; `body` must own the objects that it uses.
  using Body = std::function<abi::Result()>;
  void run(Lock& lock, Body body, const WaitOptions& wait);
  // run() in two steps.
  std::future<abi::Result> begin(Body body, const Context& context);
  void finish(Lock& lock, std::future<abi::Result>& result, const WaitOptions& wait);
  // Runs `body`, which makes the library communicator of `child`; null: only other ranks get one.
  void create_child(const std::shared_ptr<Communicator>& child, Body body, const WaitOptions& wait);
  CommError error_of(abi::Result result, const Context& context) const;
  abi::Comm release_handle() noexcept;
  // The library function that ends a communicator.
  using DestroyFunction = abi::Result (*)(abi::Comm);
  std::future<abi::Result> destroy_async(DestroyFunction end, abi::Comm comm) const;
  // An abort in progress. The lock keeps other threads from beginning another one.
  struct PendingAbort {
    Lock lock;
    std::future<abi::Result> result;
  };
  // Begins the aborts of this communicator and of its children.
  void begin_abort(Clock::time_point until, std::vector<PendingAbort>& endings);
  void wait_until(std::future<abi::Result>& result, Clock::time_point until) const noexcept;

  const std::shared_ptr<const VendorLibrary> library_;
  const int size_, rank_;
  const bool is_blocking_;
  const Prepare prepare_;
  std::mutex mutex_;  // held while a thread is in the library; partner of aborted_
  std::condition_variable aborted_;
  // The strings that the library's configuration refers to; the library may outlive this object.
  using Names = std::array<std::string, 2>;
  const std::shared_ptr<Names> names_ = std::make_shared<Names>();
  // Null before the communicator exists and after it has ended. abort() may take the handle away
  // while another thread is in the library, so it is read only through handle().
  mutable abi::Comm comm_ = nullptr;
  FirstError failure_;
  std::vector<std::shared_ptr<Communicator>> children() const;
  mutable std::mutex children_mutex_;  // guards children_
  std::vector<std::shared_ptr<Communicator>> children_;
};

}  // namespace torch::comms::nccl
