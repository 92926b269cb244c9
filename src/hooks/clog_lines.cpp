#include "hooks/clog_lines.hpp"

#include <array>
#include <charconv>
#include <type_traits>
#include <variant>

#include "hooks/operation_tensors.hpp"

namespace torch::comms {
namespace {

using List = c10::SmallVector<const at::Tensor*, 4>;

std::string_view short_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return "f32";
    case c10::ScalarType::Double:
      return "f64";
    case c10::ScalarType::Half:
      return "f16";
    case c10::ScalarType::BFloat16:
      return "bf16";
    case c10::ScalarType::Int:
      return "i32";
    case c10::ScalarType::Long:
      return "i64";
    case c10::ScalarType::Short:
      return "i16";
    case c10::ScalarType::Char:
      return "i8";
    case c10::ScalarType::Byte:
      return "u8";
    case c10::ScalarType::Bool:
      return "bool";
    case c10::ScalarType::Float8_e4m3fn:
      return "fp8e4m3";
    case c10::ScalarType::Float8_e5m2:
      return "fp8e5m2";
    default:
      return "other";
  }
}

std::string_view short_name(RedOpType op) {
  switch (op) {
    case RedOpType::SUM:
      return "sum";
    case RedOpType::PRODUCT:
      return "prod";
    case RedOpType::MIN:
      return "min";
    case RedOpType::MAX:
      return "max";
    case RedOpType::BAND:
      return "band";
    case RedOpType::BOR:
      return "bor";
    case RedOpType::BXOR:
      return "bxor";
    case RedOpType::PREMUL_SUM:
      return "premul_sum";
    case RedOpType::AVG:
      return "avg";
  }
  return "other";
}

class ClogFields {
 public:
  void add(std::string_view key, std::string_view value) {
    if (!text_.empty()) text_ += '|';
    text_.append(key).append(1, '=').append(value);
  }
  void add(std::string_view key, bool value) { add(key, std::string_view(value ? "t" : "f")); }
  void add(std::string_view key, int64_t value) {
    add(key, std::string_view(std::to_string(value)));
  }

  // Adds "key=1,2,3", where `text_of` formats each element.
  template <class Elements, class TextOf>
  void list(std::string_view key, const Elements& elements, const TextOf& text_of) {
    std::string value;
    for (const auto& element : elements) value += (value.empty() ? "" : ",") + text_of(element);
    add(key, std::string_view(value));
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string count(const at::Tensor* tensor) { return std::to_string(tensor->numel()); }

std::string address(const at::Tensor* tensor) {
  std::array<char, 16> digits{};
  const auto value = reinterpret_cast<uintptr_t>(
      tensor->has_storage() ? static_cast<const void*>(tensor->const_data_ptr()) : nullptr);
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

int64_t total(const List& tensors) {
  int64_t sum = 0;
  for (const auto* tensor : tensors) sum += tensor->numel();
  return sum;
}

template <class Op>
constexpr bool has_list = requires(const Op& op) {
  requires std::is_same_v<std::remove_cvref_t<decltype(op.input)>, Tensors> ||
               std::is_same_v<std::remove_cvref_t<decltype(op.output)>, Tensors>;
};

template <class Op>
void add_sizes(ClogFields& fields, const Op& op, const OperationTensors& tensors) {
  if constexpr (requires { op.input_split_sizes; }) {
    const auto text = [](uint64_t rows) { return std::to_string(rows); };
    fields.list("in_splits", op.input_split_sizes, text);
    fields.list("out_splits", op.output_split_sizes, text);
  } else if constexpr (has_list<Op>) {
    fields.list("in_counts", tensors.inputs, count);
    fields.list("out_counts", tensors.outputs, count);
  } else {
    fields.add("in_count", total(tensors.inputs));
    fields.add("out_count", total(tensors.outputs));
  }
  const auto* any = !tensors.inputs.empty()    ? tensors.inputs.front()
                    : !tensors.outputs.empty() ? tensors.outputs.front()
                                               : nullptr;
  fields.add("dtype", any != nullptr ? short_name(any->scalar_type()) : std::string_view("other"));
}

template <class Op>
std::string fields_of(const Op& op, bool addresses) {
  ClogFields fields;
  const OperationTensors tensors = operation_tensors(op);
  if constexpr (requires { op.tensor; } || requires { op.input; }) add_sizes(fields, op, tensors);
  if constexpr (requires { op.num_ops; }) fields.add("num_ops", static_cast<int64_t>(op.num_ops));
  if constexpr (requires { op.op; }) fields.add("red_op", short_name(op.op.type()));
  if constexpr (requires { op.root; }) fields.add("root", int64_t{op.root});
  if constexpr (requires { op.peer; }) fields.add("peer", int64_t{op.peer});
  fields.add("async_op", op.async_op);
  if (addresses && tensors.in_place) fields.list("buf", tensors.inputs, address);
  if (addresses && !tensors.in_place) {
    if (!tensors.inputs.empty()) fields.list("in", tensors.inputs, address);
    if (!tensors.outputs.empty()) fields.list("out", tensors.outputs, address);
  }
  return fields.take();
}

}  // namespace

std::string clog_fields(const PreHookArgs& args, bool addresses) {
  return std::visit(
      [&](const auto& op) -> std::string {
        if constexpr (requires { op.async_op; }) return fields_of(op, addresses);
        return "";
      },
      args);
}

std::string clog_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte != 0x7f && c != '|' && c != '\\') {
      plain += c;
      continue;
    }
    plain += "\\x";
    for (const int digit : {byte >> 4, byte & 15}) plain += "0123456789abcdef"[digit];
  }
  return plain;
}

}  // namespace torch::comms
