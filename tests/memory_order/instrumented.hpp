// Runs the runtime's own code under the explorer.
//
// A file of this folder that is compiled with -fsanitize=thread calls a function before each access
// to memory, and instead of each atomic operation. These are ThreadSanitizer's functions, but it is
// not linked here: instrumented.cpp implements them, and asks the explorer what to return. So the
// explorer runs the unchanged headers, including std::atomic.
//
//     tail_->load()  -->  __tsan_atomic64_load(tail_, seq_cst)  -->  explorer::load(...)
//
// The explored program declares the memory that the explorer watches with the functions below, in
// every execution.
#pragma once

#include <cstddef>

#include "labs/kit/explorer/explorer.hpp"

namespace explorer::instrumented {

// Forgets all watched memory. Called first when a program is created.
void forget();
// Watches memory that the threads share, so that the explorer decides the order of accesses to it.
// Its plain bytes are called name[0], name[1], ...
void watch(const void* begin, std::size_t bytes, const char* name);
// Names an atomic in watched memory. The other atomics are identified by their region's name.
void name(const void* atomic, const char* name);

}  // namespace explorer::instrumented
