#pragma once

#include <memory>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::fr {

// Writes the dumps of FlightRecorderHook::dump_file(). A program replaces it with a derived class
// and registerWriter().
class TC_API DebugInfoWriter {
 public:
  virtual ~DebugInfoWriter() = default;

  // Stores `trace`, a whole dump. The default writes to a temporary file and renames it to
  // getWriterTarget(), so that a reader never sees half a dump.
  // Throws: CommError(kSystem).
  // Threads: any.
  virtual void write(const std::string& trace);

  // Returns: the file name. The default is TORCHCOMM_FR_DUMP_TEMP_FILE followed by the rank. With
  // TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME each call reads that variable again and uses its text as it
  // is.
  virtual std::string getWriterTarget();

  // Returns: the registered writer, otherwise one for `rank`. The caller shares ownership.
  static std::shared_ptr<DebugInfoWriter> getWriter(int rank);
  // Replaces the default writer for every rank; nullptr restores the default.
  static void registerWriter(std::unique_ptr<DebugInfoWriter> writer);

 protected:
  DebugInfoWriter(const std::string& name_prefix, int rank, bool dynamic_file_name = false);

 private:
  std::string file_name_;
  bool dynamic_file_name_;
};

}  // namespace torch::comms::fr
