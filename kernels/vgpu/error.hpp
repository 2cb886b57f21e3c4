// fail() is for a call that returns an error, fatal() for an error after which the program cannot
// continue.
#pragma once

#include <string>
#include <vector>

#include "kernels/vgpu/api/runtime.hpp"

namespace vgpu {

// Stores code and reason for the calling thread and returns the code.
cudaError_t fail(cudaError_t code, const std::string& reason);

// Prints "vgpu: message" as one block of text on standard error and ends the process with status 2.
[[noreturn]] void fatal(const std::string& message);

// Claims the right to call fatal(), for threads whose message takes long to compose (addr2line can
// take seconds on a busy machine). Returns true only for the first caller, which must then end the
// process.
bool begin_last_words();
bool last_words_begun();

// ---- text for reports ----

// Returns e.g. "device 1's memory #7 (4096 bytes) + 512", or another description of the address.
std::string describe_address(const void* address);
// Returns sorted numbers as ranges, at most ten: "0-31, 64".
std::string describe_numbers(const std::vector<unsigned>& sorted);
std::string describe_function(const void* function);
// Returns "file:line" of an instruction, or "" if addr2line does not find it.
std::string describe_code(const void* instruction);

}  // namespace vgpu
