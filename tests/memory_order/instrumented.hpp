// The runtime's own code under the explorer.
//
// A file of this folder that is compiled with -fsanitize=thread calls a function before each access
// to memory, and in the place of each atomic operation. Those functions are ThreadSanitizer's, but
// it is not linked here: instrumented.cpp has them, and asks the explorer what to return. So the
// explorer runs the headers as they are, std::atomic and all.
//
//     tail_->load()  -->  __tsan_atomic64_load(tail_, seq_cst)  -->  explorer::load(...)
//
// What the explorer watches is named here, by the program that it explores, each time.
#pragma once

#include <cstddef>

#include "labs/kit/explorer/explorer.hpp"

namespace explorer::instrumented {

// First in the making of a program: nothing is watched.
void forget();
// The threads share this memory: its accesses are the explorer's. Its plain bytes are called
// name[0], name[1], ...
void watch(const void* begin, std::size_t bytes, const char* name);
// An atomic in watched memory; others go by their region's name.
void name(const void* atomic, const char* name);

}  // namespace explorer::instrumented
