// The pipes between the judge and the kit. A student's object that asks for one of these is a
// cheat, and is told so (labs/course/forbidden.py).
#pragma once

#include <string>
#include <string_view>

namespace kit::channel {

[[nodiscard]] std::string read_all(int from);
void write_all(int to, std::string_view bytes);
void forget();  // in a forked child: its answers go to its parent

}  // namespace kit::channel
