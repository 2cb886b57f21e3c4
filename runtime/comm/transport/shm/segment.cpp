#include "runtime/comm/transport/shm/segment.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/error.hpp"

namespace ringsmith::comm {

namespace {

constexpr Bytes kLeast = MiB(64), kLeastUnlimited = MiB(1024), kMost = MiB(256 << 10);
constexpr std::size_t kAlign = 64;                       // bytes
constexpr std::size_t kReturned = std::size_t{1} << 20;  // smaller freed blocks keep their memory

// The segments that this process has mapped.
struct MappedSegments {
  std::mutex mutex;
  std::map<Segment::Identity, std::weak_ptr<Segment>> mapped;
};

MappedSegments& mapped_segments() {
  static auto* const r = new MappedSegments;  // never destroyed: segments may be freed at exit
  return *r;
}

[[noreturn]] void fail(const std::string& what) { throw_errno("shared memory: " + what, errno); }

std::string in_mib(Bytes bytes) { return std::to_string(bytes.value >> 20) + " MiB"; }

std::string address_limit_advice() {
  const auto limit = address_space_limit();
  if (!limit) return {};
  return ": this process is limited to " + in_mib(*limit) + " (ulimit -v " +
         std::to_string(limit->value >> 10) + "), of which " + in_mib(address_space()) +
         " are in use; start the ranks with a higher limit, or none (ulimit -v unlimited)";
}

Bytes physical_memory() {
  return Bytes(static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
               static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

}  // namespace

Segment::Segment(Descriptor file, const Identity& identity, std::byte* data, Bytes size)
    : file_(std::move(file)), identity_(identity), data_(data), size_(size) {}

Segment::~Segment() {
  munmap(data_, size_.value);
  MappedSegments& all = mapped_segments();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.mapped.find(identity_);  // not expired if the file was opened again
  if (entry != all.mapped.end() && entry->second.expired()) all.mapped.erase(entry);
}

std::shared_ptr<Segment> Segment::open(Descriptor file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) fail("fstat");
  MappedSegments& all = mapped_segments();
  const std::lock_guard lock(all.mutex);
  const Identity identity(status.st_dev, status.st_ino);
  auto& entry = all.mapped[identity];
  if (auto known = entry.lock()) return known;
  const Bytes size(static_cast<std::size_t>(status.st_size));
  void* const data =
      mmap(nullptr, size.value, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    throw_errno("shared memory: mapping " + std::to_string(size.value >> 20) + " MiB of a rank",
                error, error == ENOMEM ? address_limit_advice() : "");
  }
  auto segment = std::shared_ptr<Segment>(
      new Segment(std::move(file), identity, static_cast<std::byte*>(data), size));
  entry = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::create(Bytes size) {
  Descriptor file(memfd_create("ringsmith", MFD_CLOEXEC));
  if (!file.valid()) fail("memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(size.value)) != 0)
    fail("reserving " + std::to_string(size.value >> 20) + " MiB");
  return open(std::move(file));
}

void Segment::commit(Bytes offset, Bytes size) {
  if (size.value == 0) return;
  const int code = posix_fallocate(file_.get(), static_cast<off_t>(offset.value),
                                   static_cast<off_t>(size.value));
  if (code == 0) return;
  errno = code;
  fail("no memory for " + std::to_string((size.value + (1 << 20) - 1) >> 20) +
       " MiB of communication memory");
}

void Segment::release(Bytes offset, Bytes size) {
  constexpr std::size_t kPage = 4096;
  const std::size_t begin = (offset.value + kPage - 1) / kPage * kPage;
  const std::size_t end = (offset.value + size.value) / kPage * kPage;
  if (begin < end)
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
              static_cast<off_t>(end - begin));
}

Bytes communication_space(Bytes fixed, int ranks) {
  const Bytes wanted = std::clamp(physical_memory(), kLeastUnlimited, kMost);
  const auto limit = address_space_limit();
  if (!limit) return wanted;
  const Bytes left = *limit - std::min(*limit, address_space());
  const auto each = [&](std::size_t space) { return space / static_cast<std::size_t>(ranks); };
  // Other groups, tensors and threads need space, too.
  const Bytes half(each(left.value / 2));
  if (half.value >= fixed.value + kLeast.value) return std::min(wanted, half - fixed);
  if (each(left.value) >= fixed.value + kLeast.value) return kLeast;
  const Bytes need((fixed.value + kLeast.value) * static_cast<std::size_t>(ranks));
  throw ResourceError("shared memory of " + std::to_string(ranks) + " ranks needs " + in_mib(need) +
                      " of address space" + address_limit_advice());
}

class Arena::HostBlock : public CommMemory {
 public:
  HostBlock(std::shared_ptr<Arena> arena, std::size_t offset, Bytes size, std::size_t reserved)
      : arena_(std::move(arena)), offset_(offset), size_(size), reserved_(reserved) {}
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  ~HostBlock() override { arena_->free(offset_, reserved_); }
  [[nodiscard]] std::byte* data() const override { return arena_->segment_->data() + offset_; }
  [[nodiscard]] Bytes size() const override { return size_; }

 private:
  std::shared_ptr<Arena> arena_;
  std::size_t offset_;
  Bytes size_;
  std::size_t reserved_;
};

Arena::Arena(std::shared_ptr<Segment> segment, Bytes begin)
    : segment_(std::move(segment)),
      begin_(begin.value),
      free_(begin.value, segment_->size().value - begin.value),
      used_before_(begin.value) {}

std::shared_ptr<CommMemory> Arena::allocate(Bytes size) {
  const std::size_t reserved = std::max(kAlign, (size.value + kAlign - 1) / kAlign * kAlign);
  std::size_t offset = 0;
  bool dirty = false;
  {
    const std::lock_guard lock(mutex_);
    const auto fit = free_.find(reserved);
    if (!fit || reserved < size.value)
      throw ResourceError("communication memory: " + std::to_string(size.value) +
                          " bytes do not fit in the free part of " +
                          std::to_string((segment_->size().value - begin_) >> 20) + " MiB" +
                          address_limit_advice());
    offset = *fit;
    segment_->commit(Bytes(offset), Bytes(reserved));  // throws before anything is taken
    free_.take(offset, reserved);
    dirty = offset < used_before_;
    used_before_ = std::max(used_before_, offset + reserved);
  }
  if (dirty) std::memset(segment_->data() + offset, 0, reserved);
  return std::make_shared<HostBlock>(shared_from_this(), offset, size, reserved);
}

void Arena::free(std::size_t offset, std::size_t size) {
  const std::lock_guard lock(mutex_);
  if (size >= kReturned) segment_->release(Bytes(offset), Bytes(size));
  free_.give(offset, size);
}

}  // namespace ringsmith::comm
