// Files of the programs: those that one writes at its end, after minutes of work (a clear no comes
// before), and ringsmith's own sources, which train_gpt reads when no text is given.
#pragma once

#include <string>
#include <vector>

namespace ringsmith::apps {

// UsageError unless the file, or a new one in its folder, may be written. Empty: no file is wanted.
void require_writable(const std::string& path);

// UsageError if it cannot be opened, Error if it could not be written to its end (the disk is
// full). Empty: nothing is written.
void write_file(const std::string& path, const std::string& text);

// The folder of the sources: where the program was built from, else the nearest folder above the
// program or the working directory that holds them. UsageError proposing --data.
[[nodiscard]] std::string find_source_root();

// Paths of the Markdown and source files below root, sorted: the text that they make is the same on
// every machine. UsageError if there are none.
[[nodiscard]] std::vector<std::string> list_sources(const std::string& root);

}  // namespace ringsmith::apps
