#pragma once

// The older include path.
#include <torchcomms/hooks/flight_recorder.hpp>
