#include <algorithm>
#include <stdexcept>

#include <pybind11/stl.h>

#include <torchcomms/base/error.hpp>

#include "base/text/utf8.hpp"
#include "bindings/bindings.hpp"
#include "ctran/selection/algorithm_selection.hpp"

namespace torch::comms::bindings {
namespace {

using ctran::AlgorithmSelection;
using schedule::Algorithm;
using schedule::Operation;
using schedule::Problem;

py::list list_algorithms() {
  constexpr const char* kAdditions[] = {"none", "rank order", "fixed"};
  py::list list;
  for (const Algorithm* algorithm : schedule::algorithms()) {
    py::dict row;
    row["operation"] = std::string(operation_name(algorithm->operation));
    row["name"] = std::string(algorithm->name);
    row["summary"] = std::string(algorithm->summary);
    row["source"] = std::string(algorithm->source);
    row["addition"] = kAdditions[static_cast<size_t>(algorithm->reduction_order)];
    row["order"] = std::string(algorithm->order_text);
    list.append(row);
  }
  return list;
}

Operation operation_of(const std::string& text) {
  for (const Algorithm* algorithm : schedule::algorithms())
    if (operation_name(algorithm->operation) == text) return algorithm->operation;
  throw CommError(Errc::kInvalidArgument, "unknown operation '" + text + "'");
}

ctran::LinkType wire_of(const std::string& text) {
  for (size_t i = 0; i < ctran::kLinkTypes; ++i)
    if (name(static_cast<ctran::LinkType>(i)) == text) return static_cast<ctran::LinkType>(i);
  throw CommError(Errc::kInvalidArgument, "wire is '" + text + "', allowed are self, shm and tcp");
}

// Returns: the problem as rank 0 sees it, with equal blocks if the operation has blocks.
Problem problem_of(Operation operation, int ranks, int64_t count, int local_size, int64_t chunk) {
  try {
    const schedule::AlgorithmOptions options{.chunk = chunk, .local_size = local_size};
    switch (operation) {
      case Operation::kSend:
      case Operation::kReceive:
        return vector_problem(operation, 0, ranks, count, ranks - 1, options);
      case Operation::kGather:
      case Operation::kScatter:
      case Operation::kAllGather:
      case Operation::kReduceScatter:
        return block_problem(operation, 0, schedule::Blocks::even(count, ranks), 0, options);
      case Operation::kAllToAll: {
        const auto blocks = schedule::Blocks::equal(count / std::max(ranks, 1), ranks);
        return all_to_all_problem(0, blocks, blocks, options);
      }
      case Operation::kBarrier:
        count = 0;
        [[fallthrough]];
      default:
        return vector_problem(operation, 0, ranks, count, 0, options);
    }
  } catch (const std::invalid_argument& e) {
    throw CommError(Errc::kInvalidArgument, e.what());
  }
}

// The question of a caller: an operation of a given size among given ranks.
struct Case {
  Operation operation;
  int ranks;
  int64_t bytes;
  ctran::ElementSizes element;
  int local_size;
  ctran::TopologyFacts facts;

  Case(const std::string& operation_name, int ranks, int64_t bytes, int64_t element_bytes,
       int local_size, const std::string& wire, int cores)
      : operation(operation_of(operation_name)),
        ranks(ranks),
        bytes(bytes),
        local_size(local_size),
        facts{wire_of(wire), local_size, cores} {
    if (element_bytes < 1)
      throw CommError(Errc::kInvalidArgument, "element_bytes is " + std::to_string(element_bytes) +
                                                  ", allowed is 1 or more");
    element.bytes = static_cast<size_t>(element_bytes);
  }

