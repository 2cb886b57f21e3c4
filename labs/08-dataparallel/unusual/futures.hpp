// Unusual and correct: std::async and futures, which carry exceptions; replica 0's input is copied
// last; gradients are added into replica 0's, one replica at a time.
#pragma once

#include <cstddef>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "labs/kit/devices.hpp"

namespace lab08 {

struct Part {
  std::size_t first = 0, count = 0;
};

inline std::vector<Part> split_rows(std::size_t rows, int devices) {
  std::vector<Part> parts;
  std::size_t each = rows / std::size_t(devices), left = rows;
  while (each * std::size_t(devices) < rows) ++each;
  do {
    const std::size_t taken = left < each ? left : each;
    parts.push_back({rows - left, taken});
    left -= taken;
  } while (left > 0);
  return parts;
}

inline std::vector<kit::Buffer> scatter(kit::Devices& devices, const kit::Buffer& batch,
                                        const std::vector<Part>& parts) {
  std::vector<kit::Buffer> out(parts.size());
  for (std::size_t i = parts.size(); i-- > 0;)
    out[i] = devices.copy_rows(batch, parts[i].first, parts[i].count, int(i));
  return out;
}

template <class Body>
void parallel_apply(int replicas, Body&& body) {
  std::vector<std::future<void>> ends;
  for (int i = 0; i < replicas; ++i)
    ends.push_back(std::async(std::launch::async, [&body, i] { body(i); }));
  std::optional<std::string> first;
  for (int i = 0; i < replicas; ++i) try {
      ends[std::size_t(i)].get();
    } catch (const std::exception& error) {
      if (!first) first = "replica " + std::to_string(i) + ": " + error.what();
    }
  if (first) throw std::runtime_error(*first);
}

inline kit::Buffer gather(kit::Devices& devices, const std::vector<kit::Buffer>& parts) {
  std::vector<float> all;
  for (const kit::Buffer& part : parts) {
    if (part.device() == 0) {
      all.insert(all.end(), part.numbers().begin(), part.numbers().end());
      continue;
    }
    const kit::Buffer here = devices.copy(part, 0);
    all.insert(all.end(), here.numbers().begin(), here.numbers().end());
  }
  const std::size_t width = parts.front().width();
  kit::Buffer whole = devices.make(0, width == 0 ? 0 : all.size() / width, width);
  std::copy(all.begin(), all.end(), whole.numbers().begin());
  return whole;
}

class DataParallel {
 public:
  DataParallel(kit::Devices& devices, kit::DeviceModel& model,
               const std::vector<kit::Buffer>& parameters)
      : devices_(devices), model_(model), root_(parameters) {}

  kit::Buffer forward(const kit::Buffer& batch) {
    replicas_.clear();
    const std::vector<Part> parts = split_rows(batch.rows(), devices_.count());
    std::vector<kit::Buffer> inputs = scatter(devices_, batch, parts);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Replica replica{parts[i], std::move(inputs[i]), {}, {}};
      if (i > 0)
        for (const kit::Buffer& p : root_) replica.own.push_back(devices_.copy(p, int(i)));
      replicas_.push_back(std::move(replica));
      for (const kit::Buffer& p : i > 0 ? replicas_.back().own : root_)
        replicas_.back().used.push_back(&p);
    }
    std::vector<kit::Buffer> outputs(parts.size());
    parallel_apply(int(parts.size()), [&](int i) {
      const Replica& replica = replicas_[std::size_t(i)];
      outputs[std::size_t(i)] = model_.forward(i, replica.used, replica.input);
    });
    return gather(devices_, outputs);
  }

  std::vector<kit::Buffer> backward(const kit::Buffer& output_gradient) {
    std::vector<Part> parts;
    for (const Replica& replica : replicas_) parts.push_back(replica.part);
    std::vector<kit::Buffer> gradients = scatter(devices_, output_gradient, parts);
    std::vector<std::vector<kit::Buffer>> found(parts.size());
    parallel_apply(int(parts.size()), [&](int i) {
      const Replica& replica = replicas_[std::size_t(i)];
      found[std::size_t(i)] =
          model_.backward(i, replica.used, replica.input, gradients[std::size_t(i)]);
    });
    for (std::size_t i = 1; i < found.size(); ++i) {
      for (std::size_t p = 0; p < root_.size(); ++p) {
        const kit::Buffer here = devices_.copy(found[i][p], 0);
        for (std::size_t k = 0; k < here.numbers().size(); ++k)
          found[0][p].numbers()[k] += here.numbers()[k];
      }
      found[i].clear();
    }
    replicas_.clear();
    return std::move(found[0]);
  }

 private:
  struct Replica {
    Part part;
    kit::Buffer input;
    std::vector<kit::Buffer> own;
    kit::DeviceModel::Parameters used;
  };
  kit::Devices& devices_;
  kit::DeviceModel& model_;
  const std::vector<kit::Buffer>& root_;
  std::vector<Replica> replicas_;
};

}  // namespace lab08
