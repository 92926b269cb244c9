#pragma once

#include <memory>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::fr {

// Where FlightRecorderHook::dump_file() puts a dump. Replaceable: derive, and registerWriter().
class TC_API DebugInfoWriter {
 public:
  virtual ~DebugInfoWriter() = default;

  // Keeps `trace`, a whole dump. Default: in the file getWriterTarget(), written beside it and
  // renamed, so that a reader never sees half a dump. Throws CommError(kSystem). Any thread.
  virtual void write(const std::string& trace);

  // The name of the file. Default: TORCHCOMM_FR_DUMP_TEMP_FILE and the rank; with
  // TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME the variable's text at each call, as it stands.
  virtual std::string getWriterTarget();

  // The registered writer, else one for `rank`. Lives as long as somebody holds it.
  static std::shared_ptr<DebugInfoWriter> getWriter(int rank);
  // Takes the place of the default for every rank; nullptr brings that back.
  static void registerWriter(std::unique_ptr<DebugInfoWriter> writer);

 protected:
  DebugInfoWriter(const std::string& name_prefix, int rank, bool dynamic_file_name = false);

 private:
  std::string file_name_;
  bool dynamic_file_name_;
};

}  // namespace torch::comms::fr
