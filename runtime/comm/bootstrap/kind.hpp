// BootstrapKind is one of the options of a group.
#pragma once

#include "runtime/comm/types/options.hpp"
