// Output files and the source tree. Programs check the path of an output before they begin minutes
// of work.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ringsmith::apps {

// Throws if a file of 64 KiB could not be written at this path now. An empty path means no file.
void require_writable(const std::string& path);

// Calls write(path). If that throws an Error (a full disk, say), retries with a new file in the
// working folder, then in the temporary folder, and throws an Error that gives the reason and the
// new path: name + " in '<new path>'". Rethrows if no retry succeeds.
void write_or_rescue(const std::string& path, const std::string& name,
                     const std::function<void(const std::string& path)>& write);

// Writes the file atomically. If that fails, rescues the text like write_or_rescue(). An empty path
// means no file.
void write_file(const std::string& path, const std::string& text);

// Returns the folder from which the program was built, or else the nearest folder that contains the
// sources: the program's folder, a folder above it, the working directory, or a folder above that.
// Throws UsageError proposing --data if there is none.
[[nodiscard]] std::string find_source_root();

// Returns root's README.md and the Markdown and source files in ringsmith's folders below root.
// They are sorted, so that the concatenated text is the same on every machine. Throws UsageError if
// there are none.
[[nodiscard]] std::vector<std::string> list_sources(const std::string& root);

}  // namespace ringsmith::apps
