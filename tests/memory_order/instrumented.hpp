// Runs the runtime's own code under the explorer.
//
// A file of this folder that is compiled with -fsanitize=thread calls a function before each access
// to memory, and instead of each atomic operation. ThreadSanitizer, whose functions these are, is
// not linked. Instead, instrumented.cpp implements them and asks the explorer what to return. So
// the explorer runs the unchanged headers, including std::atomic.
//
//     tail_->load()  -->  __tsan_atomic64_load(tail_, seq_cst)  -->  explorer::load(...)
//
// In every execution, the program declares the watched memory with the functions below.
#pragma once

#include <cstddef>

#include "labs/kit/explorer/explorer.hpp"

namespace explorer::instrumented {

// Forgets all watched memory. Call it first when you create a program.
void forget();
// Makes the explorer order the accesses to these bytes, which the threads share. Plain bytes are
// called name[0], name[1], ...
void watch(const void* begin, std::size_t bytes, const char* name);
// Names an atomic in watched memory. Unnamed atomics get their region's name.
void name(const void* atomic, const char* name);

}  // namespace explorer::instrumented
