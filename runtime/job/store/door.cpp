#include "runtime/job/store/door.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "runtime/base/error.hpp"
#include "runtime/base/process.hpp"

namespace ringsmith::comm::store {

namespace {

constexpr int kAboveStreams = 3;  // a door must not have the number of a standard stream

unsigned long long number_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

Door make_door() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw_errno("socketpair", errno);
  Door door{Descriptor(ends[0]), Descriptor(ends[1])};
  if (door.outside.get() < kAboveStreams)
    door.outside = Descriptor(fcntl(door.outside.get(), F_DUPFD_CLOEXEC, kAboveStreams));
  if (!door.outside.valid()) throw_errno("socketpair", errno);
  return door;
}

std::string describe_door(int outside) {
  return std::to_string(outside) + ":" + std::to_string(number_of(outside));
}

int find_door(const char* text) {
  int fd = -1, end = 0;
  unsigned long long number = 0;
  if (text == nullptr || std::sscanf(text, "%9d:%19llu%n", &fd, &number, &end) != 2 ||
      text[end] != '\0' || fd < kAboveStreams || number == 0 || number_of(fd) != number)
    return -1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

Descriptor knock(int outside, Deadline deadline) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    throw_errno("socketpair", errno);
  Descriptor mine(ends[0]);
  const Descriptor theirs(ends[1]);
  while (send_with_descriptor(outside, "s", 1, theirs.get()) != 1) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN || deadline.passed()) return {};
    pollfd entry{outside, POLLOUT, 0};
    poll(&entry, 1, deadline.poll_ms());
  }
  return mine;
}

Caller open_door(const Descriptor& inside, Descriptor& connection) {
  char byte = 0;
  if (receive_with_descriptor(inside.get(), &byte, 1, &connection) != 1) return Caller::none;
  return connection.valid() ? Caller::came : Caller::turned_away;
}

}  // namespace ringsmith::comm::store
