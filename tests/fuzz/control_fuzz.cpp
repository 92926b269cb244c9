// What ranks of a group tell each other beside their operations, and the words made of it.

#include "ctran/engine/control/control_channel.hpp"
#include "fuzz.hpp"
#include "monitor/monitor_message.hpp"

namespace ctran = torch::comms::ctran;
using torch::comms::fuzz::require;
using torch::comms::monitor::MonitorMessage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = torch::comms::fuzz::text_of(data, size);
  try {
    const auto notice = ctran::ControlMessage::parse(text);
    require(ctran::ControlMessage::parse(notice.serialize()).serialize() == notice.serialize());
  } catch (const torch::comms::CommError&) {  // says what is wrong
  }
  try {
    const auto message = MonitorMessage::parse(text, 4);
    require(MonitorMessage::parse(message.serialize(), 4).serialize() == message.serialize());
    const auto seen = message.statuses.progress_report(4, message.number, {});
    require(seen.format().size() < 4096 && seen.culprits().size() <= 4);
  } catch (const torch::comms::CommError&) {
  }
  return 0;
}
