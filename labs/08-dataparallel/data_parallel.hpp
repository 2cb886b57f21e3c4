// Lab 08: DataParallel. One process, N devices. Device 0, the root, has the parameters; the others
// get copies of them for one forward and its backward, and return gradients.
//
//              root                       device i
//   forward    distribute the rows -----> its rows
//              copy the parameters ---->  a replica's parameters, in every forward
//              forward of its part   ||   forward of its part, one thread each
//              gather the outputs <-----
//   backward   distribute the gradient -> gradient of its rows
//              backward              ||   backward, one thread each
//              add the gradients  <-----  gradients, in the order of the replicas
//
// Devices and their memory: labs/kit/devices.hpp.
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

// Rows [first, first + count) of a batch.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};

// Task 1. Assigns rows to devices: ceil(rows / devices) to each, in order, until no rows are left;
// the last part may be shorter. There are as many parts as devices that have work: 5 rows on 4
// devices make 2 + 2 + 1. No rows make one empty part. Do not loop over rows: there may be 2^40.
inline std::vector<Part> split_rows(std::size_t rows, int devices) {
#ifdef SOLUTION
  const std::size_t n = std::size_t(devices), each = (rows + n - 1) / n;
  std::vector<Part> parts;
  for (std::size_t first = 0; first < rows; first += each)
    parts.push_back({first, first + each < rows ? each : rows - first});
  if (parts.empty()) parts.push_back({});
  return parts;
#else
  (void)rows, (void)devices;
  kit::todo("task 1, split_rows");
#endif
}

// Task 2. Copies part i of batch, which is on the root, into the memory of device i.
inline std::vector<kit::Buffer> scatter(kit::Devices& devices, const kit::Buffer& batch,
                                        const std::vector<Part>& parts) {
#ifdef SOLUTION
  std::vector<kit::Buffer> out;
  for (std::size_t i = 0; i < parts.size(); ++i)
    out.push_back(devices.copy_rows(batch, parts[i].first, parts[i].count, int(i)));
  return out;
#else
  (void)devices, (void)batch, (void)parts;
  kit::todo("task 2, scatter");
#endif
}

// Task 3. Runs body(i) for each replica i of 0 .. replicas - 1, all simultaneously, one thread
// each. Waits until all have ended, even if some have thrown. If any has thrown, throws
// std::runtime_error for the lowest such replica: "replica 2: " and the text of that replica's
// exception. (A body throws only exceptions that are derived from std::exception.)
template <class Body>
void parallel_apply(int replicas, Body&& body) {
#ifdef SOLUTION
  std::vector<std::string> errors(static_cast<std::size_t>(replicas));
  std::vector<char> failed(static_cast<std::size_t>(replicas));
  std::vector<std::thread> threads;
  for (int i = 0; i < replicas; ++i)
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (const std::exception& error) {
        failed[std::size_t(i)] = 1;
        errors[std::size_t(i)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < replicas; ++i)
    if (failed[std::size_t(i)])
      throw std::runtime_error("replica " + std::to_string(i) + ": " + errors[std::size_t(i)]);
#else
  (void)replicas, (void)body;
  kit::todo("task 3, parallel_apply");
#endif
}

// Task 4. Concatenates the rows of all parts on the root. Part i is on device i.
inline kit::Buffer gather(kit::Devices& devices, const std::vector<kit::Buffer>& parts) {
#ifdef SOLUTION
  std::size_t rows = 0, at = 0;
  for (const kit::Buffer& part : parts) rows += part.rows();
  kit::Buffer whole = devices.make(0, rows, parts[0].width());
  for (const kit::Buffer& part : parts) {
    const kit::Buffer here = devices.copy(part, 0);
    for (const float number : here.numbers()) whole.numbers()[at++] = number;
  }
  return whole;
#else
  (void)devices, (void)parts;
  kit::todo("task 4, gather");
#endif
}

class DataParallel {
 public:
  // parameters are on the root; the optimizer writes to them between a backward and the next
  // forward. devices, model and parameters outlive this object.
  DataParallel(kit::Devices& devices, kit::DeviceModel& model,
               const std::vector<kit::Buffer>& parameters)
      : devices_(devices), model_(model), parameters_(parameters) {}

  // Task 5. Returns the model's output for the whole batch; both are on the root. Replica 0 uses
  // the root's own parameters. Keeps the data that backward needs.
  kit::Buffer forward(const kit::Buffer& batch) {
#ifdef SOLUTION
    forget();
    parts_ = split_rows(batch.rows(), devices_.count());
    inputs_ = scatter(devices_, batch, parts_);
    const int replicas = int(parts_.size());
    copies_.resize(parts_.size());
    for (int i = 1; i < replicas; ++i)
      for (const kit::Buffer& parameter : parameters_)
        copies_[std::size_t(i)].push_back(devices_.copy(parameter, i));
    std::vector<kit::Buffer> outputs(parts_.size());
    parallel_apply(replicas, [&](int i) {
      outputs[std::size_t(i)] = model_.forward(i, parameters_of(i), inputs_[std::size_t(i)]);
    });
    return gather(devices_, outputs);
#else
    (void)batch, (void)devices_, (void)model_, (void)parameters_;
    kit::todo("task 5, forward");
#endif
  }

  // Task 6. Returns the gradient of each parameter, on the root, given the gradient of the loss
  // with respect to the last forward's output. It must equal the gradient that one device computes
  // for the whole batch, so add the replicas' gradients, the lowest replica first. Frees the
  // replicas' memory. Never hold all replicas' gradients on the root simultaneously.
  std::vector<kit::Buffer> backward(const kit::Buffer& output_gradient) {
#ifdef SOLUTION
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
#else
    (void)output_gradient;
    kit::todo("task 6, backward");
#endif
  }

 private:
#ifdef SOLUTION
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

#endif
  kit::Devices& devices_;
  kit::DeviceModel& model_;
  const std::vector<kit::Buffer>& parameters_;
  std::vector<Part> parts_;                       // of the last forward
  std::vector<kit::Buffer> inputs_;               // by replica
  std::vector<std::vector<kit::Buffer>> copies_;  // by replica, by parameter; [0] is empty
};

}  // namespace lab08
