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

// Forgets all watched memory. A program's creation begins with it.
void forget();
// Makes the explorer order the accesses to memory that the threads share. Its plain bytes are
// called name[0], name[1], ...
void watch(const void* begin, std::size_t bytes, const char* name);
// Names an atomic in watched memory. Others get their region's name.
void name(const void* atomic, const char* name);

}  // namespace explorer::instrumented
