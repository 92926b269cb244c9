#include "bootstrap/launcher.hpp"

#include <gtest/gtest.h>
#include <torchcomms/base/launcher.hpp>

#include <cstdlib>

#include <torchcomms/base/error.hpp>

#include "bootstrap/variables.hpp"

namespace torch::comms::bootstrap {
namespace {

constexpr const char* kMethod = "TORCHCOMM_BOOTSTRAP_RANKSIZE_QUERY_METHOD";

// Every launcher says another rank and size, so that the winner shows.
const Variables kAll = {
    {"TORCHCOMM_RANK", "1"},        {"TORCHCOMM_SIZE", "11"}, {"OMPI_COMM_WORLD_RANK", "2"},
    {"OMPI_COMM_WORLD_SIZE", "12"}, {"PMI_RANK", "3"},        {"PMI_SIZE", "13"},
    {"PALS_RANKID", "4"},           {"PALS_SIZE", "14"},      {"RANK", "5"},
    {"WORLD_SIZE", "15"},           {"SLURM_PROCID", "6"},    {"SLURM_NTASKS", "16"},
};

Variables except(Variables variables, const std::vector<std::string>& names) {
  for (const auto& name : names) variables.erase(name);
  return variables;
}

Variables with(Variables variables, const std::string& name, const std::string& text) {
  variables[name] = text;
  return variables;
}

std::string error_of(const Variables& variables) {
  try {
    const auto launch = discover_launch(lookup_in(variables));
    ADD_FAILURE() << "found " << describe(launch);
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kInvalidArgument);
    return e.what();
  }
  return {};
}

void expect_fragments(const std::string& text, const std::vector<std::string>& fragments) {
  for (const auto& fragment : fragments) EXPECT_NE(text.find(fragment), std::string::npos) << text;
}

TEST(Discover, TakesTheFirstLauncherInTheOrderOfTheContract) {
  Variables variables = kAll;
  for (const auto& [rank, source] :
       std::vector<std::pair<int, std::string>>{{1, "torchcomms' own variables"},
                                                {2, "Open MPI"},
                                                {3, "PMI"},
                                                {4, "PALS"},
                                                {5, "torchrun"},
                                                {6, "Slurm"}}) {
    const auto launch = discover_launch(lookup_in(variables));
    EXPECT_EQ(launch.rank, rank);
    EXPECT_EQ(launch.size, 10 + rank);
    EXPECT_EQ(launch.source, source);
    for (const auto& [name, text] : Variables(variables))
      if (text == std::to_string(rank) || text == std::to_string(10 + rank)) variables.erase(name);
  }
  EXPECT_TRUE(variables.empty());
}

TEST(DiscoverJob, OwnVariablesAreNotLookedAt) {
  EXPECT_EQ(discover_job(lookup_in(kAll))->rank, 2);
  EXPECT_EQ(discover_job(lookup_in(with(kAll, kMethod, "torchrun")))->size, 15);
  EXPECT_FALSE(discover_job(lookup_in(with(kAll, kMethod, "manual"))));
  EXPECT_FALSE(discover_job(lookup_in({{"TORCHCOMM_RANK", "0"}, {"TORCHCOMM_SIZE", "2"}})));
}

TEST(Discover, TheMethodNarrowsTheChoice) {
  const auto own_removed = except(kAll, {"TORCHCOMM_RANK", "TORCHCOMM_SIZE"});
  for (const auto& [method, rank] : std::vector<std::pair<std::string, int>>{{"auto", 2},
                                                                             {"AUTO", 2},
                                                                             {"mpi", 2},
                                                                             {"Mpi", 2},
                                                                             {"pals", 4},
                                                                             {"torchrun", 5},
                                                                             {"TorchRun", 5},
                                                                             {"slurm", 6}}) {
    EXPECT_EQ(discover_launch(lookup_in(with(own_removed, kMethod, method))).rank, rank) << method;
    EXPECT_EQ(discover_launch(lookup_in(with(kAll, kMethod, method))).rank, 1) << method;
  }
  EXPECT_EQ(discover_launch(lookup_in(with(kAll, kMethod, "manual"))).rank, 1);
  expect_fragments(error_of(with(own_removed, kMethod, "manual")),
                   {"TORCHCOMM_RANK is unset", "'manual'"});
}

TEST(Discover, SkipsAPairThatIsIncompleteOrSaysNo) {
  for (const auto& [rank, size] : std::vector<std::pair<const char*, const char*>>{
           {"-1", "4"}, {"0", "0"}, {"0", "-1"}, {nullptr, "4"}, {"0", nullptr}}) {
    Variables variables = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
    if (rank != nullptr) variables["RANK"] = rank;
    if (size != nullptr) variables["WORLD_SIZE"] = size;
    EXPECT_EQ(discover_launch(lookup_in(variables)).source, "Slurm");
  }
}

TEST(Discover, PalsTakesTheSizeFromTheFirstThatIsSet) {
  const Variables sizes = {{"PALS_SIZE", "10"},
                           {"PMI_SIZE", "11"},
                           {"OMPI_COMM_WORLD_SIZE", "12"},
                           {"WORLD_SIZE", "13"}};
  Variables variables = with(with(sizes, "PALS_RANKID", "3"), kMethod, "pals");
  int expected = 10;
  for (const char* name : {"PALS_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"}) {
    EXPECT_EQ(discover_launch(lookup_in(variables)).size, expected++);
    variables.erase(name);
  }
  error_of(variables);
}

TEST(Discover, NothingFoundTellsWhatWasLookedAtAndWhatToDo) {
  expect_fragments(error_of({{"RANK", "3"}}),
                   {"rank and size of this process are unknown", "torchrun, mpirun or srun",
                    "set TORCHCOMM_RANK and TORCHCOMM_SIZE", "RANK=3, WORLD_SIZE is unset",
                    "OMPI_COMM_WORLD_RANK is unset", "SLURM_PROCID is unset", kMethod});
}

TEST(Discover, TextThatIsNoNumberNamesVariableAndText) {
  for (const char* text : {"one", "1.5", "1x", "0x1", "99999999999", "+1"}) {
    expect_fragments(error_of({{"RANK", text}, {"WORLD_SIZE", "2"}}),
                     {"RANK='" + std::string(text) + "'", "whole number"});
    expect_fragments(error_of({{"RANK", "0"}, {"WORLD_SIZE", text}}),
                     {"WORLD_SIZE='" + std::string(text) + "'"});
  }
}

TEST(Discover, ARankThatIsNotBelowTheSizeNamesBoth) {
  expect_fragments(error_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
                   {"RANK=4", "WORLD_SIZE=4", "less than"});
}

TEST(Discover, KnowsTheLocalRankAndTheJob) {
  const auto torchrun = discover_launch(lookup_in({{"RANK", "5"},
                                                   {"WORLD_SIZE", "8"},
                                                   {"LOCAL_RANK", "1"},
                                                   {"LOCAL_WORLD_SIZE", "4"},
                                                   {"TORCHELASTIC_RUN_ID", "run7"}}));
  EXPECT_EQ(torchrun.local_rank, 1);
  EXPECT_EQ(torchrun.local_size, 4);
  EXPECT_EQ(torchrun.job, "run7");
  EXPECT_EQ(describe(torchrun), "torchrun (RANK=5, WORLD_SIZE=8)");

  const auto slurm = discover_launch(lookup_in({{"SLURM_PROCID", "0"},
                                                {"SLURM_NTASKS", "2"},
                                                {"SLURM_LOCALID", "0"},
                                                {"SLURM_JOB_ID", "42"},
                                                {"SLURM_STEP_ID", "3"}}));
  EXPECT_EQ(slurm.local_rank, 0);
  EXPECT_EQ(slurm.local_size, std::nullopt);
  EXPECT_EQ(slurm.job, "42.3");
}

// torch sets TORCHCOMM_RANK and TORCHCOMM_SIZE for the ranks of one group of a job.
TEST(Discover, APartOfAJobDoesNotTakeTheHostsRankCountForItsOwn) {
  const auto part = discover_launch(lookup_in({{"TORCHCOMM_RANK", "0"},
                                               {"TORCHCOMM_SIZE", "2"},
                                               {"LOCAL_RANK", "1"},
                                               {"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_EQ(part.local_rank, 1);
  EXPECT_EQ(part.local_size, std::nullopt);
}

TEST(QueryRankSize, ReadsTheEnvironmentAtEachCall) {
  ::setenv("TORCHCOMM_RANK", " 2 ", 1);
  ::setenv("TORCHCOMM_SIZE", "3", 1);
  EXPECT_EQ(query_ranksize(), std::pair(2, 3));
  ::setenv("TORCHCOMM_RANK", "0", 1);
  EXPECT_EQ(query_ranksize(), std::pair(0, 3));
  ::unsetenv("TORCHCOMM_RANK");
  ::unsetenv("TORCHCOMM_SIZE");
}

}  // namespace
}  // namespace torch::comms::bootstrap
