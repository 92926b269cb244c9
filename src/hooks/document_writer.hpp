#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch::comms::fr {

// Writes one tree of plain values, front to back. In a map, call key() before each value. Text is
// UTF-8; invalid bytes are written as U+FFFD.
class DocumentWriter {
 public:
  virtual ~DocumentWriter() = default;

  virtual void begin_map() = 0;
  virtual void end_map() = 0;
  virtual void begin_list() = 0;
  virtual void end_list() = 0;
  virtual void pair(std::string_view first, std::string_view second) = 0;
  virtual void text(std::string_view value) = 0;
  virtual void number(int64_t value) = 0;
  virtual void real(double value) = 0;
  virtual void flag(bool value) = 0;
  // Writes a time in ns; 0 means unknown.
  virtual void time(int64_t value_ns) = 0;
  virtual void key(std::string_view name) = 0;
};

// Writes JSON text. A pair is a list; an unknown time is 0.
class JsonWriter : public DocumentWriter {
 public:
  void begin_map() override { open('{'); }
  void end_map() override { close('}'); }
  void begin_list() override { open('['); }
  void end_list() override { close(']'); }
  void pair(std::string_view first, std::string_view second) override;
  void text(std::string_view value) override;
  void number(int64_t value) override;
  void real(double value) override;
  void flag(bool value) override;
  void time(int64_t value_ns) override { number(value_ns); }
  void key(std::string_view name) override;

  std::string finish() { return std::move(out_); }

 private:
  void open(char bracket);
  void close(char bracket);
  void separate();
  void quote(std::string_view value);

  std::string out_;
  bool first_ = true;  // no element precedes the next one
};

// Writes a pickle of protocol 2 without classes. A pair is a tuple; an unknown time is None.
// [Python: Lib/pickletools.py describes the opcodes]
class PickleWriter : public DocumentWriter {
 public:
  PickleWriter() : out_("\x80\x02", 2) {}
  void begin_map() override { out_ += "}("; }
  void end_map() override { out_ += 'u'; }
  void begin_list() override { out_ += "]("; }
  void end_list() override { out_ += 'e'; }
  void pair(std::string_view first, std::string_view second) override;
  void text(std::string_view value) override;
  void number(int64_t value) override;
  void real(double value) override;
  void flag(bool value) override { out_ += value ? '\x88' : '\x89'; }
  void time(int64_t value_ns) override;
  void key(std::string_view name) override { text(name); }

  std::string finish() { return std::move(out_ += '.'); }

 private:
  std::string out_;
};

}  // namespace torch::comms::fr
