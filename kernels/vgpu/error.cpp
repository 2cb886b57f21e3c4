#include "kernels/vgpu/error.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <filesystem>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/vgpu/api/foreign.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/ipc.hpp"
#include "kernels/vgpu/memory.hpp"

namespace vgpu {

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_reason;
std::atomic<bool> speaking{false};

struct Text {
  cudaError_t code;
  const char* name;
  const char* text;
};
#define VGPU_ERROR(code, text) \
  { code, #code, text }
constexpr Text kTexts[] = {
    VGPU_ERROR(cudaSuccess, "no error"),
    VGPU_ERROR(cudaErrorInvalidValue, "invalid argument"),
    VGPU_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    VGPU_ERROR(cudaErrorInitializationError, "initialization error"),
    VGPU_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    VGPU_ERROR(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    VGPU_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    VGPU_ERROR(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    VGPU_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    VGPU_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    VGPU_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    VGPU_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    VGPU_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    VGPU_ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    VGPU_ERROR(cudaErrorPeerAccessUnsupported,
               "peer access is not supported between these two devices"),
    VGPU_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    VGPU_ERROR(cudaErrorNotReady, "device not ready"),
    VGPU_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    VGPU_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    VGPU_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    VGPU_ERROR(cudaErrorHostMemoryAlreadyRegistered,
               "part or all of the requested memory range is already mapped"),
    VGPU_ERROR(cudaErrorHostMemoryNotRegistered,
               "pointer does not correspond to a registered memory region"),
    VGPU_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    VGPU_ERROR(cudaErrorNotSupported, "operation not supported"),
    VGPU_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    VGPU_ERROR(cudaErrorSystemDriverMismatch,
               "system has unsupported display driver / cuda driver combination"),
    VGPU_ERROR(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    VGPU_ERROR(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    VGPU_ERROR(cudaErrorStreamCaptureImplicit,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    VGPU_ERROR(cudaErrorCapturedEvent,
               "operation not permitted on an event last recorded in a capturing stream"),
    VGPU_ERROR(cudaErrorStreamCaptureWrongThread,
               "attempt to terminate a thread-local capture sequence from another thread"),
    VGPU_ERROR(cudaErrorStreamCaptureUnmatched, "the capture was not begun on this stream"),
    VGPU_ERROR(cudaErrorStreamCaptureUnjoined,
               "capturing stream has unjoined work from another stream"),
    VGPU_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work"),
    VGPU_ERROR(cudaErrorGraphExecUpdateFailure,
               "the graph update was not performed because its nodes or dependencies changed"),
    VGPU_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    VGPU_ERROR(cudaErrorAssert, "device-side assert triggered"),
};
#undef VGPU_ERROR

const Text& find(cudaError_t code) {
  static constexpr Text kUnknown{cudaErrorInvalidValue, "cudaErrorUnknown", "unknown error"};
  for (const Text& t : kTexts)
    if (t.code == code) return t;
  return kUnknown;
}

}  // namespace

cudaError_t fail(cudaError_t code, const std::string& reason) {
  last_error = code;
  last_reason = reason;
  return code;
}

void fatal(const std::string& message) {
  const std::string text = "vgpu: " + message + "\n";
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::syscall(SYS_exit_group, 2);  // immediately: runs no handler, not even a sanitizer's
  __builtin_unreachable();
}

bool begin_last_words() { return !speaking.exchange(true); }
bool last_words_begun() { return speaking; }

const char* why() { return last_reason.c_str(); }

}  // namespace vgpu

const char* cudaGetErrorName(cudaError_t error) { return vgpu::find(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return vgpu::find(error).text; }

cudaError_t cudaPeekAtLastError() { return vgpu::last_error; }

cudaError_t cudaGetLastError() {
  const cudaError_t error = vgpu::last_error;
  vgpu::last_error = cudaSuccess;
  return error;
}

namespace vgpu {

std::string describe_numbers(const std::vector<unsigned>& sorted) {
  constexpr int kMostRanges = 10;
  std::string out;
  int ranges = 0;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i + 1;
    while (end < sorted.size() && sorted[end] == sorted[end - 1] + 1) ++end;
    if (++ranges > kMostRanges) return out + ", ...";
    if (!out.empty()) out += ", ";
    out += std::to_string(sorted[i]);
    if (end > i + 1) out += "-" + std::to_string(sorted[end - 1]);
    i = end;
  }
  return out;
}

std::string describe_address(const void* address) {
  if (const Device* device = Device::owner(address)) return device->memory().describe(address);
  if (const auto import = Imports::get().find(address))
    return Imports::get().describe(*import, address);
  if (const auto pinned = PinnedMemory::get().find(address))
    return "pinned host memory (" + std::to_string(pinned->bytes) + " bytes) + " +
           std::to_string(static_cast<const std::byte*>(address) - pinned->start);
  char text[32];
  std::snprintf(text, sizeof text, "host memory %p", address);
  return text;
}

namespace {

// Finds the names of functions and the lines of code. Kernels are often local to their file, so the
// full symbol table is read, not the dynamic one.

// The program or shared library that contains an address.
struct Object {
  const void* address;
  std::uintptr_t base = 0;
  std::string file = "/proc/" + std::to_string(::getpid()) + "/exe";
};
Object object_of(const void* address) {
  Object found{address};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        auto* object = static_cast<Object*>(out);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
          const auto at = reinterpret_cast<std::uintptr_t>(object->address);
          if (info->dlpi_phdr[i].p_type != PT_LOAD || at < begin ||
              at - begin >= info->dlpi_phdr[i].p_memsz)
            continue;
          object->base = info->dlpi_addr;
          if (info->dlpi_name != nullptr && *info->dlpi_name != '\0')
            object->file = info->dlpi_name;
          return 1;
        }
        return 0;
      },
      &found);
  return found;
}

// Returns the name of the function that starts at this address of the file, or "".
std::string find_symbol(const char* file, std::size_t bytes, std::uintptr_t address) {
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file + header->e_shoff);
  if (header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr) > bytes) return "";
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    const char* names = file + sections[sections[s].sh_link].sh_offset;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file + sections[s].sh_offset);
    for (std::size_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i)
      if (symbols[i].st_value == address && ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC)
        return names + symbols[i].st_name;
  }
  return "";
}

