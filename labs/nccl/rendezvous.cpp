#include "labs/nccl/rendezvous.hpp"

#include <cstring>
#include <mutex>
#include <vector>

#include "labs/nccl/errors.hpp"
#include "runtime/job/exchange.hpp"
#include "runtime/job/store/client.hpp"
#include "runtime/job/store/server.hpp"

namespace ringsmith::nccl {

using namespace comm;

namespace {

constexpr char kMagic[9] = "rsnccl01";

struct Id {
  char magic[8];
  std::uint16_t port;
  char host[46];    // numeric address, null-terminated
  char secret[72];  // null-terminated
};
static_assert(sizeof(Id) == NCCL_UNIQUE_ID_BYTES);

// Constructed after libcrypto has been initialised, and therefore destroyed before libcrypto's
// cleanup.
struct Stores {
  std::mutex mutex;
  std::vector<std::unique_ptr<StoreServer>> all;
};
Stores& stores() {
  static const bool crypto = store::start_crypto();
  static Stores stores;
  if (!crypto) throw Refusal(ncclSystemError, "libcrypto cannot be started");
  return stores;
}

class Meeting : public Bootstrap {
 public:
  // prefix: of the keys in the store
  Meeting(const tcp::Address& address, const Secret& secret, const std::string& prefix, int rank,
          int world, std::chrono::milliseconds timeout)
      : address_(address), secret_(secret), prefix_(prefix), rank_(rank), world_(world) {
    const auto client = std::make_shared<StoreClient>(
        address, secret, Deadline::in(timeout),
        StoreClientOptions{.holder = ", which the process that called ncclGetUniqueId holds,"});
    exchange_ = std::make_unique<Exchange>(client, Membership{.size_name = "nranks",
                                                              .prefix = prefix,
                                                              .index = rank,
                                                              .size = world,
                                                              .timeout = timeout});
  }
  // The number of parts that were made before: every rank of a part has made the same ones.
  [[nodiscard]] std::shared_ptr<Bootstrap> part(int rank, int world,
                                                std::chrono::milliseconds timeout) {
    return std::make_shared<Meeting>(
        address_, secret_, prefix_ + ".part" + std::to_string(parts_++), rank, world, timeout);
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return world_; }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& record) override {
    return exchange_->all_gather(record);
  }
  [[nodiscard]] std::optional<LostMember> lost_rank() override {
    try {
      return exchange_->lost_member();
    } catch (const CommError&) {
      return {};  // the store is gone; the peers' own connections report failures
    }
  }

 private:
  tcp::Address address_;
  Secret secret_;
  std::string prefix_;
  int rank_, world_, parts_ = 0;
  std::unique_ptr<Exchange> exchange_;
};

void put(char* field, std::size_t size, const std::string& text) {
  if (text.size() >= size) throw Refusal(ncclSystemError, "'" + text + "' does not fit the id");
  std::memcpy(field, text.data(), text.size());
}

}  // namespace

ncclUniqueId make_id() {
  Stores& mine = stores();
  const Secret secret = Secret::random();
  const std::string host = tcp::outward_address();
  auto server = std::make_unique<StoreServer>(secret, StoreServerOptions{.bind = host});
  Id id{};
  std::memcpy(id.magic, kMagic, sizeof id.magic);
  id.port = server->port();
  put(id.host, sizeof id.host, host);
  put(id.secret, sizeof id.secret, secret.bytes());
  {
    const std::scoped_lock lock(mine.mutex);
    mine.all.push_back(std::move(server));
  }
  ncclUniqueId out;
  std::memcpy(&out, &id, sizeof out);
  return out;
}

std::shared_ptr<Bootstrap> join(const ncclUniqueId& unique, int rank, int world,
                                std::chrono::milliseconds timeout) {
  (void)stores();  // initialises libcrypto, which the client needs too
  Id id{};
  std::memcpy(&id, &unique, sizeof id);
  if (std::memcmp(id.magic, kMagic, sizeof id.magic) != 0 || id.host[sizeof id.host - 1] != 0 ||
      id.secret[sizeof id.secret - 1] != 0)
    throw Refusal(ncclInvalidArgument,
                  "id was not made by ncclGetUniqueId of this library, or did not reach this rank "
                  "in full (128 bytes)");
  return std::make_shared<Meeting>(tcp::Address{id.host, id.port}, Secret(id.secret, "the id"),
                                   "ranks", rank, world, timeout);
}

std::shared_ptr<Bootstrap> join_part(Bootstrap& parent, int rank, int world,
                                     std::chrono::milliseconds timeout) {
  return dynamic_cast<Meeting&>(parent).part(rank, world, timeout);
}

}  // namespace ringsmith::nccl
