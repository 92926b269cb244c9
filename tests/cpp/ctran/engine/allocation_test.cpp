#include <cstdlib>
#include <new>

#include "ctran/engine/world.hpp"

// What a call costs that has been made before: nothing from the heap, but for the nodes of queues.
namespace {

thread_local size_t allocations = 0;

}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* at = std::malloc(size)) return at;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, size_t) noexcept { std::free(at); }
#endif

namespace torch::comms::ctran::test {
namespace {

TEST(Allocations, OfARepeatedSmallCollectiveAreRare) {
  if (kSanitized) GTEST_SKIP() << "sanitizers bring their own operator new";
  for (const auto links : {LinkPolicy::kShm, LinkPolicy::kTcp})
    run({.size = 2, .links = links}, [](Rank& self) {
      std::vector<float> values(100, 0);
      AllReduce reduce(values, 2);
      for (int i = 0; i < 50; ++i) self.group->run(reduce.call);
      const size_t before = allocations;
      for (int i = 0; i < 1000; ++i) self.group->run(reduce.call);
      EXPECT_LT(allocations - before, 100u);
    });
}

}  // namespace
}  // namespace torch::comms::ctran::test
