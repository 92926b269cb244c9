#include "ctran/selection/tuning.hpp"

#include <array>
#include <charconv>
#include <limits>

#include <torchcomms/base/error.hpp>

#include "ctran/selection/field_parser.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Operation;

constexpr std::string_view kLinkNames = "self, shm, tcp";
constexpr double kMostNs = 1e9;
constexpr int64_t kMostBytes = int64_t{1} << 62;
constexpr int kMostRanks = 1 << 20;

// Adds `word` to a list with commas, unless it is already there.
void join(std::string& text, std::string_view word) {
  if (text.find(word) != std::string::npos &&
      (", " + text + ",").find(", " + std::string(word) + ",") != std::string::npos)
    return;
  if (!text.empty()) text += ", ";
  text += word;
}

std::string operation_names() {
  std::string names;
  for (const auto* algorithm : schedule::algorithms())
    join(names, operation_name(algorithm->operation));
  return names;
}

std::string algorithm_names(Operation operation) {
  std::string names;
  for (const auto* algorithm : schedule::algorithms())
    if (algorithm->operation == operation) join(names, algorithm->name);
  return names;
}

const schedule::Algorithm& algorithm_of(FieldParser& fields, Operation operation) {
  const std::string allowed = algorithm_names(operation);
  const auto text = fields.word("algorithm", allowed);
  const auto* algorithm = schedule::find_algorithm(operation, text);
  if (algorithm == nullptr) fields.fail("algorithm", text, allowed);
  return *algorithm;
}

Operation operation_of(FieldParser& fields) {
  const std::string allowed = operation_names();
  const auto text = fields.word("operation", allowed);
  for (const auto* algorithm : schedule::algorithms())
    if (operation_name(algorithm->operation) == text) return algorithm->operation;
  fields.fail("operation", text, allowed);
}

// Parses lines into a Tuning.
class TuningParser {
 public:
  explicit TuningParser(const std::string& source) { tuning_.source = source; }

  void line(size_t number, std::string_view text) {
    text = text.substr(0, text.find('#'));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
    FieldParser fields(tuning_.source, number, text);
    if (!header_) return header(fields);
    constexpr std::string_view kKinds = "cache, wire, use, kernel";
    const auto kind = fields.word("kind of line", kKinds);
    if (kind == "cache")
      cache(fields);
    else if (kind == "wire")
      wire(fields);
    else if (kind == "use")
      use(fields);
    else if (kind == "kernel")
      kernel(fields);
    else
      fields.fail("kind of line", kind, kKinds);
    fields.require_end();
  }

  Tuning result(size_t last_line) && {
    if (!header_)
      FieldParser(tuning_.source, last_line, {}).fail("version", {}, "torchcomms tuning 1");
    return std::move(tuning_);
  }

 private:
  void header(FieldParser& fields) {
    fields.literal("torchcomms");
    fields.literal("tuning");
    const auto version = fields.word("version", "1");
    if (version != "1") fields.fail("version", version, "1");
    fields.require_end();
    header_ = true;
  }

  void require_once(FieldParser& fields, std::string_view field, bool& seen) {
    if (seen) fields.fail(field, "repeated line", "one line");
    seen = true;
  }

  void cache(FieldParser& fields) {
    require_once(fields, "cache", cache_);
    fields.literal("near_bytes");
    tuning_.constants.cache_bytes = fields.number("near_bytes", 1e15);
    fields.literal("far");
    tuning_.constants.uncached_factor = fields.number("far", 1000);
  }

  static size_t link_number(FieldParser& fields) {
    const auto text = fields.word("wire", kLinkNames);
    for (size_t i = 0; i < kLinkTypes; ++i)
      if (name(static_cast<LinkType>(i)) == text) return i;
    fields.fail("wire", text, kLinkNames);
  }

