#include "runtime/comm/bootstrap/store_bootstrap.hpp"

#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/store/client.hpp"

namespace ringsmith::comm {

namespace {
constexpr std::chrono::milliseconds kTimeToRead{2000};
}

StoreBootstrap::StoreBootstrap(const JobPlace& place, const Secret& secret,
                               std::chrono::milliseconds timeout)
    : place_(place) {
  const bool holds_store = place.rank == 0 && !place.launcher_holds_store;
  store::Address address = place.store;
  if (holds_store) {
    StoreServerOptions options;
    options.bind = place.bind;
    options.port = place.store.port;
    server_ = std::make_unique<StoreServer>(secret, options);
    address.port = server_->port();
  }
  try {
    std::shared_ptr<Store> store;
    try {
      store =
          std::make_shared<StoreClient>(address, secret, Deadline::in(timeout),
                                        place.launcher_holds_store ? "" : ", which rank 0 holds,");
    } catch (const TimeoutError& e) {
      throw TimeoutError(
          std::string(e.what()) + "; " +
              (place.launcher_holds_store
                   ? "the launcher that holds it has gone"
                   : "rank 0, which holds it, never came, or is not at that address"),
          {.rank = place.rank, .peer = place.launcher_holds_store ? -1 : 0, .op = {}});
    }
    Membership me;
    me.index = place.rank;
    me.size = place.world;
    me.timeout = timeout;
    if (place.kind == BootstrapKind::slurm) me.size_name = "SLURM_STEP_NUM_TASKS";
    exchange_ = std::make_unique<Exchange>(store, me);
  } catch (const CommError&) {
    let_others_read();
    throw;
  }
}

StoreBootstrap::~StoreBootstrap() = default;

std::vector<std::string> StoreBootstrap::all_gather(const std::string& record) {
  try {
    auto records = exchange_->all_gather(record);
    // The others' results are in our store.
    if (server_) exchange_->await_readers();
    return records;
  } catch (const CommError&) {
    let_others_read();
    throw;
  }
}

std::optional<LostMember> StoreBootstrap::lost_rank() {
  try {
    return exchange_->lost_member();
  } catch (const CommError&) {
    return {};  // the store has ended: the peers' own connections say more
  }
}

// What is wrong stands in the store that would end with us.
void StoreBootstrap::let_others_read() {
  if (server_) server_->drain(exchange_ ? 1 : 0, kTimeToRead);
}

}  // namespace ringsmith::comm
