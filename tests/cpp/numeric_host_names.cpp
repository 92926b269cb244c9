// Replaces getnameinfo() of the C library in a test program: it returns addresses as numbers and
// asks no name server. c10d looks up each address that connects to a store, and the store answers
// no client meanwhile: one lost query would cost 5 s.

#include <dlfcn.h>
#include <netdb.h>

#include <torchcomms/base/export.hpp>

extern "C" TC_API int getnameinfo(const sockaddr* address, socklen_t address_size, char* host,
                                  socklen_t host_size, char* service, socklen_t service_size,
                                  int flags) {
  static const auto original =
      reinterpret_cast<decltype(&::getnameinfo)>(::dlsym(RTLD_NEXT, "getnameinfo"));
  return original(address, address_size, host, host_size, service, service_size,
                  flags | NI_NUMERICHOST);
}
