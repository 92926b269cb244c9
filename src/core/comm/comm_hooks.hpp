#pragma once

#include <optional>

#include <torchcomms/comm.hpp>

#include "core/work/hook_list.hpp"

namespace torch::comms {

// The hooks of a communicator.
struct TorchComm::Hooks {
  // Runs the hooks of one operation. Once its pre-hooks have started, either the post-hooks or the
  // unposted hooks follow.
  class HookScope;

  HookList<PreHook> pre;
  HookList<PostHook> post;
  HookList<UnpostedHook> unposted;

  // Removes the pre-hooks and post-hooks, because no operation begins any more. If a hook called
  // finalize(), the owner of an unposted hook still sees the end of that operation.
  void clear_operation_hooks() {
    pre.clear();
    post.clear();
  }
};

class TorchComm::Hooks::HookScope {
 public:
  HookScope(const Hooks& hooks, size_t op_id) : hooks_(hooks), op_id_(op_id) {}
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;
  ~HookScope() {
    if (unposted_ && !hooks_.unposted.empty()) hooks_.unposted.call(op_id_, *unposted_);
  }

  template <class Op>
  void pre(const Op& op) {
    if (!hooks_.pre.empty()) hooks_.pre.call(op_id_, PreHookArgs(op));
    unposted_ = Unposted::kRaised;
  }
  template <class MakeArgs>
  void post(const MakeArgs& make_args) {
    if (!hooks_.post.empty()) hooks_.post.call(op_id_, PostHookArgs(make_args()));
    unposted_.reset();
  }
  void on_no_result() { unposted_ = Unposted::kLeft; }

 private:
  const Hooks& hooks_;
  const size_t op_id_;
  std::optional<Unposted> unposted_ = Unposted::kRefused;
};

}  // namespace torch::comms
