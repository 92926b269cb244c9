#include <atomic>
#include <exception>
#include <string>

#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>
#include <torchcomms/base/error.hpp>
#include <torchcomms/health_check.hpp>
#include <torchcomms/hooks/debug_info_writer.hpp>
#include <torchcomms/hooks/flight_recorder.hpp>

#include "base/concurrency/executor.hpp"
#include "base/os/log.hpp"

// The requests that PyTorch's worker control plane, and the debug server above it, can send to this
// process.
// Threads: the handlers run on threads of that server.
namespace torch::comms::fr {
namespace {

using c10d::control_plane::Request;
using c10d::control_plane::Response;

void respond(Response& response, int status, std::string body, const char* type) {
  response.setContent(std::move(body), type);
  response.setStatus(status);
}
void refuse(Response& response, int status, std::string why) {
  respond(response, status, std::move(why), "text/plain");
}

void health_check(const Request&, Response& response) {
  const bool healthy = !TorchCommsHealthCheck::get().isTimedOut();
  respond(response, 200, healthy ? R"({"healthy": true})" : R"({"healthy": false})",
          "application/json");
}

// Parses a boolean; "" leaves `value` unchanged. Returns: false for any other text.
bool read_flag(const std::string& text, bool& value) {
  if (text != "" && text != "true" && text != "false") return false;
  if (text != "") value = text == "true";
  return true;
}

void trace_json(const Request& request, Response& response) {
  bool collectives = true;
  bool only_active = false;
  for (const auto& [name, value] : request.params()) {
    bool* flag = name == "includecollectives" ? &collectives
                 : name == "onlyactive"       ? &only_active
                                              : nullptr;
    if (flag == nullptr)
      return refuse(
          response, 400,
          "unknown parameter '" + name + "', allowed are includecollectives and onlyactive");
    if (!read_flag(value, *flag))
      return refuse(response, 400, name + "='" + value + "' is neither true nor false");
  }
  try {
    respond(response, 200, FlightRecorder::get()->dump_json(!only_active, collectives),
            "application/json");
  } catch (const CommError& error) {
    refuse(response, 500, error.what());
  }
}

std::atomic<bool> dumping{false};

void dump(int rank) noexcept {
  try {
    DebugInfoWriter::getWriter(rank)->write(FlightRecorder::get()->dump_pickle());
  } catch (const std::exception& error) {
    base::log(base::LogLevel::kError,
              std::string("the flight recorder's dump was not written: ") + error.what());
  }
  dumping.store(false);
}

void dump_file(const Request&, Response& response) {
  const auto recorder = FlightRecorder::existing();
  const auto rank = recorder ? recorder->global_rank() : std::nullopt;
  if (!rank) return refuse(response, 503, "no communicator is registered with a flight recorder");
  if (dumping.exchange(true)) return refuse(response, 200, "a dump is being written");
  try {
    base::Executor::unshared().run([rank = *rank] { dump(rank); });
  } catch (const std::exception& error) {
    dumping.store(false);
    return refuse(response, 503, error.what());
  }
  refuse(response, 200, "the dump of rank " + std::to_string(*rank) + " is being written");
}

// The handlers are registered when the library is loaded, because a health check may come before
// any recorder exists.
[[maybe_unused]] const bool registered = [] {
  const std::pair<const char*, void (*)(const Request&, Response&)> handlers[] = {
      {"torchcomms_health_check", health_check},
      {"torchcomms_fr_trace_json", trace_json},
      {"torchcomms_fr_dump_file", dump_file},
  };
  for (const auto& [name, handler] : handlers) {
    try {
      c10d::control_plane::registerHandler(name, handler);
    } catch (const std::exception& error) {
      base::log(base::LogLevel::kWarning,
                std::string("control-plane handler ") + name + ": " + error.what());
    }
  }
  return true;
}();

}  // namespace
}  // namespace torch::comms::fr
