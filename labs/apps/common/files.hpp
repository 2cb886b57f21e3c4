// The files of a program. Outputs are written at the end, after minutes of work, so they are
// checked at the start. ringsmith's own sources are train_gpt's default text.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ringsmith::apps {

// Throws like write_file() if a file of up to 64 KiB could not be written at this path now. An
// empty path means no file.
void require_writable(const std::string& path);

// Calls write(path). If this throws an Error, e.g. because the disk is full, calls write() for a
// new file in the working folder or the temporary folder instead, and then throws an Error with the
// reason and the new path, which follows `name` ("the trained model is").
void write_or_rescue(const std::string& path, const std::string& name,
                     const std::function<void(const std::string& path)>& write);

// Writes the whole file (runtime/base/atomic_file.hpp), or rescues its text as above. Writes
// nothing if the path is empty.
void write_file(const std::string& path, const std::string& text);

// Returns the source folder: the folder from which the program was built, or else the nearest
// folder above the program or the working directory that contains the sources. Throws UsageError
// proposing --data if there is none.
[[nodiscard]] std::string find_source_root();

// Paths of the Markdown and source files below root, sorted, so that the text made of them is the
// same on every machine. Throws UsageError if there are none.
[[nodiscard]] std::vector<std::string> list_sources(const std::string& root);

}  // namespace ringsmith::apps
