// A job of one: every collective is then a copy.
#pragma once

#include "runtime/comm/bootstrap/bootstrap.hpp"

namespace ringsmith::comm {

class SelfBootstrap : public Bootstrap {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return {record};
  }
};

}  // namespace ringsmith::comm
