#pragma once

// Marks what crosses a shared library's border. Everything else is hidden.
#define TC_API __attribute__((visibility("default")))
