// Includes everything that a training program needs; labs/template/main.cpp uses it.
//
// Each header can also be included by itself. Other headers (schedules, transports, the checker,
// kernels) are installed next to it under the same names.
#pragma once

#if __cplusplus < 202002L
#error "ringsmith is C++20: compile with -std=c++20"
#endif

#include "kernels/mode.hpp"
#include "runtime/autograd/functions.hpp"
#include "runtime/autograd/node.hpp"
#include "runtime/base/error.hpp"
#include "runtime/checkpoint/manager.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/comm/process_group.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/images.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/device/device.hpp"
#include "runtime/job/launch/spawn.hpp"
#include "runtime/nn/gpt.hpp"
#include "runtime/nn/layers.hpp"
#include "runtime/optim/optimizer.hpp"
#include "runtime/optim/step_graph.hpp"
#include "runtime/parallel/agreement.hpp"
#include "runtime/parallel/beyond/per_step.hpp"
#include "runtime/parallel/data_parallel.hpp"
#include "runtime/parallel/ddp.hpp"
#include "runtime/parallel/drift.hpp"
#include "runtime/parallel/stop_request.hpp"
