// The text that train_gpt learns when none is given: this repository's own lessons and sources.
//
// Files come in the order of their paths, so the text is the same on every machine.
#pragma once

#include <string>
#include <vector>

namespace ringsmith::apps {

// The folder of the sources: where the program was built from, else the nearest folder above the
// program or the working directory that holds them. UsageError proposing --data.
[[nodiscard]] std::string find_source_root();

// Paths of the Markdown and source files below root, sorted. UsageError if there are none.
[[nodiscard]] std::vector<std::string> list_sources(const std::string& root);

}  // namespace ringsmith::apps
