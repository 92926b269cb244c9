#include "ctran/selection/shared_tuning.hpp"

#include <charconv>
#include <mutex>
#include <set>
#include <system_error>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"

namespace torch::comms::ctran {
namespace {

// What follows the GPU: the text of a file, or the code and text of an error.
constexpr char kTextMark = '+', kErrorMark = '-';

[[noreturn]] void rethrow(std::string_view error) {
  int code = 0;
  const auto [end, wrong] = std::from_chars(error.data(), error.data() + error.size(), code);
  if (wrong != std::errc{} || code < 0 || code > static_cast<int>(Errc::kInternal))
    throw CommError(Errc::kMismatch,
                    "protocol error: rank 0's tuning record has no error code; all ranks must run "
                    "the same torchcomms version");
  const std::string why(end, error.data() + error.size());
  throw CommError(static_cast<Errc>(code), "on rank 0:" + why);
}

// Whether this is the first warning about a file, which every communicator of the process reads.
bool is_first_warning(const std::string& path) {
  static std::mutex mutex;  // guards warned_paths
  static std::set<std::string> warned_paths;
  const std::lock_guard lock(mutex);
  return warned_paths.insert(path).second;
}

}  // namespace

std::string serialize_tuning(const TuningFile& file, std::string_view gpu) {
  const auto head = std::string(gpu) + '\n';
  try {
    const auto text = read_tuning_file(file);
    if (!text.empty()) static_cast<void>(parse_tuning(text, file.format_name()));
    return head + kTextMark + text;
  } catch (const CommError& e) {
    if (file.setting.empty()) {
      if (is_first_warning(file.path))
        base::log(base::LogLevel::kWarning,
                  e.why() +
                      "; algorithms are selected by the built-in constants. `torchcomms tune` "
                      "writes a new file");
      return head + kTextMark;
    }
    return head + kErrorMark + std::to_string(static_cast<int>(e.code())) + ' ' + e.why();
  }
}

SharedTuning parse_shared_tuning(std::string_view serialized) {
  const auto end = serialized.find('\n');
  if (end == std::string_view::npos || end + 1 == serialized.size())
    throw CommError(Errc::kMismatch, "protocol error: rank 0's tuning record is truncated (" +
                                         std::to_string(serialized.size()) +
                                         " bytes); all ranks must run the same torchcomms "
                                         "version");
  SharedTuning result{.tuning = {}, .gpu = std::string(serialized.substr(0, end))};
  const auto rest = serialized.substr(end + 2);
  if (serialized[end + 1] != kTextMark) rethrow(rest);
  if (!rest.empty()) result.tuning = parse_tuning(rest, "rank 0's tuning file");
  return result;
}

}  // namespace torch::comms::ctran
