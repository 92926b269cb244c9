#include "base/os/loaded_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <utility>

namespace torch::comms::base {
namespace {

struct LibrarySearch {
  std::string_view stem;
  std::vector<std::string> found;
};

int visit(dl_phdr_info* library, size_t, void* argument) {
  auto& search = *static_cast<LibrarySearch*>(argument);
  const std::string_view path = library->dlpi_name == nullptr ? "" : library->dlpi_name;
  const auto file = path.substr(path.rfind('/') + 1);  // npos + 1 == 0: the whole path
  if (file.starts_with(search.stem)) search.found.emplace_back(path);
  return 0;
}

}  // namespace

std::vector<std::string> loaded_libraries(std::string_view stem) {
  LibrarySearch search{stem, {}};
  ::dl_iterate_phdr(visit, &search);
  return std::move(search.found);
}

void* open_library(const std::string& file, std::string& why) {
  void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* text = ::dlerror();
    why = text == nullptr ? "the loader gave no reason" : text;
  }
  return handle;
}

std::string path_of_library(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace torch::comms::base
