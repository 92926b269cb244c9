#pragma once

// The older include path.
#include <torchcomms/store_manager.hpp>
