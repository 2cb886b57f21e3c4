// Devices of one process, with memory of their own: who copies what from where to where is counted,
// and so is the most that each device ever held.
//
//     device 0 (the root)  [w][b][batch]      --copy-->   device 1  [w][b][rows]
//                          <--copy--
//
// The arithmetic is done by a DeviceModel, which refuses numbers that lie elsewhere: memory of
// another device cannot be computed with, as on GPUs. Your own code runs on the root, and reads and
// writes the root's memory alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "labs/kit/record.hpp"

namespace kit {

class Devices;

// Given: until the end of its scope this thread computes on `device`, and no longer on the root.
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

// A matrix of floats in the memory of one device; gone when this object is. It can be moved, and
// copied only by Devices.
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
  // std::logic_error on another device than that on which they lie.
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

// May be used from several threads.
class Devices {
 public:
  explicit Devices(int count)
      : held_(std::size_t(count)), most_(held_), wires_(std::size_t(count * count)) {}
  [[nodiscard]] int count() const { return int(held_.size()); }

  // Zeros.
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
  // Rows [first, first + count) of a matrix, in memory of their own on device `to`.
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

  // wires: bytes from device i to device j at i * count + j; most: the largest bytes held by each;
  // held: those held now.
  void observe(Observation& out) const {
    out.put("wires", wires_);
    out.put("most", most_);
    out.put("held", held_);
  }
  void forget_traffic() { std::fill(wires_.begin(), wires_.end(), 0); }
  void forget_most() { most_ = held_; }

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

// What a model computes on one device; from one thread for each device at a time. Everything that
// it is given must lie on `device`, and its results do. It may throw.
class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  using Parameters = std::vector<const Buffer*>;
  // One row of output for each row of input.
  virtual Buffer forward(int device, const Parameters& parameters, const Buffer& input) = 0;
  // The gradient of each parameter: the sum over the rows, for the loss's gradient of the output.
  virtual std::vector<Buffer> backward(int device, const Parameters& parameters,
                                       const Buffer& input, const Buffer& output_gradient) = 0;
};

}  // namespace kit
