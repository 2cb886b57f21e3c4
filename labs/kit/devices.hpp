// The devices of one process, each with its own memory. Copies are counted by source and
// destination, and the peak memory of each device is recorded.
//
//     device 0 (the root)  [w][b][batch]      --copy-->   device 1  [w][b][rows]
//                          <--copy--
//
// A DeviceModel does the arithmetic and, as GPUs do, rejects operands on another device. Your code
// runs on the root, and reads and writes only the root's memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "labs/kit/record.hpp"

namespace kit {

class Devices;

// Makes this thread compute on `device` instead of the root until the end of the scope.
class On {
 public:
  explicit On(int device) : before_(std::exchange(current(), device)) {}
  ~On() { current() = before_; }
  On(const On&) = delete;
  On& operator=(const On&) = delete;
  static int& current() {
    static thread_local int device = 0;
    return device;
  }

 private:
  int before_;
};

// A matrix of floats in the memory of one device, freed with this object. Only Devices can copy it.
class Buffer {
 public:
  Buffer() = default;  // no memory, on no device
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(devices_, other.devices_);
    std::swap(device_, other.device_);
    std::swap(width_, other.width_);
    std::swap(data_, other.data_);
    return *this;
  }
  inline ~Buffer();

  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] std::size_t rows() const { return width_ == 0 ? 0 : data_.size() / width_; }
  [[nodiscard]] std::size_t width() const { return width_; }
  // Throws std::logic_error if the current device is not the buffer's.
  [[nodiscard]] std::span<float> numbers() {
    require_here();
    return data_;
  }
  [[nodiscard]] std::span<const float> numbers() const {
    require_here();
    return data_;
  }

 private:
  void require_here() const {
    if (device_ >= 0 && device_ != On::current())
      throw std::logic_error("numbers on device " + std::to_string(device_) +
                             " are used on device " + std::to_string(On::current()) +
                             ": copy them there first");
  }
  friend class Devices;
  Devices* devices_ = nullptr;
  int device_ = -1;
  std::size_t width_ = 0;
  std::vector<float> data_;
};

// Thread-safe, except observe() and the two forget functions.
class Devices {
 public:
  explicit Devices(int count)
      : held_(std::size_t(count)), most_(held_), wires_(std::size_t(count * count)) {}
  [[nodiscard]] int count() const { return int(held_.size()); }

  Buffer make(int device, std::size_t rows, std::size_t width) {
    if (device < 0 || device >= count())
      throw std::out_of_range("there is no device " + std::to_string(device));
    Buffer fresh;
    fresh.devices_ = this;
    fresh.device_ = device;
    fresh.width_ = width;
    fresh.data_.assign(rows * width, 0.0F);
    const std::lock_guard lock(mutex_);
    std::int64_t& held = held_[std::size_t(device)];
    held += bytes(fresh);
    most_[std::size_t(device)] = std::max(most_[std::size_t(device)], held);
    return fresh;
  }
  // Copies rows [first, first + rows) of a matrix into new memory on device `to`.
  Buffer copy_rows(const Buffer& from, std::size_t first, std::size_t rows, int to) {
    if (first + rows > from.rows())
      throw std::out_of_range("rows " + std::to_string(first) + " to " +
                              std::to_string(first + rows) + " of a matrix of " +
                              std::to_string(from.rows()));
    Buffer copy = make(to, rows, from.width());
    std::copy_n(from.data_.begin() + std::ptrdiff_t(first * from.width()), rows * from.width(),
                copy.data_.begin());
    const std::lock_guard lock(mutex_);
    if (from.device_ != to) wires_[std::size_t(from.device_ * count() + to)] += bytes(copy);
    return copy;
  }
  Buffer copy(const Buffer& from, int to) { return copy_rows(from, 0, from.rows(), to); }

  // wires: bytes sent from device i to device j, at i * count + j. most, held: peak and current
  // bytes of each device.
  void observe(Observation& out) const {
    out.put("wires", wires_);
    out.put("most", most_);
    out.put("held", held_);
  }
  void forget_traffic() { std::fill(wires_.begin(), wires_.end(), 0); }
  void forget_most() { most_ = held_; }
  [[nodiscard]] std::int64_t held() const {  // bytes of all buffers now
    return std::accumulate(held_.begin(), held_.end(), std::int64_t{0});
  }

 private:
  friend class Buffer;
  static std::int64_t bytes(const Buffer& b) { return std::int64_t(4 * b.data_.size()); }
  std::mutex mutex_;
  std::vector<std::int64_t> held_, most_, wires_;
};

inline Buffer::~Buffer() {
  if (devices_ == nullptr) return;
  const std::lock_guard lock(devices_->mutex_);
  devices_->held_[std::size_t(device_)] -= Devices::bytes(*this);
}

// The computation of a model on one device, which only one thread per device calls at a time. All
// arguments and results are on `device`. The functions may throw.
class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  using Parameters = std::vector<const Buffer*>;
  virtual Buffer forward(int device, const Parameters& parameters, const Buffer& input) = 0;
  // Returns the gradient of each parameter, summed over the rows. output_gradient: the gradient of
  // the loss with respect to the output.
  virtual std::vector<Buffer> backward(int device, const Parameters& parameters,
                                       const Buffer& input, const Buffer& output_gradient) = 0;
};

}  // namespace kit
