// <nvToolsExt.h> of the toolkit.
#pragma once

#include <nvtx3/nvToolsExt.h>
