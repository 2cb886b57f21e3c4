#include "labs/kit/vault.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <string>
#include <sys/mman.h>

#include "labs/kit/driver.hpp"

namespace kit {

struct Vault::Header {
  std::atomic<std::int64_t> saves;  // checkpoint k is in slot k % 2
  std::size_t sizes[2];
};

namespace {
std::size_t bytes_for(std::size_t header, std::size_t most) {
  return header + 2 * most * sizeof(double);
}
}  // namespace

Vault::Vault(std::size_t most_numbers) : most_(most_numbers) {
  void* at = mmap(nullptr, bytes_for(sizeof(Header), most_), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  header_ = static_cast<Header*>(at);
}
Vault::~Vault() { munmap(header_, bytes_for(sizeof(Header), most_)); }

double* Vault::place(std::int64_t number) const {
  return reinterpret_cast<double*>(header_ + 1) + std::size_t(number % 2) * most_;
}

void Vault::save(std::span<const double> numbers) {
  if (numbers.size() > most_)
    throw Misuse{"a checkpoint of " + std::to_string(numbers.size()) +
                 " numbers; the vault holds " + std::to_string(most_)};
  const std::int64_t next = header_->saves + 1;
  std::copy(numbers.begin(), numbers.end(), place(next));
  header_->sizes[next % 2] = numbers.size();
  header_->saves.store(next, std::memory_order_release);
}

std::vector<double> Vault::load() const {
  const std::int64_t last = header_->saves.load(std::memory_order_acquire);
  if (last == 0) return {};
  return {place(last), place(last) + header_->sizes[last % 2]};
}

std::int64_t Vault::saves() const { return header_->saves; }

}  // namespace kit
