// Words for reports: which allocation an address lies in, which numbers a list holds.
#pragma once

#include <string>
#include <vector>

namespace vgpu {

// "device 1's memory #7 (4096 bytes) + 512", or what else is known about the address.
std::string describe_address(const void* address);
// Sorted numbers, in ranges: "0-31, 64". At most some twenty of them.
std::string describe_numbers(const std::vector<unsigned>& sorted);
// The name of a function, from the program's symbol table.
std::string describe_function(const void* function);
// "file:line" of an instruction, by addr2line; "" if the program has no line table for it.
std::string describe_code(const void* instruction);

}  // namespace vgpu
