// Checks the library of kernels on the GPUs that are there, or measures it beside NCCL.
//
//   torchcomms_kernels_test --library LIBRARY [check] [SUITE...] [--ranks 2-8] [--seed N]
//                           [--first-launch N] [--quick] [--first-part]
//   torchcomms_kernels_test --library LIBRARY measure [COLLECTIVE...] [--ranks N] [--bytes A-B]
//                           [--all] [--blocks 8,16] [--rounds N] [--nccl LIBRARY] [--json FILE]
//                           [--first-part]
//
// COLLECTIVE: all_reduce and the like, or of messages send, send_recv, all_to_all_v. Of all_gather,
// all_to_all and broadcast the column "region" has outputs that peers write themselves, of
// reductions inputs that they read where they lie; "region_copies" is by copy engines, of
// all_reduce with blocks of --blocks that add; with --all, "region_stores" by threads alone.
//
// Of messages the column "straight" is written to its place by the sender.
//
// --first-launch: 1048526 and 268435406 come by the ends of what flags have of a launch.
//
// --first-part: messages go through the first part of a workspace alone.
//
// Ranks are in one process; with fewer GPUs than ranks, several share one.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "measure.hpp"
#include "suites.hpp"

namespace {

using namespace native;

const std::map<std::string, void (*)(const kernels::KernelFunctionTable&, const Settings&)>
    kSuites = {{"arithmetic", check_arithmetic},
               {"device_alltoallv", check_device_alltoallv},
               {"exchange", check_exchange},
               {"gpe", check_gpe},
               {"graphs", check_graphs},
               {"large", check_large},
               {"mismatch", check_mismatch},
               {"reduce_scatter_quantized", check_reduce_scatter_quantized},
               {"regions", check_regions},
               {"sequences", check_sequences},
               {"shapes", check_shapes},
               {"stops", check_stops}};

struct Arguments {
  std::string library;
  bool measures = false;
  Settings settings;
  Measuring measuring;
  std::vector<std::string> names;
};

[[noreturn]] void refuse(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(2);
}

uint64_t number(const std::string& text) {
  char* end = nullptr;
  uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str()) refuse("not a number: " + text);
  const std::string_view unit = end;
  if (unit == "K")
    value <<= 10;
  else if (unit == "M")
    value <<= 20;
  else if (unit == "G")
    value <<= 30;
  else if (!unit.empty())
    refuse("not a number: " + text);
  return value;
}
// "2-8", or "4" for both.
std::pair<uint64_t, uint64_t> range(const std::string& text) {
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return {number(text), number(text)};
  return {number(text.substr(0, dash)), number(text.substr(dash + 1))};
}

Arguments parse(int argc, char** argv) {
  Arguments all;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) refuse(argument + " needs a value");
      return argv[i];
    };
    if (argument == "--library") {
      all.library = value();
    } else if (argument == "--ranks") {
      const auto [least, most] = range(value());
      if (least < 2 || most > 8 || least > most) refuse("--ranks: from 2 to 8");
      all.settings.least_ranks = static_cast<int>(least);
      all.settings.most_ranks = all.measuring.ranks = static_cast<int>(most);
    } else if (argument == "--seed") {
      all.settings.seed = number(value());
    } else if (argument == "--first-launch") {
      all.settings.first_launch = number(value());
    } else if (argument == "--quick") {
      all.settings.quick = true;
    } else if (argument == "--first-part") {
      World::lacks_rest = true;
    } else if (argument == "--bytes") {
      std::tie(all.measuring.least_bytes, all.measuring.most_bytes) = range(value());
    } else if (argument == "--all") {
      all.measuring.all_algorithms = true;
    } else if (argument == "--blocks") {
      std::string rest = value();
      for (char* one = std::strtok(rest.data(), ","); one != nullptr;
           one = std::strtok(nullptr, ","))
        all.measuring.blocks.push_back(static_cast<int>(number(one)));
    } else if (argument == "--rounds") {
      all.measuring.rounds = static_cast<int>(number(value()));
    } else if (argument == "--nccl") {
      all.measuring.nccl = value();
    } else if (argument == "--json") {
      all.measuring.json = value();
    } else if (argument == "measure") {
      all.measures = true;
    } else if (argument.starts_with("--")) {
      refuse("no option " + argument);
    } else if (argument != "check") {
      all.names.push_back(argument);
    }
  }
  if (all.library.empty()) refuse("--library LIBRARY is missing");
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments all = parse(argc, argv);
  int failures = 0;
  try {
    const kernels::KernelFunctionTable& library = open_library(all.library);
    if (all.measures) {
      all.measuring.collectives = all.names;
      if (all.names.empty()) all.measuring.collectives = {"all_reduce"};
      measure(library, all.measuring);
      return 0;
    }
    for (const auto& [name, suite] : kSuites) {
      if (!all.names.empty() && std::ranges::find(all.names, name) == all.names.end()) continue;
      try {
        suite(library, all.settings);
      } catch (const std::exception& fault) {
        std::printf("FAILED %s: %s\n", name.c_str(), fault.what());
        std::fflush(stdout);
        ++failures;
      }
    }
  } catch (const std::exception& fault) {
    std::printf("FAILED: %s\n", fault.what());
    return 1;
  }
  std::printf(failures == 0 ? "all right\n" : "%d suites failed\n", failures);
  return failures == 0 ? 0 : 1;
}
