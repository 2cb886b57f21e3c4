#include "runtime/base/open_files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/resource.h>

namespace ringsmith {

std::uint64_t allow_open_files(std::uint64_t files) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return files;
  if (limit.rlim_cur < files && limit.rlim_cur < limit.rlim_max) {
    rlimit more = limit;
    more.rlim_cur = std::min<rlim_t>(files, limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &more) == 0) limit = more;
  }
  return limit.rlim_cur;
}

std::string reason_of(int error) {
  if (error == ENFILE) return "the machine has too many open files: raise sysctl fs.file-max";
  if (error != EMFILE) return std::strerror(error);
  const std::uint64_t now = allow_open_files(0);
  return "too many open files: this process may have " + std::to_string(now) +
         "; raise the limit, for instance with 'ulimit -n " +
         std::to_string(std::max<std::uint64_t>(1024, 2 * now)) + "'";
}

}  // namespace ringsmith
