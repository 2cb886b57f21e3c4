// Runs ranks as threads, for tests of runtime/parallel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/parallel/ddp.hpp"
#include "tests/comm/thread_ranks.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/toy_models.hpp"

namespace ringsmith::test {

using Group = std::shared_ptr<comm::ProcessGroup>;
using Values = std::vector<std::vector<float>>;

// Like run_threads(), but passes a shared pointer, as DistributedDataParallel requires.
template <class Result>
std::vector<Result> run_ranks(int world, const std::function<Result(const Group&)>& body) {
  return run_threads<Result>(world, [&](comm::ProcessGroup& group) {
    return body(Group(std::shared_ptr<void>(), &group));
  });
}

// Returns the message of the Error that body throws; "" if it returns.
inline std::string complaint_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

inline Values values_of(const NamedTensors& tensors) {
  Values out;
  for (const auto& [name, t] : tensors) out.push_back(t.to(DType::f32).to_vector<float>());
  return out;
}

}  // namespace ringsmith::test
