#include "ctran/select/told.hpp"

#include <torchcomms/base/error.hpp>

namespace torch::comms::ctran {
namespace {

// What follows the GPU: a file's text, or why there is none.
constexpr char kText = '+', kWhyNot = '-';

}  // namespace

std::string tell_tuning(const std::string& path, std::string_view gpu) {
  const auto head = std::string(gpu) + '\n';
  try {
    return head + kText + read_tuning_file(path);
  } catch (const CommError& e) {
    return head + kWhyNot + e.why();
  }
}

Told read_told(std::string_view told) {
  const auto end = told.find('\n');
  if (end == std::string_view::npos || end + 1 == told.size())
    throw CommError(Errc::kMismatch, "what rank 0 told of its tuning is too short");
  Told made{.tuning = {}, .gpu = std::string(told.substr(0, end))};
  const auto rest = told.substr(end + 2);
  if (told[end + 1] != kText) throw CommError(Errc::kSystem, "on rank 0: " + std::string(rest));
  if (!rest.empty()) made.tuning = parse_tuning(rest, "rank 0's tuning file");
  return made;
}

}  // namespace torch::comms::ctran
