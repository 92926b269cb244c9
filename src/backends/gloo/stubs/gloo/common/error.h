#pragma once
// Included by torch's ProcessGroupGloo.hpp, which uses nothing of it.
