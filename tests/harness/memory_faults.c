// A library for LD_PRELOAD: the call number FAULT_AT of those that make or map shared memory fails
// with errno FAULT_ERRNO, in the process whose RANK is FAULT_RANK. Each call that fails is told on
// standard error. Calls count from the fork on; those that concern other files pass.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char* folder(void) {
  const char* name = getenv("TORCHCOMM_RECORDER_DIR");
  return name != NULL && name[0] == '/' ? name : "/dev/shm/torchcomms";
}

static int is_path(const char* path) {
  const int peers = strncmp(path, "/proc/", 6) == 0 && strstr(path, "/fd/") != NULL;
  return peers || strncmp(path, folder(), strlen(folder())) == 0;
}

static int is_file(int descriptor) {
  char link[64], path[PATH_MAX] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if (descriptor < 0 || readlink(link, path, sizeof path - 1) < 0) return 0;
  return strncmp(path, "/memfd:torchcomms", 17) == 0 || is_path(path);
}

// The errno that this call fails with; 0: none.
static int fault(const char* call, int concerned) {
  static __thread int inside;
  static pid_t counted_in;
  static long count;
  const char* at = getenv("FAULT_AT");
  const char* rank = getenv("RANK");
  const char* wanted = getenv("FAULT_RANK");
  if (!concerned || inside || at == NULL || rank == NULL || wanted == NULL || strcmp(rank, wanted))
    return 0;
  if (counted_in != getpid()) count = 0;
  counted_in = getpid();
  if (count++ != atol(at)) return 0;
  inside = 1;
  const int error = atoi(getenv("FAULT_ERRNO"));
  dprintf(STDERR_FILENO, "FAULT %s: %s\n", call, strerror(error));
  inside = 0;
  return error;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(call, concerned, result)              \
  do {                                             \
    const int error = fault(call, concerned);      \
    if (error != 0) return errno = error, (result); \
  } while (0)

int memfd_create(const char* name, unsigned flags) {
  FAIL("memfd_create", strncmp(name, "torchcomms", 10) == 0, -1);
  return REAL(memfd_create)(name, flags);
}
int ftruncate(int file, off_t size) {
  FAIL("ftruncate", is_file(file), -1);
  return REAL(ftruncate)(file, size);
}
int ftruncate64(int file, off64_t size) {
  FAIL("ftruncate", is_file(file), -1);
  return REAL(ftruncate64)(file, size);
}
int posix_fallocate(int file, off_t offset, off_t size) {
  const int error = fault("posix_fallocate", is_file(file));
  return error != 0 ? error : REAL(posix_fallocate)(file, offset, size);
}
int posix_fallocate64(int file, off64_t offset, off64_t size) {
  const int error = fault("posix_fallocate", is_file(file));
  return error != 0 ? error : REAL(posix_fallocate64)(file, offset, size);
}
void* mmap(void* at, size_t size, int rights, int flags, int file, off_t offset) {
  FAIL("mmap", is_file(file), MAP_FAILED);
  return REAL(mmap)(at, size, rights, flags, file, offset);
}
void* mmap64(void* at, size_t size, int rights, int flags, int file, off64_t offset) {
  FAIL("mmap", is_file(file), MAP_FAILED);
  return REAL(mmap64)(at, size, rights, flags, file, offset);
}
int mkdir(const char* path, mode_t mode) {
  FAIL("mkdir", is_path(path), -1);
  return REAL(mkdir)(path, mode);
}
int link(const char* from, const char* to) {
  FAIL("link", is_path(to), -1);
  return REAL(link)(from, to);
}
static int mode_of(int flags, va_list list) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, int) : 0;
}
int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const int mode = mode_of(flags, list);
  va_end(list);
  FAIL("open", is_path(path), -1);
  return REAL(open)(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const int mode = mode_of(flags, list);
  va_end(list);
  FAIL("open", is_path(path), -1);
  return REAL(open64)(path, flags, mode);
}
int fcntl(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  FAIL("fcntl", command == F_ADD_SEALS && is_file(file), -1);
  return REAL(fcntl)(file, command, argument);
}
int fcntl64(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  FAIL("fcntl", command == F_ADD_SEALS && is_file(file), -1);
  return REAL(fcntl64)(file, command, argument);
}
