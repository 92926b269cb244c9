#include "bindings/classes/repr.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "base/text/utf8.hpp"
#include "core/options/dtype_name.hpp"

namespace torch::comms::bindings {
namespace {

constexpr size_t kMostErrorBytes = 200;

std::string seconds(std::chrono::milliseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", static_cast<double>(time.count()) / 1000.0);
  return text.data();
}

std::string text_of(const Hints& hints) {
  std::string text;
  for (const auto& [key, value] : std::map<std::string, std::string>(hints.begin(), hints.end())) {
    text += text.empty() ? "'" : ", '";
    text += key + "': '" + value + "'";
  }
  return "{" + text + "}";
}

// Returns: "float32 [2, 3] on cpu".
std::string text_of(c10::ScalarType dtype, at::IntArrayRef shape, const at::Device& device) {
  std::string sizes;
  for (const int64_t size : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return dtype_name(dtype) + " [" + sizes + "] on " + device.str();
}

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  return text_of(tensor.scalar_type(), tensor.sizes(), tensor.device());
}

std::string format_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    const std::string text = e.what();
    const std::string line = text.substr(0, text.find('\n'));
    return line.size() > kMostErrorBytes
               ? std::string(base::utf8_prefix(line, kMostErrorBytes)) + "..."
               : line;
  }
}

std::string_view text_of(WorkStatus status) {
  switch (status) {
    case WorkStatus::NOT_STARTED:
      return "not started";
    case WorkStatus::INPROGRESS:
      return "in progress";
    case WorkStatus::COMPLETED:
      return "completed";
    case WorkStatus::TIMEDOUT:
      return "timed out";
    default:
      return "failed";
  }
}

void add(std::string& text, const std::string& part) {
  if (!text.empty() && !part.empty()) text += ", ";
  text += part;
}

}  // namespace

std::string bracketed(const std::string& name, const std::string& text) {
  return text.empty() ? "<" + name + ">" : "<" + name + " " + text + ">";
}

std::string text_of(std::chrono::milliseconds timeout, const Hints& hints) {
  std::string text;
  if (timeout != kNoTimeout) add(text, "timeout " + seconds(timeout));
  if (!hints.empty()) add(text, "hints " + text_of(hints));
  return text;
}

std::string repr(const TorchComm& comm) {
  return bracketed("TorchComm", "'" + std::string(comm.getCommName()) + "' on " +
                                    comm.getBackend() + ", " + comm.getDevice().str() + ", " +
                                    comm.standing());
}

std::string repr(const TorchWork& work) {
  const auto error = work.error();
  std::string text(text_of(work.status()));
  if (error) text += ": " + format_error(error);
  return bracketed("TorchWork", text);
}

std::string repr(const TorchCommWindow& window) {
  if (window.get_size() == 0 && !window.get_tensor())
    return bracketed("TorchCommWindow", "without memory");
  return bracketed("TorchCommWindow",
                   "of " + std::to_string(window.get_size()) + " bytes, " +
                       text_of(window.getDtype(), window.getShape(), window.getDevice()));
}

std::string repr(const ReduceOp& op) {
  std::string text = "ReduceOp." + std::string(toString(op.type()));
  const auto* factor = op.factor();
  if (factor == nullptr) return text;
  if (const auto* tensor = std::get_if<at::Tensor>(factor))
    return text + "(" + text_of(*tensor) + ")";
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%g", std::get<double>(*factor));
  return text + "(" + number.data() + ")";
}

std::string repr(const P2POp& entry) {
  const bool sends = entry.type == P2POpType::SEND;
  return bracketed("P2POp", std::string(sends ? "send of " : "receive of ") +
                                text_of(entry.tensor) + (sends ? " to rank " : " from rank ") +
                                std::to_string(entry.peer));
}

std::string repr(const BatchSendRecv& batch) {
  const auto sends = std::count_if(batch.ops.begin(), batch.ops.end(),
                                   [](const P2POp& op) { return op.type == P2POpType::SEND; });
  const auto receives = static_cast<ptrdiff_t>(batch.ops.size()) - sends;
  return bracketed("BatchSendRecv", "of " + std::to_string(sends) + " sends and " +
                                        std::to_string(receives) + " receives");
}

std::string repr(const CommOptions& options) {
  std::string text = text_of(options.timeout, options.hints);
  if (!options.name.empty()) add(text, "name '" + options.name + "'");
  if (options.store) add(text, "a store");
  if (options.enable_reconfigure) add(text, "to be connected by reconfigure()");
  add(text,
      options.abort_process_on_timeout_or_error ? "may end the process" : "never ends the process");
  return bracketed("CommOptions", text);
}

std::string repr(const ReconfigureOptions& options) {
  const auto count =
      std::visit([](const auto& handles) { return handles.size(); }, options.handles);
  std::string text = "uuid " + std::to_string(options.uuid);
  add(text, std::to_string(count) + " handles");
  add(text, text_of(options.timeout.value_or(kNoTimeout), options.hints));
  return bracketed("ReconfigureOptions", text);
}

}  // namespace torch::comms::bindings
