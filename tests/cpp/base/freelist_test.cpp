// Memory of objects that come and go.
#include "base/concurrency/freelist.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

namespace torch::comms::base {
namespace {

struct Piece : FreelistAllocated<Piece> {
  std::array<int, 16> numbers{};
};

class RecycledMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (!TC_RECYCLES) GTEST_SKIP() << "memory is not recycled under the address sanitizer";
  }
};

TEST_F(RecycledMemory, IsUsedAgainAlsoWhenAnotherThreadGaveItBack) {
  auto first = std::make_unique<Piece>();
  first->numbers.fill(7);
  const void* const at = first.get();
  std::thread([&] { first.reset(); }).join();
  std::vector<std::unique_ptr<Piece>> pieces;
  bool found = false;
  for (int i = 0; i < 64; ++i) {  // some may have been left before
    pieces.push_back(std::make_unique<Piece>());
    EXPECT_EQ(pieces.back()->numbers, (std::array<int, 16>{}));
    found = found || pieces.back().get() == at;
  }
  EXPECT_TRUE(found);
}

TEST_F(RecycledMemory, OfAThreadThatEndsGoesToTheOthers) {
  std::vector<const void*> there;
  std::thread([&] {
    std::vector<std::unique_ptr<Piece>> pieces;
    for (int i = 0; i < 4; ++i) pieces.push_back(std::make_unique<Piece>());
    for (const auto& piece : pieces) there.push_back(piece.get());
    pieces.clear();
    std::make_unique<Piece>().reset();  // takes the chain, and leaves three of it unused
  }).join();
  std::vector<std::unique_ptr<Piece>> pieces;
  size_t found = 0;
  for (int i = 0; i < 64; ++i) {
    pieces.push_back(std::make_unique<Piece>());
    for (const void* at : there) found += pieces.back().get() == at ? 1 : 0;
  }
  EXPECT_EQ(found, there.size());
}

}  // namespace
}  // namespace torch::comms::base
