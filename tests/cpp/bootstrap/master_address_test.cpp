#include "bootstrap/master_address.hpp"

#include <gtest/gtest.h>

#include <torchcomms/base/error.hpp>

#include "bootstrap/variables.hpp"

namespace torch::comms::bootstrap {
namespace {

LaunchInfo launched_by(const std::string& source, int size, std::optional<int> local_size = {},
                       std::string job = "42.0") {
  return {.rank = 0,
          .size = size,
          .source = source,
          .evidence = "R=0, N=4",
          .local_rank = 0,
          .local_size = local_size,
          .job = std::move(job)};
}

std::string error_of(const Variables& variables, const LaunchInfo& launch) {
  try {
    const auto master = find_master_address(lookup_in(variables), launch);
    ADD_FAILURE() << "found " << master.host << ":" << master.port;
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kInvalidArgument);
    return e.what();
  }
  return {};
}

void expect_fragments(const std::string& text, const std::vector<std::string>& fragments) {
  for (const auto& fragment : fragments) EXPECT_NE(text.find(fragment), std::string::npos) << text;
}

TEST(FindMaster, MasterAddrAndPortWin) {
  const auto master = find_master_address(
      lookup_in(
          {{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29501"}, {"SLURM_STEP_NODELIST", "a,b"}}),
      launched_by("Slurm", 4, 4));
  EXPECT_EQ(master.host, "node7");
  EXPECT_EQ(master.port, 29501);
  EXPECT_EQ(master.source, "MASTER_ADDR");
  EXPECT_FALSE(master.is_inferred);
}

TEST(FindMaster, MasterAddrIsAHostNameOrAnAddress) {
  const auto launch = launched_by("Slurm", 4);
  for (const char* host :
       {"node7", "node-7.example.org", "node_7", "worker.0", "example.org.", "10.0.0.1", "127.1",
        "0.0.0.0", "::1", "2001:db8::7", "fe80::1%eth0", "::ffff:10.0.0.1"})
    EXPECT_EQ(
        find_master_address(lookup_in({{"MASTER_ADDR", host}, {"MASTER_PORT", "1"}}), launch).host,
        host);
}

TEST(FindMaster, AMasterAddrThatIsNeitherIsRefusedNamingTheValueAndWhatIsAllowed) {
  for (const char* host : {"[::1]",
                           "tcp://host",
                           "http://10.0.0.1",
                           "host:29500",
                           "10.0.0.1:29500",
                           "[::1]:29500",
                           "node 7",
                           "a,b",
                           "node[1-4]",
                           "300.1.1.1",
                           "10.0.0.1.5",
                           "a..b",
                           ".a",
                           ".",
                           "%eth0",
                           "fe80::1%",
                           "1::2::3",
                           "user@host",
                           "host/path",
                           "n\xc3\xb6"
                           "de"})
    expect_fragments(
        error_of({{"MASTER_ADDR", host}, {"MASTER_PORT", "1"}}, launched_by("Slurm", 4)),
        {"MASTER_ADDR='" + std::string(host) + "'", "host name", "IPv6 address without brackets",
         "MASTER_PORT"});
}

TEST(FindMaster, AllRanksOnOneHostMeetOnTheLoopback) {
  const auto master = find_master_address(lookup_in({}), launched_by("Open MPI", 4, 4));
  EXPECT_EQ(master.host, "127.0.0.1");
  EXPECT_TRUE(master.is_inferred);
}

TEST(FindMaster, SlurmsFirstHostServes) {
  const auto launch = launched_by("Slurm", 4);
  EXPECT_EQ(find_master_address(lookup_in({{"SLURM_JOB_NODELIST", "gpu[07-09],x1"}}), launch).host,
            "gpu07");
  const auto step = find_master_address(
      lookup_in({{"SLURM_JOB_NODELIST", "a,b"}, {"SLURM_STEP_NODELIST", "b,c"}}), launch);
  EXPECT_EQ(step.host, "b");
  EXPECT_EQ(step.source, "the first host of SLURM_STEP_NODELIST");
  EXPECT_TRUE(step.is_inferred);
  EXPECT_EQ(find_master_address(lookup_in({{"SLURM_STEP_NODELIST", "gpu07"}}), launch).host,
            "127.0.0.1");
}

TEST(FindMaster, SlurmsHostsServeUnderTheNamesOfPmiToo) {
  const auto launch = launched_by("PMI", 4, 2);
  const auto found = find_master_address(
      lookup_in({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[03-04]"}}), launch);
  EXPECT_EQ(found.host, "gpu03");
  EXPECT_TRUE(found.is_inferred);
  expect_fragments(error_of({{"SLURM_STEP_NODELIST", "gpu[03-04]"}}, launch),
                   {"MASTER_ADDR is unset"});
}

// The variables' forms as OpenOperation MPI 4.1.4 and 5.0.11 set them.
TEST(FindMaster, OpenMpisOwnHostServes) {
  const auto launch = launched_by("Open MPI", 4, 2);
  EXPECT_EQ(
      find_master_address(
          lookup_in({{"OMPI_MCA_orte_hnp_uri", "1790902273.0;tcp://10.0.0.5,172.17.0.1:39843"}}),
          launch)
          .host,
      "10.0.0.5");
  EXPECT_EQ(
      find_master_address(lookup_in({{"PMIX_NAMESPACE", "prterun-gpu-07-12465@1"}}), launch).host,
      "gpu-07");
}

TEST(FindMaster, UnknownFormsAreNoAddress) {
  const auto launch = launched_by("Open MPI", 4, 2);
  for (const char* text :
       {"", "prterun-", "prterun-1@1", "prterun--1@1", "1790902273", "prterun-host"})
    expect_fragments(error_of({{"PMIX_NAMESPACE", text}}, launch),
                     {"MASTER_ADDR is unset", "Open MPI", "Set MASTER_ADDR"});
  for (const char* text : {"", "7.0;tcp://", "7.0;tcp://:1", "7.0;usock"})
    expect_fragments(error_of({{"OMPI_MCA_orte_hnp_uri", text}}, launch), {"MASTER_ADDR is unset"});
}

TEST(FindMaster, WithoutAnAddressTheErrorTellsWhatToSet) {
  expect_fragments(error_of({{"MASTER_PORT", "1234"}}, launched_by("torchrun", 4, {}, "")),
                   {"no store was passed", "MASTER_ADDR is unset", "torchrun (R=0, N=4)",
                    "Set MASTER_ADDR", "pass store="});
  expect_fragments(error_of({{"MASTER_ADDR", "h"}}, launched_by("torchrun", 4, {}, "")),
                   {"MASTER_PORT is unset", "no job id", "Set MASTER_ADDR"});
}

TEST(FindMaster, ABadNodeListIsAnError) {
  expect_fragments(error_of({{"SLURM_STEP_NODELIST", "gpu[1-"}}, launched_by("Slurm", 4)),
                   {"node list 'gpu[1-'"});
}

TEST(FindMaster, ABadPortNamesItsText) {
  for (const char* port : {"0", "65536", "-1", "29500a", "http", "2.5"})
    expect_fragments(
        error_of({{"MASTER_ADDR", "h"}, {"MASTER_PORT", port}}, launched_by("torchrun", 4)),
        {"MASTER_PORT='" + std::string(port) + "'", "1 to 65535"});
}

TEST(FindMaster, ThePortFollowsTheJob) {
  const auto port = [](const std::string& job) {
    return find_master_address(lookup_in({{"MASTER_ADDR", "h"}}), launched_by("Slurm", 4, {}, job))
        .port;
  };
  EXPECT_EQ(port("42.0"), port("42.0"));
  EXPECT_EQ(port("42.0"), 29301);  // FNV-1a by hand: every rank and every version must agree
  std::map<int, int> ports;
  for (int job = 0; job < 1000; ++job) {
    const auto p = port(std::to_string(job) + ".0");
    EXPECT_GE(p, 20000);
    EXPECT_LT(p, 30000);
    ++ports[p];
  }
  EXPECT_GT(ports.size(), 900u);
}

}  // namespace
}  // namespace torch::comms::bootstrap
