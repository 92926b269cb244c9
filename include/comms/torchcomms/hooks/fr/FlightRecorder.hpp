#pragma once

// The older include path.
#include <torchcomms/hooks/debug_info_writer.hpp>
#include <torchcomms/hooks/flight_recorder.hpp>
