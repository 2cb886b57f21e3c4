#include "kernels/vgpu/error.hpp"

#include <atomic>
#include <sys/syscall.h>
#include <unistd.h>

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
  ::syscall(SYS_exit_group, 2);  // at once: no handler, of a sanitizer either
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
