#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/handles.hpp"
#include "bootstrap/exchange/answer.hpp"

namespace torch::comms::bootstrap {

// A connection that came: a guest of the Reception, then a client. It is told one thing, and
// closed.
class Incoming {
 public:
  base::FileDescriptor socket;
  int round = -1;                       // that it asks for; -1: a guest
  std::unique_ptr<ReplyReader> reader;  // of a client, which may still tell that it has failed

  void say(std::unique_ptr<AnswerWriter> answer);
  void say(const std::string& bytes);
  // Something was said, and is not all with the kernel yet.
  bool closing() const noexcept { return closing_; }

  enum class State : uint8_t { kMore, kDone, kLost };
  // Sends what the socket takes. Does not block.
  State flush();

 private:
  std::unique_ptr<AnswerWriter> writer_;
  std::string out_;
  size_t sent_ = 0;
  bool closing_ = false;
};

}  // namespace torch::comms::bootstrap
