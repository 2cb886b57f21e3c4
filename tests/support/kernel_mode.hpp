#pragma once

#include "kernels/mode.hpp"

namespace ringsmith::test {

class KernelMode {
 public:
  explicit KernelMode(kernels::Mode mode) : previous_(kernels::mode()) { kernels::set_mode(mode); }
  ~KernelMode() { kernels::set_mode(previous_); }
  KernelMode(const KernelMode&) = delete;
  KernelMode& operator=(const KernelMode&) = delete;

 private:
  kernels::Mode previous_;
};

}  // namespace ringsmith::test
