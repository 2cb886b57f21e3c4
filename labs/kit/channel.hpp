// The pipes between the judge and the kit. A student's object that references these functions is
// rejected, because it could forge answers (labs/course/forbidden.py).
#pragma once

#include <string>
#include <string_view>

namespace kit::channel {

[[nodiscard]] std::string read_all(int from);
void write_all(int to, std::string_view bytes);
void forget();  // called in a forked child, which answers its parent instead

}  // namespace kit::channel