  Problem problem(int64_t chunk) const {
    return problem_of(operation, ranks, bytes / static_cast<int64_t>(element.bytes), local_size,
                      chunk);
  }
};

py::object cost_of(const Algorithm& algorithm, const Case& about, const ctran::Tuning& tuning,
                   int64_t chunk_bytes) {
  const Problem plain = about.problem(0);
  py::dict row;
  row["name"] = std::string(algorithm.name);
  row["why_not"] = std::string(algorithm.unsupported_reason(plain));
  if (!algorithm.unsupported_reason(plain).empty()) return row;
  const auto best =
      ctran::select_algorithm(plain, about.element, about.facts, tuning,
                              {.algorithm = algorithm.name, .chunk_bytes = chunk_bytes});
  const auto bytes = static_cast<int64_t>(about.element.bytes);
  const auto cost = algorithm.cost(about.problem(best.chunk));
  row["chunk_bytes"] = best.chunk * bytes;
  row["estimate_us"] = best.estimate_ns / 1000;
  row["steps"] = cost.steps;
  row["messages"] = cost.messages;
  row["sent_bytes"] = cost.sent * bytes;
  row["received_bytes"] = cost.received * bytes;
  row["reduced_bytes"] = cost.reduced * bytes;
  row["scratch_bytes"] = cost.scratch * bytes;
  return row;
}

ctran::Tuning tuning_of(const std::string& text, const std::string& source) {
  return text.empty() ? ctran::Tuning() : ctran::parse_tuning(text, source);
}

py::dict dict_of(const std::string& gpu, const ctran::kernels::SelectionRow& measured) {
  py::dict row;
  row["operation"] = std::string(name_of(measured.collective));
  row["gpu"] = gpu;
  row["ranks"] = py::make_tuple(measured.ranks.first, measured.ranks.last);
  row["bytes"] = py::make_tuple(measured.bytes.first, measured.bytes.last);
  row["kind"] = std::string(name_of(measured.kind));
  row["tensors"] = std::string(name_of(measured.memory));
  row["within"] = measured.block_limit;
  row["mode"] = std::string(name_of(measured.mode));
  row["algorithm"] = std::string(ctran::format_algorithm(measured));
  row["blocks"] = measured.blocks;
  return row;
}

}  // namespace

void bind_ctran(py::module_& module) {
  module.def("_algorithms", &list_algorithms,
             "list[dict]: every algorithm: operation, name, summary, source, addition, order.");
  module.def(
      "_algorithm_costs",
      [](const std::string& operation, int ranks, int64_t bytes, int64_t element_bytes,
         int local_size, const std::string& wire, int cores, const std::string& tuning,
         int64_t chunk_bytes) {
        const Case about(operation, ranks, bytes, element_bytes, local_size, wire, cores);
        const auto known = tuning_of(tuning, "tuning");
        py::list rows;
        for (const Algorithm* algorithm : schedule::algorithms())
          if (algorithm->operation == about.operation)
            rows.append(cost_of(*algorithm, about, known, chunk_bytes));
        return rows;
      },
      py::arg("operation"), py::arg("ranks"), py::arg("bytes"), py::arg("element_bytes"),
      py::arg("local_size"), py::arg("wire"), py::arg("cores"), py::arg("tuning"),
      py::arg("chunk_bytes"),
      "list[dict]: the cost of each algorithm of the operation: steps, messages and bytes of its "
      "most expensive rank, and the model's time; `why_not` if it cannot run.");
  module.def(
      "_select_algorithm",
      [](const std::string& operation, int ranks, int64_t bytes, int64_t element_bytes,
         int local_size, const std::string& wire, int cores, const std::string& tuning) {
        const Case about(operation, ranks, bytes, element_bytes, local_size, wire, cores);
        const auto chosen = ctran::select_algorithm(about.problem(0), about.element, about.facts,
                                                    tuning_of(tuning, "tuning"));
        py::dict row;
        row["algorithm"] = std::string(chosen.algorithm->name);
        row["chunk_bytes"] = chosen.chunk * static_cast<int64_t>(about.element.bytes);
        row["why"] = std::string(format_reason(chosen.reason));
        row["estimate_us"] = chosen.estimate_ns / 1000;
        return row;
      },
      py::arg("operation"), py::arg("ranks"), py::arg("bytes"), py::arg("element_bytes"),
      py::arg("local_size"), py::arg("wire"), py::arg("cores"), py::arg("tuning"),
      "dict: the choice of backend 'ctran': algorithm, chunk_bytes, why, estimate_us.");
  module.def(
      "_tuning_path", [] { return ctran::find_tuning_file().path; },
      "Path of this machine's tuning file; '' without a home folder.");
  module.def(
      "_tuning_text", [] { return base::replace_invalid_utf8(ctran::read_tuning_file()); },
      "Text of this machine's tuning file; '' if there is none.");
  module.def("_tuning_word", &ctran::to_word, py::arg("name"),
             "A GPU's model as tuning files spell it: 'nvidia-h200'.");
  module.def(
      "_kernel_rows",
      [](const std::string& text) {
        py::list rows;
        for (const auto& [gpu, row] : tuning_of(text, "tuning").kernels)
          rows.append(dict_of(gpu, row));
        return rows;
      },
      py::arg("tuning"), "list[dict]: the lines 'kernel' of a tuning, by their fields.");
  module.def(
      "_check_tuning",
      [](const std::string& text, const std::string& source) {
        return to_text(ctran::parse_tuning(text, source));
      },
      py::arg("text"), py::arg("source"),
      "A tuning with every constant named. Raises InvalidArgument naming source, line and field.");
}

}  // namespace torch::comms::bindings
