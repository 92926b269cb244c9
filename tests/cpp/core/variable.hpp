#pragma once

#include <cstdlib>
#include <optional>
#include <string>

// An environment variable that holds `text` (nullptr: unset) while this lives.
class Variable {
 public:
  Variable(const char* name, const char* text) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    put(text);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { put(before_ ? before_->c_str() : nullptr); }

 private:
  void put(const char* text) const {
    if (text != nullptr)
      ::setenv(name_.c_str(), text, 1);
    else
      ::unsetenv(name_.c_str());
  }
  std::string name_;
  std::optional<std::string> before_;
};
