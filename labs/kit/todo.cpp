#include "labs/kit/todo.hpp"

namespace kit {

void todo(const char* task) { throw NotAttempted{task}; }

}  // namespace kit
