// A name server that answers late, for one program: LD_PRELOAD=slow_names.so SLOW_NAMES_MS=1300.
// Reverse lookups take that long and give the number; without it they ask no name server.
// SLOW_NAMES_AT=3: only the third one takes long.
// slow_names_count() tells how many there were.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <unistd.h>

static int count;

int slow_names_count(void) { return __atomic_load_n(&count, __ATOMIC_SEQ_CST); }

static int number_of(const char* name) {
  const char* text = getenv(name);
  return text != NULL ? atoi(text) : 0;
}

int getnameinfo(const struct sockaddr* address, socklen_t size, char* host, socklen_t host_size,
                char* service, socklen_t service_size, int flags) {
  typedef int (*Function)(const struct sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t,
                          int);
  Function next = (Function)dlsym(RTLD_NEXT, "getnameinfo");
  if ((flags & NI_NUMERICHOST) == 0) {
    int number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    int only = number_of("SLOW_NAMES_AT");
    if (only == 0 || only == number) usleep(1000 * number_of("SLOW_NAMES_MS"));
  }
  return next(address, size, host, host_size, service, service_size, flags | NI_NUMERICHOST);
}
