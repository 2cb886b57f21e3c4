// Files that a program writes at its end, after minutes of work: a clear no before.
#pragma once

#include <string>

namespace ringsmith::apps {

// UsageError unless the file, or a new one in its folder, may be written. Empty: no file is wanted.
void require_writable(const std::string& path);

// UsageError if it cannot be opened, Error if it could not be written to its end (the disk is
// full). Empty: nothing is written.
void write_file(const std::string& path, const std::string& text);

}  // namespace ringsmith::apps
