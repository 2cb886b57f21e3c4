// Files of the programs: those that one writes at its end, after minutes of work (a clear no comes
// before), and ringsmith's own sources, which train_gpt reads when no text is given.
#pragma once

#include <string>
#include <vector>

namespace ringsmith::apps {

// Throws as write_file() unless the file could be written now. Empty: no file is wanted.
void require_writable(const std::string& path);

// The whole file (runtime/base/atomic_file.hpp). UsageError if the path is at fault, Error if the
// disk is full. Empty: nothing is written.
void write_file(const std::string& path, const std::string& text);

// The folder of the sources: where the program was built from, else the nearest folder above the
// program or the working directory that holds them. UsageError proposing --data.
[[nodiscard]] std::string find_source_root();

// Paths of the Markdown and source files below root, sorted: the text that they make is the same on
// every machine. UsageError if there are none.
[[nodiscard]] std::vector<std::string> list_sources(const std::string& root);

}  // namespace ringsmith::apps
