// The pipes between the judge and the kit. A student's object that references these functions is
// rejected with a message, because it would cheat (labs/course/forbidden.py).
#pragma once

#include <string>
#include <string_view>

namespace kit::channel {

[[nodiscard]] std::string read_all(int from);
void write_all(int to, std::string_view bytes);
void forget();  // in a forked child: its answers go to its parent instead

}  // namespace kit::channel
