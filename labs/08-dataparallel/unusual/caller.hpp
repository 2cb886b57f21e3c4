// Unusual and correct: the calling thread is replica 0; each replica copies its parameters and its
// rows on its own thread, and errors are kept as exception_ptr.
#pragma once

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "labs/kit/devices.hpp"
#include "labs/kit/todo.hpp"

namespace lab08 {

struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};

inline std::vector<Part> split_rows(std::size_t rows, int devices) {
  const std::size_t n = std::size_t(devices), each = (rows + n - 1) / n;
  std::vector<Part> parts;
  for (std::size_t first = 0; first < rows; first += each)
    parts.push_back({first, first + each < rows ? each : rows - first});
  if (parts.empty()) parts.push_back({});
  return parts;
}

inline std::vector<kit::Buffer> scatter(kit::Devices& devices, const kit::Buffer& batch,
                                        const std::vector<Part>& parts) {
  std::vector<kit::Buffer> out;
  for (std::size_t i = 0; i < parts.size(); ++i)
    out.push_back(devices.copy_rows(batch, parts[i].first, parts[i].count, int(i)));
  return out;
}

template <class Body>
void parallel_apply(int replicas, Body&& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(replicas));
  const auto guarded = [&](int i) {
    try {
      body(i);
    } catch (...) {
      errors[std::size_t(i)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = replicas - 1; i > 0; --i) others.emplace_back(guarded, i);
    guarded(0);
  }  // joins all threads
  for (std::size_t i = 0; i < errors.size(); ++i) try {
      if (errors[i]) std::rethrow_exception(errors[i]);
    } catch (const std::exception& error) {
      throw std::runtime_error("replica " + std::to_string(i) + ": " + error.what());
    }
}

inline kit::Buffer gather(kit::Devices& devices, const std::vector<kit::Buffer>& parts) {
  std::size_t rows = 0, at = 0;
  for (const kit::Buffer& part : parts) rows += part.rows();
  kit::Buffer whole = devices.make(0, rows, parts[0].width());
  for (const kit::Buffer& part : parts) {
    const kit::Buffer here = devices.copy(part, 0);
    for (const float number : here.numbers()) whole.numbers()[at++] = number;
  }
  return whole;
}

class DataParallel {
 public:
  DataParallel(kit::Devices& devices, kit::DeviceModel& model,
               const std::vector<kit::Buffer>& parameters)
      : devices_(devices), model_(model), parameters_(parameters) {}

  kit::Buffer forward(const kit::Buffer& batch) {
    forget();
    parts_ = split_rows(batch.rows(), devices_.count());
    inputs_.resize(parts_.size());
    const int replicas = int(parts_.size());
    copies_.resize(parts_.size());
    std::vector<kit::Buffer> outputs(parts_.size());
    parallel_apply(replicas, [&](int i) {
      const Part mine = parts_[std::size_t(i)];
      inputs_[std::size_t(i)] = devices_.copy_rows(batch, mine.first, mine.count, i);
      for (const kit::Buffer& parameter : parameters_)
        if (i > 0) copies_[std::size_t(i)].push_back(devices_.copy(parameter, i));
      outputs[std::size_t(i)] = model_.forward(i, parameters_of(i), inputs_[std::size_t(i)]);
    });
    return gather(devices_, outputs);
  }

  std::vector<kit::Buffer> backward(const kit::Buffer& output_gradient) {
    const std::vector<kit::Buffer> gradients = scatter(devices_, output_gradient, parts_);
    std::vector<std::vector<kit::Buffer>> found(parts_.size());
    parallel_apply(int(parts_.size()), [&](int i) {
      const auto at = std::size_t(i);
      found[at] = model_.backward(i, parameters_of(i), inputs_[at], gradients[at]);
    });
    std::vector<kit::Buffer> sum = std::move(found[0]);
    for (std::size_t i = 1; i < found.size(); ++i)
      for (std::size_t p = 0; p < sum.size(); ++p) {
        const kit::Buffer arrived = devices_.copy(found[i][p], 0);
        for (std::size_t k = 0; k < arrived.numbers().size(); ++k)
          sum[p].numbers()[k] += arrived.numbers()[k];
      }
    forget();
    return sum;
  }

 private:
  [[nodiscard]] kit::DeviceModel::Parameters parameters_of(int replica) const {
    kit::DeviceModel::Parameters out;
    for (const kit::Buffer& p : replica == 0 ? parameters_ : copies_[std::size_t(replica)])
      out.push_back(&p);
    return out;
  }
  void forget() {
    inputs_.clear();
    copies_.clear();
  }

  kit::Devices& devices_;
  kit::DeviceModel& model_;
  const std::vector<kit::Buffer>& parameters_;
  std::vector<Part> parts_;                       // of the last forward
  std::vector<kit::Buffer> inputs_;               // by replica
  std::vector<std::vector<kit::Buffer>> copies_;  // by replica, by parameter; [0] is empty
};

}  // namespace lab08
