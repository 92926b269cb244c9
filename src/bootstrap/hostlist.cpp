#include "bootstrap/hostlist.hpp"

#include <cctype>
#include <cstdint>

#include <torchcomms/base/error.hpp>

#include "base/text/utf8.hpp"

namespace torch::comms::bootstrap {
namespace {

constexpr size_t kHosts = 65'536;
constexpr size_t kTextBytes = 1 << 20;
constexpr size_t kDigits = 9;  // digits of one number: fits 32 bits

// list  := name (',' name)*        name  := (literal | '[' range (',' range)* ']')+
// range := digits ('-' digits)?
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<std::string> list() {
    std::vector<std::string> hosts;
    do {
      auto more = name();
      check_count(hosts.size() + more.size());
      hosts.insert(hosts.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    } while (take(','));
    if (at_ < text_.size()) refuse("unexpected '" + std::string(1, text_[at_]) + "'");
    return hosts;
  }

 private:
  std::vector<std::string> name() {
    std::vector<std::string> names = {""};
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',') {
      if (take('[')) {
        names = product(names, bracket());
      } else {
        for (auto& n : names) n += text_[at_];
        literal();
      }
    }
    if (at_ == begin) refuse("a host name is missing");
    return names;
  }

  void literal() {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (!std::isalnum(c) && c != '-' && c != '.' && c != '_')
      refuse("'" + std::string(1, text_[at_]) + "' cannot be in a host name");
    ++at_;
  }

  std::vector<std::string> bracket() {
    std::vector<std::string> numbers;
    do range(numbers);
    while (take(','));
    if (!take(']')) refuse("']' is missing");
    return numbers;
  }

  void range(std::vector<std::string>& numbers) {
    const std::string_view first = digits();
    const std::string_view last = take('-') ? digits() : first;
    const uint32_t from = value(first), to = value(last);
    if (to < from)
      refuse("the range " + std::string(first) + "-" + std::string(last) + " runs backwards");
    check_count(numbers.size() + (to - from) + 1);
    for (uint32_t n = from; n <= to; ++n) {
      std::string number = std::to_string(n);
      if (number.size() < first.size()) number.insert(0, first.size() - number.size(), '0');
      numbers.push_back(std::move(number));
    }
  }

  std::string_view digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin) refuse("a number is missing");
    if (at_ - begin > kDigits) refuse("a number has more than 9 digits");
    return text_.substr(begin, at_ - begin);
  }

  static uint32_t value(std::string_view digits) {
    uint32_t n = 0;
    for (char c : digits) n = n * 10 + static_cast<uint32_t>(c - '0');
    return n;
  }

  std::vector<std::string> product(const std::vector<std::string>& heads,
                                   const std::vector<std::string>& tails) const {
    check_count(heads.size() * tails.size());
    std::vector<std::string> all;
    all.reserve(heads.size() * tails.size());
    for (const auto& head : heads)
      for (const auto& tail : tails) all.push_back(head + tail);
    return all;
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  static void check_count(size_t hosts) {
    if (hosts > kHosts)
      throw CommError(Errc::kTooLarge, "the node list names more than 65536 hosts");
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw CommError(Errc::kInvalidArgument,
                    "node list '" + std::string(base::utf8_prefix(text_, 200)) +
                        "' cannot be parsed: " + why + " at character " + std::to_string(at_ + 1));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view text) {
  if (text.size() > kTextBytes)
    throw CommError(Errc::kTooLarge, "the node list is longer than 1 MiB");
  return Parser(text).list();
}

}  // namespace torch::comms::bootstrap
