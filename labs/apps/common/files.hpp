// Files that a program writes, and ringsmith's own sources, the default text of train_gpt. An
// output is written after minutes of work, so its path is checked at the start.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ringsmith::apps {

// Throws like write_file() if a file of up to 64 KiB could not be written at this path now. An
// empty path means no file.
void require_writable(const std::string& path);

// Calls write(path). If that throws an Error (a full disk, say), retries with a new file in the
// working folder, then the temporary folder, and throws an Error that gives the reason and says
// where the data is: name + " in '<new path>'", e.g. "the trained model is in '...'". Rethrows if
// no retry succeeds.
void write_or_rescue(const std::string& path, const std::string& name,
                     const std::function<void(const std::string& path)>& write);

// Writes the whole file atomically (runtime/base/atomic_file.hpp). If this fails, rescues the text
// like write_or_rescue(). Does nothing if the path is empty.
void write_file(const std::string& path, const std::string& text);

// Returns the source folder: the folder from which the program was built, or else the nearest
// folder above the program or the working directory that contains the sources. Throws UsageError
// proposing --data if there is none.
[[nodiscard]] std::string find_source_root();

// Returns the paths of the Markdown and source files below root, sorted, so that concatenating them
// gives the same text on every machine. Throws UsageError if there are none.
[[nodiscard]] std::vector<std::string> list_sources(const std::string& root);

}  // namespace ringsmith::apps