  void wire(FieldParser& fields) {
    const size_t index = link_number(fields);
    constexpr std::string_view kCoreSharing = "apart, crowded";
    const auto core_sharing = fields.word("how ranks share cores", kCoreSharing);
    if (core_sharing != "apart" && core_sharing != "crowded")
      fields.fail("how ranks share cores", core_sharing, kCoreSharing);
    const bool oversubscribed = core_sharing == "crowded";
    require_once(fields, "wire", links_[index * 2 + (oversubscribed ? 1 : 0)]);
    auto& row =
        (oversubscribed ? tuning_.constants.oversubscribed : tuning_.constants.uncontended)[index];
    fields.literal("step_ns");
    row.step_ns = fields.number("step_ns", kMostNs);
    fields.literal("message_ns");
    row.message_ns = fields.number("message_ns", kMostNs);
    fields.literal("byte_ps");
    row.byte_ps = fields.number("byte_ps", kMostNs);
    fields.literal("reduce_ps");
    row.reduce_ps = fields.number("reduce_ps", kMostNs);
  }

  void require_space(size_t lines, const char* kind) const {
    if (lines == kMaxOverrides)
      throw CommError(Errc::kTooLarge, tuning_.source + " has more than " +
                                           std::to_string(kMaxOverrides) + " lines '" + kind +
                                           "', the most that are allowed");
  }

  void kernel(FieldParser& fields) {
    require_space(tuning_.kernels.size(), "kernel");
    tuning_.kernels.push_back(parse_kernel_line(fields));
  }

  void use(FieldParser& fields) {
    require_space(tuning_.overrides.size(), "use");
    TuningOverride row;
    row.operation = operation_of(fields);
    fields.literal("wire");
    row.link = static_cast<LinkType>(link_number(fields));
    fields.literal("ranks");
    const auto ranks = fields.integer_range("ranks", 1, kMostRanks);
    row.ranks_min = static_cast<int>(ranks.first);
    row.ranks_max = static_cast<int>(ranks.last);
    fields.literal("bytes");
    const auto bytes = fields.integer_range("bytes", 0, kMostBytes);
    row.bytes_min = bytes.first;
    row.bytes_max = bytes.last;
    fields.literal("algorithm");
    row.algorithm = &algorithm_of(fields, row.operation);
    fields.literal("chunk_bytes");
    row.chunk_bytes = fields.integer("chunk_bytes", kMostBytes);
    tuning_.overrides.push_back(row);
  }

  Tuning tuning_;
  bool header_ = false, cache_ = false;
  std::array<bool, kLinkTypes * 2> links_ = {};
};

// Returns the shortest text that parses to the same number, whatever the locale.
std::string text_of(double value) {
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string link_line(LinkType link, const char* core_sharing, const LinkCost& row) {
  return "wire " + std::string(name(link)) + " " + core_sharing + " step_ns " +
         text_of(row.step_ns) + " message_ns " + text_of(row.message_ns) + " byte_ps " +
         text_of(row.byte_ps) + " reduce_ps " + text_of(row.reduce_ps) + "\n";
}

}  // namespace

Tuning parse_tuning(std::string_view text, const std::string& source) {
  if (text.size() > kMaxTuningBytes)
    throw CommError(Errc::kTooLarge, source + " has " + std::to_string(text.size()) +
                                         " bytes; at most " + std::to_string(kMaxTuningBytes) +
                                         " bytes are allowed");
  TuningParser parser(source);
  size_t number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    parser.line(++number, text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return std::move(parser).result(number);
}

std::string to_text(const Tuning& tuning) {
  const auto& constants = tuning.constants;
  std::string text = "torchcomms tuning 1\ncache near_bytes " + text_of(constants.cache_bytes) +
                     " far " + text_of(constants.uncached_factor) + "\n";
  for (size_t i = 0; i < kLinkTypes; ++i) {
    text += link_line(static_cast<LinkType>(i), "apart", constants.uncontended[i]);
    text += link_line(static_cast<LinkType>(i), "crowded", constants.oversubscribed[i]);
  }
  for (const auto& row : tuning.overrides)
    text += "use " + std::string(operation_name(row.operation)) + " wire " +
            std::string(name(row.link)) + " ranks " + std::to_string(row.ranks_min) + ".." +
            std::to_string(row.ranks_max) + " bytes " + std::to_string(row.bytes_min) + ".." +
            std::to_string(row.bytes_max) + " algorithm " + std::string(row.algorithm->name) +
            " chunk_bytes " + std::to_string(row.chunk_bytes) + "\n";
  for (const auto& row : tuning.kernels) text += to_text(row) + "\n";
  return text;
}

}  // namespace torch::comms::ctran
