// How the emulator says no: fail() for a call with wrong arguments, fatal() for a program that has
// done what no GPU would survive.
#pragma once

#include <string>

#include "kernels/vgpu/api/error.hpp"

namespace vgpu {

// Remembers code and reason for the calling thread; returns the code.
cudaError_t fail(cudaError_t code, const std::string& reason);

// Prints "vgpu: message" as one block of text on standard error and ends the process with status 2.
[[noreturn]] void fatal(const std::string& message);

// Who needs a while to find the words for fatal() (addr2line on a busy machine: seconds) asks
// first. True: the caller may, and is the only one. False: somebody else has begun, and will end
// the process.
bool begin_last_words();
bool last_words_begun();

}  // namespace vgpu
