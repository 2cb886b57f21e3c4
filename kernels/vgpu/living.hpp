// Streams or events that the program may use. A destroyed one keeps its address for a while, so
// that a stale handle is not taken for that of a new one.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_set>

namespace vgpu {

template <class T>
class Living {
 public:
  T* add(std::unique_ptr<T> made) {
    const std::scoped_lock lock(mutex_);
    living_.insert(made.get());
    return made.release();
  }
  // Null if it is living; else what to say of it.
  [[nodiscard]] const char* refuse(const T* handle) const {
    const std::scoped_lock lock(mutex_);
    if (living_.count(handle) != 0) return nullptr;
    for (const auto& d : dead_)
      if (d.get() == handle) return "was destroyed before";
    return "is no handle that this program was given";
  }
  void bury(T* handle) {
    constexpr std::size_t kKept = 1024;
    const std::scoped_lock lock(mutex_);
    living_.erase(handle);
    dead_.emplace_back(handle);
    if (dead_.size() > kKept) dead_.pop_front();
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<const T*> living_;
  std::deque<std::unique_ptr<T>> dead_;
};

}  // namespace vgpu