std::string demangle(const std::string& name) {
  char* readable = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, nullptr);
  std::string out = readable != nullptr ? readable : name;
  std::free(readable);
  for (const char* noise : {"(anonymous namespace)::", "ringsmith::"})
    for (std::size_t at = out.find(noise); at != std::string::npos; at = out.find(noise))
      out.erase(at, std::strlen(noise));
  return out.substr(0, out.find('('));
}

}  // namespace

std::string describe_function(const void* function) {
  std::string name;
  const Object object = object_of(function);
  const int fd = ::open(object.file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd >= 0 && ::fstat(fd, &status) == 0) {
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* file = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file != MAP_FAILED) {
      name = find_symbol(static_cast<const char*>(file), bytes,
                         reinterpret_cast<std::uintptr_t>(function) - object.base);
      ::munmap(file, bytes);
    }
  }
  if (fd >= 0) ::close(fd);
  if (!name.empty()) return demangle(name);
  char text[32];
  std::snprintf(text, sizeof text, "%p", function);
  return text;
}

std::string describe_code(const void* instruction) {
  const Object object = object_of(instruction);
  char address[32], line[512] = "";
  std::snprintf(address, sizeof address, "0x%zx",
                std::size_t{reinterpret_cast<std::uintptr_t>(instruction) - object.base});
  // The shell would interpret a quote in the path.
  if (object.file.find('\'') != std::string::npos) return "";
  const std::string command = "addr2line -e '" + object.file + "' " + address + " 2>/dev/null";
  FILE* out = ::popen(command.c_str(), "r");
  if (out == nullptr) return "";
  const bool got = std::fgets(line, sizeof line, out) != nullptr;
  ::pclose(out);
  std::string text = got ? line : "";
  text = std::filesystem::path(text.substr(0, text.find_first_of("\n "))).lexically_normal();
  return text.empty() || text[0] == '?' ? "" : text;
}

}  // namespace vgpu
