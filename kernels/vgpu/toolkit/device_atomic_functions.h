// <device_atomic_functions.h> of the toolkit: everything is in <cuda_runtime.h> here.
#pragma once

#include <cuda_runtime.h>
