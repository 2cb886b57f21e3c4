// Files of the programs: outputs that are written at the end, after minutes of work (so they are
// checked at the start), and ringsmith's own sources, train_gpt's default text.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ringsmith::apps {

// Throws like write_file() if the file, of at most 64 KiB, could not be written now. An empty path
// means no file.
void require_writable(const std::string& path);

// Calls write(path). If this throws an Error, e.g. because the disk is full, calls write() for a
// new file in the working folder or the temporary folder instead, and throws an Error that has the
// reason and, after `name` ("the trained model is"), the place.
void write_or_rescue(const std::string& path, const std::string& name,
                     const std::function<void(const std::string& path)>& write);

// Writes the whole file (runtime/base/atomic_file.hpp), or rescues its text as above. Writes
// nothing if the path is empty.
void write_file(const std::string& path, const std::string& text);

// The source folder: the folder from which the program was built, else the nearest folder above the
// program or the working directory that holds the sources. Throws UsageError proposing --data.
[[nodiscard]] std::string find_source_root();

// Paths of the Markdown and source files below root, sorted, so that the text made of them is the
// same on every machine. Throws UsageError if there are none.
[[nodiscard]] std::vector<std::string> list_sources(const std::string& root);

}  // namespace ringsmith::apps
