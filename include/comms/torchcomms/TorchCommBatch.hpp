#pragma once

// The older include path.
#include <torchcomms/batch.hpp>
