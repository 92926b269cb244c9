#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <torchcomms/base/export.hpp>

#include "transport/sizes.hpp"

namespace torch::comms::transport {

// How large messages between processes of a host move: copied by their receiver out of the sender's
// memory, or by both ends through the channel, each on its core. Where the two cores share a cache
// the channel can be the faster one, where they share none it takes several times as long; and
// cores of a virtual machine change that as it runs. So whichever took clearly less the last times
// is chosen, and the other one tried now and then: a few messages, of which the fastest counts, for
// the first one finds its data in the wrong caches. Measured with two ranks on two virtual cores of
// an AMD EPYC: broadcasts of 16 MB take 1.7 ms through the channel and 2.7 ms copied, some minutes
// later 6.0 and 3.0.
//
// Of the messages of one peer. Threads: one at a time.
class TC_API CopyChoice {
 public:
  enum class Way : uint8_t { kFetch, kChannel };

  // Messages of `first` bytes and less are one class, of up to twice as many the next one, and so
  // on. Those of over `most_fetched` begin with the channel.
  explicit CopyChoice(uint64_t first, uint64_t most_fetched = UINT64_MAX) noexcept;
  Way next(uint64_t bytes) noexcept;
  // What that will say.
  Way upcoming(uint64_t bytes) const noexcept;
  // The way of one that is not timed.
  Way usual(uint64_t bytes) const noexcept { return class_of(bytes).usual; }
  // Whether that was ever timed.
  bool knows(uint64_t bytes) const noexcept { return class_of(bytes).ns_a_byte > 0; }
  // What a message took that next() was asked for; a time without end if it could not go that way.
  void took(Way way, uint64_t bytes, std::chrono::nanoseconds time) noexcept;
  size_t class_number(uint64_t bytes) const noexcept;
  // What is known of a time, 0 if nothing, with one more: an interruption says little.
  static double averaged(double known, double now) noexcept;

 private:
  // The other way is tried after so many messages, and more seldom the longer it is not better;
  // soon again where the usual one has become slow. Where it is known to be worse, and not by a few
  // messages alone, its tries take no more than a part of the time, as far as the last interval
  // allows.
  static constexpr uint32_t kFirstTry = 8, kLastTry = 256, kTries = 3;
  static constexpr uint32_t kMostGrowth = 4;  // of an interval, at a time
  static constexpr double kMostLost = 0.03;
  struct SizeClass {
    Way usual = Way::kFetch;
    double ns_a_byte = 0, least = 0;  // of the usual way: now, and since it has been that
    double tried = 0;                 // of the other one, the least of the last tries
    uint32_t interval = kFirstTry, until_try = kFirstTry, tries = 0;
  };
  static void judge(SizeClass& known) noexcept;
  static uint32_t soonest(const SizeClass& known) noexcept;
  SizeClass& class_of(uint64_t bytes) noexcept { return classes_[class_number(bytes)]; }
  const SizeClass& class_of(uint64_t bytes) const noexcept { return classes_[class_number(bytes)]; }
  static Way upcoming(const SizeClass& known) noexcept;

  uint64_t first_;
  std::array<SizeClass, 16> classes_;
};

}  // namespace torch::comms::transport
