#include "bootstrap/launcher.hpp"

#include <torchcomms/base/launcher.hpp>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string_view>
#include <vector>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"

namespace torch::comms::bootstrap {
namespace {

using Names = std::vector<const char*>;
using Launcher = LauncherVariables;

constexpr const char* kSelector = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD";

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return text;
}

bool takes_part(const Launcher& row, const std::string& method) {
  const auto is = [&method](const char* name) { return method == name; };
  return row.methods.empty() || std::any_of(row.methods.begin(), row.methods.end(), is);
}

std::optional<int> number(const EnvLookup& lookup, const std::string& name) {
  const auto text = name.empty() ? std::nullopt : lookup(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, code] = std::from_chars(text->data(), end, value);
  if (code != std::errc{} || stop != end)
    throw CommError(Errc::kInvalidArgument, "environment variable " + name + "='" + *text +
                                                "' is not allowed: expected a whole number");
  return value;
}

const char* first_set(const EnvLookup& lookup, const Names& names) {
  for (const char* name : names)
    if (lookup(name)) return name;
  return names.front();
}

std::string assignment(const EnvLookup& lookup, const char* name) {
  const auto text = lookup(name);
  return std::string(name) + (text ? "=" + *text : " is unset");
}

std::string job_id(const EnvLookup& lookup, const Launcher& row) {
  std::string id;
  for (const char* name : row.job)
    if (const auto text = lookup(name)) id += (id.empty() ? "" : ".") + *text;
  return id;
}

std::optional<LaunchInfo> ask(const EnvLookup& lookup, const Launcher& row) {
  const char* size_name = first_set(lookup, row.sizes);
  const auto rank = number(lookup, row.rank);
  if (!rank) return std::nullopt;
  const auto size = number(lookup, size_name);
  if (!size || *rank < 0 || *size <= 0) return std::nullopt;
  if (*rank >= *size)
    throw CommError(Errc::kInvalidArgument, std::string(row.rank) + "=" + std::to_string(*rank) +
                                                " must be less than " + size_name + "=" +
                                                std::to_string(*size));
  return LaunchInfo{.rank = *rank,
                    .size = *size,
                    .source = row.name,
                    .evidence = assignment(lookup, row.rank) + ", " + assignment(lookup, size_name),
                    .local_rank = number(lookup, row.local_rank),
                    .local_size = number(lookup, row.local_size),
                    .job = job_id(lookup, row)};
}

std::string chosen_method(const EnvLookup& lookup) {
  return lower(lookup(kSelector).value_or("auto"));
}

// The selector variable is read untrimmed: an empty or padded value is an unknown method.
std::optional<std::string> variable(const std::string& name) {
  return name == kSelector ? base::env_raw(name) : base::env_text(name);
}

[[noreturn]] void nothing_found(const EnvLookup& lookup, const std::string& method) {
  std::string looked;
  for (const auto& row : launchers())
    if (takes_part(row, method))
      looked += (looked.empty() ? "" : "; ") + assignment(lookup, row.rank) + ", " +
                assignment(lookup, first_set(lookup, row.sizes));
  throw CommError(
      Errc::kInvalidArgument,
      "rank and size of this process are unknown. Start it with torchrun, mpirun or srun, "
      "or set TORCHCOMM_RANK and TORCHCOMM_SIZE (0 and 1 for a single process). Looked at: " +
          looked + " (" + kSelector + " is '" + method + "')");
}

}  // namespace

std::string describe(const LaunchInfo& launch) {
  return launch.source + (launch.evidence.empty() ? "" : " (" + launch.evidence + ")");
}

LaunchInfo discover_launch(const EnvLookup& lookup) {
  const std::string method = chosen_method(lookup);
  for (const auto& row : launchers())
    if (takes_part(row, method))
      if (auto launch = ask(lookup, row)) return *launch;
  nothing_found(lookup, method);
}

LaunchInfo discover() { return discover_launch(variable); }

std::optional<LaunchInfo> discover_job(const EnvLookup& lookup) {
  const std::string method = chosen_method(lookup);
  for (const auto& row : launchers())
    if (!row.methods.empty() && takes_part(row, method))
      if (auto launch = ask(lookup, row)) return launch;
  return std::nullopt;
}

std::optional<LaunchInfo> discover_job() { return discover_job(variable); }

}  // namespace torch::comms::bootstrap

namespace torch::comms {

// The launchers in the order in which they are tried. Slurm comes last: its variables are also set
// in the shell of a job, where another launcher may have started this process.
const std::vector<LauncherVariables>& launchers() {
  static const std::vector<LauncherVariables> rows = {
      // TORCHCOMM_RANK may number the ranks of a part of a job, so the number of ranks per host is
      // unknown.
      {"torchcomms' own variables", {}, "TORCHCOMM_RANK", {"TORCHCOMM_SIZE"}, "LOCAL_RANK", "", {}},
      {"Open MPI",
       {"auto", "mpi"},
       "OMPI_COMM_WORLD_RANK",
       {"OMPI_COMM_WORLD_SIZE"},
       "OMPI_COMM_WORLD_LOCAL_RANK",
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       {"PMIX_NAMESPACE"}},
      {"PMI",
       {"auto", "mpi"},
       "PMI_RANK",
       {"PMI_SIZE"},
       "MPI_LOCALRANKID",
       "MPI_LOCALNRANKS",
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID"}},
      {"PALS",
       {"auto", "pals"},
       "PALS_RANKID",
       {"PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"},
       "PALS_LOCAL_RANKID",
       "PALS_LOCAL_SIZE",
       {"PALS_APID"}},
      {"torchrun",
       {"auto", "torchrun"},
       "RANK",
       {"WORLD_SIZE"},
       "LOCAL_RANK",
       "LOCAL_WORLD_SIZE",
       {"TORCHELASTIC_RUN_ID"}},
      {"Slurm",
       {"auto", "slurm"},
       "SLURM_PROCID",
       {"SLURM_NTASKS"},
       "SLURM_LOCALID",
       "",
       {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
  };
  return rows;
}

std::pair<int, int> query_ranksize() {
  const auto launch = bootstrap::discover();
  return {launch.rank, launch.size};
}

}  // namespace torch::comms
