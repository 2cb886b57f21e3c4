// Runs ranks as threads of one program, each with its own group. Prints in rank order.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.hpp"
#include "runtime/job/threads.hpp"
#include "runtime/tensor/tensor.hpp"

using Group = std::shared_ptr<ringsmith::comm::ProcessGroup>;

// Prints, in rank order, the text that each rank returned, or the message of the exception that
// it threw.
inline void on_ranks(int world, const std::function<std::string(const Group&)>& body,
                     bool prints = true) {
  namespace comm = ringsmith::comm;
  std::vector<std::string> said(static_cast<std::size_t>(world));
  const auto run = [&](int rank, std::shared_ptr<comm::Bootstrap> bootstrap) {
    comm::GroupOptions options;
    options.algorithm = comm::Algorithm::ring;
    said[static_cast<std::size_t>(rank)] =
        body(comm::init_process_group(std::move(bootstrap), options));
  };
  const auto errors = comm::run_as_threads(std::make_shared<comm::ThreadRendezvous>(world), run);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank]) continue;
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const std::exception& error) {
      said[rank] = std::string("error: ") + error.what();
    }
  }
  for (int rank = 0; prints && rank < world; ++rank)
    std::printf("  rank %d  %s\n", rank, said[static_cast<std::size_t>(rank)].c_str());
}

inline std::string numbers(const ringsmith::Tensor& t) {
  if (!t.defined()) return "none";
  std::string text;
  for (const float value : t.to_vector<float>()) {
    char one[32];
    std::snprintf(one, sizeof one, "%s%g", text.empty() ? "" : " ", static_cast<double>(value));
    text += one;
  }
  return text;
}
