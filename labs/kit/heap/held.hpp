// Counts memory where it is allocated: by new, malloc, calloc or any of their relatives.
#pragma once

#include <cstdint>

namespace kit {

// Returns the number of bytes that this thread has allocated and not freed.
std::int64_t heap_of_thread();

// The same for the whole process: the current bytes, and their peak since heap_forget_most().
std::int64_t heap();
std::int64_t heap_most();
void heap_forget_most();

}  // namespace kit
