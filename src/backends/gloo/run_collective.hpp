#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "backends/gloo/collective_work.hpp"
#include "backends/gloo/gloo_backend.hpp"
#include "backends/gloo/gloo_group.hpp"

// Implements TorchCommGloo::run_collective(), through which every collective runs. Included by the
// files that implement the collectives.
namespace torch::comms {

namespace gloo {

// Selects run_collective() without a local step after Gloo is done.
struct NoFinish {};
inline constexpr NoFinish kNoFinish;

// Returns: the c10d option struct with the timeout and the async flag of the call.
template <class Options>
Options options_of(const GlooCall& call) {
  Options options;
  options.timeout = call.timeout;
  options.asyncOp = call.async_op;
  return options;
}

inline std::vector<NativeWorkPtr> as_list(NativeWorkPtr work) { return {std::move(work)}; }
inline std::vector<NativeWorkPtr> as_list(std::vector<NativeWorkPtr> works) { return works; }

}  // namespace gloo

template <class Issue, class Finish>
WorkPtr TorchCommGloo::run_collective(const gloo::GlooCall& call, const Issue& issue,
                                      Finish finish) {
  constexpr bool kFinishes = !std::is_same_v<Finish, gloo::NoFinish>;
  auto issued = [&] {
    try {
      return gloo::with_translated_errors(call, issue);
    } catch (const CommError& error) {
      throw explain_error(error);
    }
  }();
  if (call.async_op) {
    gloo::Finish later;
    if constexpr (kFinishes) later = std::move(finish);
    return gloo::CollectiveWork::start(call, gloo::as_list(std::move(issued)), std::move(later),
                                       *group_);
  }
  try {
    if constexpr (std::is_same_v<decltype(issued), gloo::NativeWorkPtr>) {
      gloo::wait_synchronously(call, issued, *group_);
    } else {
      for (const auto& native : issued) gloo::wait_synchronously(call, native, *group_);
    }
  } catch (const CommError& error) {
    if (error.code() == Errc::kTimeout) runAbortHooks();
    throw explain_error(error);
  }
  if constexpr (kFinishes) gloo::with_translated_errors(call, finish);
  return completedWork();
}

}  // namespace torch::comms
