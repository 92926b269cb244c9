#include "vendor/vendor_library.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torchcomms/base/error.hpp>

#include <cstdlib>
#include <vector>

#include "vendor/stand_in.hpp"

namespace torch::comms::nccl {
namespace {

template <class Call>
CommError refusal(const Call& call) {
  try {
    call();
  } catch (const CommError& e) {
    return e;
  }
  throw std::logic_error("it was accepted");
}
void expect_fragments(const CommError& error, const std::vector<std::string>& fragments) {
  for (const auto& fragment : fragments)
    EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos)
        << fragment << " is not in: " << error.what();
}

class LibraryTable : public StandInTest {};

TEST_F(LibraryTable, TheVariableNamesTheLibrary) {
  const auto table = load(kNccl, "libstand_in_nccl.so");
  EXPECT_NE(table.path().find("libstand_in_nccl.so"), std::string::npos);
  EXPECT_NE(table.selection_reason().find("TORCHCOMM_NCCL_LIBRARY"), std::string::npos);
  EXPECT_EQ(table.version_text(), "2.30.7");
  EXPECT_TRUE(table.is_on_host_memory());
  EXPECT_TRUE(table.can_be_nonblocking());
  EXPECT_NE(table.CommSplit, nullptr);
}

TEST_F(LibraryTable, AFileThatDoesNotLoadIsNamedWithTheVariable) {
  const auto error = refusal([&] { load(kNccl, "not_there.so"); });
  EXPECT_EQ(error.code(), Errc::kBackendUnavailable);
  expect_fragments(error, {"nccl", "TORCHCOMM_NCCL_LIBRARY", "not_there.so"});
}

TEST_F(LibraryTable, WithoutALibraryTheErrorSaysWhatWasLookedFor) {
  Vendor nowhere = kRccl;
  nowhere.stem = "libtc-not-there.so";
  nowhere.soname = "libtc-not-there.so.1";
  const auto error = refusal([&] { VendorLibrary::load(nowhere); });
  EXPECT_EQ(error.code(), Errc::kBackendUnavailable);
  expect_fragments(error, {"rccl", "RCCL", "TORCHCOMM_RCCL_LIBRARY", "libtc-not-there.so",
                           "libtc-not-there.so.1"});
}

TEST_F(LibraryTable, ALibraryThatIsLoadedAlreadyIsTaken) {
  ASSERT_NE(::dlopen(stand_in("libstand_in_nccl_old.so").c_str(), RTLD_NOW | RTLD_LOCAL), nullptr);
  Vendor vendor = kNccl;
  vendor.stem = "libstand_in_nccl_old.so";
  vendor.soname = "libtc-not-there.so.1";
  const auto table = VendorLibrary::load(vendor);
  EXPECT_EQ(table.path(), stand_in("libstand_in_nccl_old.so"));
  EXPECT_NE(table.selection_reason().find("loaded already"), std::string::npos);
}

TEST_F(LibraryTable, ALibraryWithoutANeededFunctionIsRefusedNamingBothAndTheVersion) {
  const auto error = refusal([&] { load(kNccl, "libstand_in_nccl_broken.so"); });
  EXPECT_EQ(error.code(), Errc::kBackendUnavailable);
  expect_fragments(error, {"ncclAllReduce", "libstand_in_nccl_broken.so", "2.30.7"});
}

TEST_F(LibraryTable, WhatAnOldLibraryLacksIsRefusedNamingVersionsFoundAndNeeded) {
  const auto table = load(kNccl, "libstand_in_nccl_old.so");
  EXPECT_FALSE(table.can_be_nonblocking());
  EXPECT_EQ(table.CommSplit, nullptr);
  const auto error = refusal([&] { table.require(table.CommSplit, "split()", 21800); });
  EXPECT_EQ(error.code(), Errc::kUnsupported);
  expect_fragments(error, {"split()", "2.18.0", "2.10.3"});
}

TEST_F(LibraryTable, OneCclIsARowWithAnotherPrefixAndLargerIds) {
  const auto table = load(kOneCcl, "libstand_in_oneccl.so");
  EXPECT_EQ(table.CommAbort, nullptr) << "it exports that without its working";
  EXPECT_FALSE(table.can_be_nonblocking());
  std::vector<char> id(table.vendor().unique_id_bytes);
  EXPECT_EQ(id.size(), 4096u);
  EXPECT_EQ(table.get_unique_id(id), abi::kSuccess);
  abi::Comm comm = nullptr;
  ASSERT_EQ(table.init_rank(&comm, 1, id, 0, nullptr), abi::kSuccess);
  EXPECT_EQ(table.CommDestroy(comm), abi::kSuccess);
}

TEST_F(LibraryTable, UnderTheWrongPrefixThereIsNothing) {
  const auto error = refusal([&] { load(kOneCcl, "libstand_in_nccl.so"); });
  expect_fragments(error, {"onecclGetVersion"});
}

TEST(VersionText, KnowsBothCodings) {
  EXPECT_EQ(version_text(23007), "2.30.7");
  EXPECT_EQ(version_text(21003), "2.10.3");
  EXPECT_EQ(version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace torch::comms::nccl
