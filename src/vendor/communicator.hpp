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

// How long a call may take, who else may end it, and what its errors say: asked for when needed.
struct WaitOptions {
  Clock::time_point deadline;
  std::function<std::string()> timeout_text;  // of the error when that has passed
  std::function<Context()> context;           // of every error. Empty: none
  std::function<void()> interrupt_check;      // called now and then; may throw. Empty: nobody else
};

// One communicator of the library.
//
// Made with `config.blocking` 0, calls of the library may return before they are done ("in
// progress"), each by way of a thread of its own; the methods here wait for them, and end early on
// abort() and at their deadline. Else operations are launched by the calling thread, which is some
// ten times faster, and what waits for other ranks (to connect, to split, to leave) is on a thread
// of ours, which is left behind in the library at the deadline. One thread at a time is in the
// library, but for such a one.
//
// Threads: one at a time, except abort(), failure() and check_async(): any.
// Failure: CommError; kVendor with the library's own text, kPeerFailed where it says so, kTimeout,
// or what abort() was given.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Bytes that the others need to connect with this rank.
  static std::string make_id(const VendorLibrary& library, const Context& context);
  // What a thread does before it calls the library: makes its device current. Empty: nothing.
  using Prepare = std::function<void()>;
  // Connects with the others that have the same id.
  static std::shared_ptr<Communicator> connect(std::shared_ptr<const VendorLibrary> library,
                                               int size, int rank, const std::string& id,
                                               abi::Config config, Prepare prepare,
                                               const WaitOptions& wait);
  // The same, of a rank that does other things meanwhile. What nobody awaits ends when all have
  // connected; the destructor waits for that, but not for long.
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
  static PendingCommInit begin_connect(std::shared_ptr<const VendorLibrary> library, int size,
                                       int rank, const std::string& id, abi::Config config,
                                       Prepare prepare, const Context& context);
  // Of one that is connected already, which it takes over.
  static std::shared_ptr<Communicator> adopt(std::shared_ptr<const VendorLibrary> library,
                                             abi::Comm comm, int size, int rank, Prepare prepare);
  // Aborts what is still there, as abort().
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const VendorLibrary& library() const noexcept { return *library_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  // How many ranks the library has in it: another number than size() where ranks of a next_split()
  // did not say the same of it. size() where the library does not tell.
  int count();
  // Calls return when they are done.
  bool is_blocking() const noexcept { return is_blocking_; }
  abi::Comm handle() const noexcept {
    return std::atomic_ref(comm_).load(std::memory_order_acquire);
  }

  // Collective over all ranks; `color` kNoColor gives null. `key` orders the ranks with the same
  // color; this one will be `rank` of `size`. After an error, whatever is thrown, this communicator
  // is to be aborted, too: the library may still be at it.
  std::shared_ptr<Communicator> split(int color, int key, int rank, int size, abi::Config config,
                                      const WaitOptions& wait);

  // Of its ranks but `gone`, in rising order, collective over the others: each is as many places
  // further ahead as there were such before it. Ends what is under way on this one, which is of no
  // use afterwards, and aborted by an error. `prepare`: of the one that is made.
  std::shared_ptr<Communicator> shrink(const std::vector<int>& gone, abi::Config config,
                                       Prepare prepare, const WaitOptions& wait);

  // One or several calls of the library, as one group: `body` returns the first result that is no
  // success. `wait` gives the WaitOptions for the library's end of them, if it did not come back
  // with it.
  template <class Body, class MakeWait>
  void group(const Body& body, const MakeWait& wait) {
    auto lock = enter();
    library_->GroupStart();
    abi::Result result = abi::kSuccess;
    // Also after an error: a group that is open takes the next calls of this thread, too.
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
  // A single call that may not be part of a group.
  template <class Body, class MakeWait>
  void call(const Body& body, const MakeWait& wait) {
    auto lock = enter();
    complete_call(lock, body(*library_, handle()), wait);
  }

  // Tells the library of memory that operations will use; what it returns takes that back. Throws
  // kUnsupported, which changes nothing.
  void* register_memory(void* data, size_t size_bytes, const WaitOptions& wait);
  void deregister_memory(void* registration, const WaitOptions& wait);

  // Collective: makes a window of as many bytes on every rank, which begin at a multiple of
  // abi::kWindowAlignment. Throws kUnsupported where the library makes none of this memory.
  abi::Window open_window(void* data, size_t size_bytes, const WaitOptions& wait);
  void close_window(abi::Window window, const WaitOptions& wait);

  // `other`, of the same ranks, works for this one: what goes wrong there has gone wrong here, it
  // is aborted with this one, and closed with it. detach_child() ends that.
  void attach_child(std::shared_ptr<Communicator> other);
  void detach_child(const Communicator& other);

  // What went wrong behind the calls; null while all is well.
  std::exception_ptr check_async(const std::function<Context()>& context) noexcept;

  // Ends all calls that are under way, and all later ones: `why` is what they throw, if it was the
  // first reason, which is what it returns. Operations go on until abort().
  bool cancel(const CommError& why) noexcept;
  // The same, and ends all operations on this rank, and of those it has taken along. Returns when
  // the library is through, or after a second, and leaves a thread behind there: it does not end
  // while graphs hold operations.
  bool abort(const CommError& why) noexcept;
  const FirstError& failure() const noexcept { return failure_; }

  // Leaves in good order, with all operations done.
  void close(const WaitOptions& wait);

 private:
  static constexpr const char* kCutShort =
      "a group of calls was cut short, and some of them may have been sent";
  Communicator(std::shared_ptr<const VendorLibrary> library, int size, int rank, bool blocks,
               Prepare prepare);
  using Lock = std::unique_lock<std::mutex>;
  Lock enter();
  // Has it refer to text of this object's, which lives as long as the library's.
  void copy_strings(abi::Config& config);
  // Waits while `result` is "in progress"; throws for every other but success.
  template <class MakeWait>
  void complete_call(Lock& lock, abi::Result result, const MakeWait& wait) {
    if (result != abi::kSuccess) wait_while_in_progress(lock, result, wait());
  }
  void wait_while_in_progress(Lock& lock, abi::Result result, const WaitOptions& wait);
  // A call that waits for other ranks: `body` must own what it works on.
  using Body = std::function<abi::Result()>;
  void run(Lock& lock, Body body, const WaitOptions& wait);
  // The same in two steps.
  std::future<abi::Result> begin(Body body, const Context& context);
  void finish(Lock& lock, std::future<abi::Result>& result, const WaitOptions& wait);
  // Runs `body`, which has the library make `made` of this one; null: others alone get one.
  void create_child(const std::shared_ptr<Communicator>& made, Body body, const WaitOptions& wait);
  CommError error_of(abi::Result result, const Context& context) const;
  abi::Comm release_handle() noexcept;
  // What the library does with a communicator that is to end.
  using DestroyFunction = abi::Result (*)(abi::Comm);
  std::future<abi::Result> destroy_async(DestroyFunction end, abi::Comm comm) const;
  // An abort that is under way; nobody else may begin one.
  struct PendingAbort {
    Lock lock;
    std::future<abi::Result> result;
  };
  // Adds those of this one and of those it has taken along.
  void begin_abort(Clock::time_point until, std::vector<PendingAbort>& endings);
  void wait_until(std::future<abi::Result>& result, Clock::time_point until) const noexcept;

  const std::shared_ptr<const VendorLibrary> library_;
  const int size_, rank_;
  const bool is_blocking_;
  const Prepare prepare_;
  std::mutex mutex_;  // guards the library's state; partner of aborted_
  std::condition_variable aborted_;
  // That the library's configuration refers to; the library may outlive this object.
  using Names = std::array<std::string, 2>;
  const std::shared_ptr<Names> names_ = std::make_shared<Names>();
  // Null when it was never made, or is gone. Once the library has made it, abort() may take it from
  // under whoever is in the library: to be read by require_handle().
  mutable abi::Comm comm_ = nullptr;
  FirstError failure_;
  std::vector<std::shared_ptr<Communicator>> children() const;
  mutable std::mutex children_mutex_;  // guards along_
  std::vector<std::shared_ptr<Communicator>> children_;
};

}  // namespace torch::comms::nccl
