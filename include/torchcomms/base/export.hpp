#pragma once

// Exports a symbol from the shared library; all other symbols are hidden.
#define TC_API __attribute__((visibility("default")))
