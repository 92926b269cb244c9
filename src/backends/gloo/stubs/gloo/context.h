#pragma once

#include <chrono>

// What torch's ProcessGroupGloo.hpp needs to know of Gloo's classes, whose headers torch does not
// ship. The stubs only declare: every object is made inside libtorch, none may be made or derived
// from here.
namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
