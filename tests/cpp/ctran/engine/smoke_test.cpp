#include "ctran/engine/world.hpp"

namespace torch::comms::ctran::test {
namespace {

TEST(Smoke, AllReduce) {
  for (const auto links : {Links::kShm, Links::kTcp})
    for (const int size : {1, 2, 3, 4})
      run({.size = size, .links = links}, [&](Rank& self) {
        for (const size_t count : {1u, 7u, 1000u, 100'000u, 1'000'003u}) {
          std::vector<float> values(count);
          for (size_t i = 0; i < count; ++i)
            values[i] = static_cast<float>(i % 100) + static_cast<float>(self.rank());
          AllReduce reduce(values, size);
          self.group->run(reduce.call);
          for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(values[i], static_cast<float>((i % 100) * static_cast<size_t>(size) +
                                                    static_cast<size_t>(size * (size - 1) / 2)))
                << i << " of " << count;
        }
        self.group->run(barrier(size));
      });
}

}  // namespace
}  // namespace torch::comms::ctran::test
