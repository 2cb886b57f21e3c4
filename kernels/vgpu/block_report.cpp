// What is said about a block that is stuck, or in which something went wrong.
#include <algorithm>
#include <map>

#include "kernels/vgpu/block.hpp"
#include "kernels/vgpu/device.hpp"
#include "kernels/vgpu/error.hpp"
#include "kernels/vgpu/guard_page.hpp"
#include "kernels/vgpu/queue.hpp"
#include "kernels/vgpu/report.hpp"

namespace vgpu {

std::string BlockRunner::describe() const {
  std::map<std::string, std::vector<unsigned>> groups;
  for (unsigned i = 0; i < begun_; ++i) {
    const Thread& t = threads_[order_[i]];
    const std::string place =
        std::string(t.where.file_name()) + ":" + std::to_string(t.where.line());
    std::string what;
    switch (t.state) {
      case Thread::State::finished:
        what = "left the kernel";
        break;
      case Thread::State::barrier:
        what = "wait in __syncthreads() at " + place;
        break;
      case Thread::State::warp:
        what = "wait for their warp at " + place;
        break;
      case Thread::State::running:
        what = "running, at " + place;
        break;
      case Thread::State::spinning: {
        what = "spin at " + place;
        for (const Thread::Read& r : t.reads)
          if (r.address != nullptr)
            what += ", read " + std::to_string(r.value) + " from " + describe_address(r.address);
        break;
      }
      case Thread::State::not_begun:
        break;
    }
    groups[what].push_back(t.number);
  }
  std::string out;
  for (auto& [what, threads] : groups) {
    std::sort(threads.begin(), threads.end());
    out += "\n  " + std::to_string(threads.size()) +
           (threads.size() == 1 ? " thread (" : " threads (") + describe_numbers(threads) + ") " +
           what;
  }
  return out;
}

std::string BlockRunner::describe_self() const {
  const uint3 b = view_.index;
  std::string out = grid_->describe() + ", block (" + std::to_string(b.x) + "," +
                    std::to_string(b.y) + "," + std::to_string(b.z) + ")";
  if (current_thread == nullptr) return out;
  const uint3 t = current_thread->index;
  return out + ", thread (" + std::to_string(t.x) + "," + std::to_string(t.y) + "," +
         std::to_string(t.z) + ")";
}

int BlockRunner::device() const { return grid_->queue.device().index(); }

bool BlockRunner::beyond_dynamic_shared(const void* address) const {
  const auto distance = static_cast<const std::byte*>(address) - (dynamic_ + kMostShared);
  return distance >= 0 && distance < static_cast<std::ptrdiff_t>(guard_page());
}

void BlockRunner::stuck(const char* what) {
  const uint3 b = view_.index;
  fatal(std::string(what) + "\n  in " + grid_->describe() + ", block (" + std::to_string(b.x) +
        "," + std::to_string(b.y) + "," + std::to_string(b.z) + "):" + describe());
}

}  // namespace vgpu
