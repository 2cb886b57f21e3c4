#include "runtime/base/error.hpp"
#include "runtime/comm/bootstrap/bootstrap.hpp"
#include "runtime/comm/bootstrap/exchange.hpp"
#include "runtime/comm/bootstrap/store/client.hpp"
#include "runtime/comm/bootstrap/store/door.hpp"
#include "runtime/comm/bootstrap/store/server.hpp"

namespace ringsmith::comm {

namespace {

constexpr std::chrono::milliseconds kTimeToRead{2000};

std::string explain(NoStore::How how, bool launcher_holds_store) {
  const std::string holder = launcher_holds_store ? "the launcher" : "rank 0";
  if (how == NoStore::How::silent)
    return holder +
           ", which holds it, is there, but has not answered in time: it may be stopped, "
           "or strangers may be flooding its port";
  if (!launcher_holds_store) return "rank 0, which holds it, never came, or is not at that address";
  if (how == NoStore::How::refused) return "the launcher that holds it has gone";
  return "the launcher that holds it cannot be reached, or has no time to answer";
}

std::shared_ptr<Store> reach(const JobPlace& place, const tcp::Address& address,
                             const Secret& secret, std::chrono::milliseconds timeout) {
  StoreClientOptions options;
  options.holder = place.launcher_holds_store ? "" : ", which rank 0 holds,";
  options.door = store::find_door(place.door.c_str());
  try {
    return std::make_shared<StoreClient>(address, secret, Deadline::in(timeout), options);
  } catch (const NoStore& e) {
    throw TimeoutError(std::string(e.what()) + "; " + explain(e.how(), place.launcher_holds_store),
                       {.rank = place.rank, .peer = place.launcher_holds_store ? -1 : 0, .op = {}});
  }
}

}  // namespace

StoreBootstrap::StoreBootstrap(const JobPlace& place, const Secret& secret,
                               std::chrono::milliseconds timeout)
    : place_(place) {
  const bool holds_store = place.rank == 0 && !place.launcher_holds_store;
  tcp::Address address = place.store;
  if (holds_store) {
    StoreServerOptions options;
    options.bind = place.bind;
    options.chosen_by = "RINGSMITH_BIND";
    options.port = place.store.port;
    server_ = std::make_unique<StoreServer>(secret, options);
    address.port = server_->port();
  }
  try {
    const std::shared_ptr<Store> store = reach(place, address, secret, timeout);
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
  } catch (const PeerLost&) {
    let_others_read(place_.world);  // who is late would find no store, and blame this rank
    throw;
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

// What is wrong stands in the store that would end with us. expected: ranks that are to read it,
// come already or not.
void StoreBootstrap::let_others_read(int expected) {
  if (server_) server_->drain(exchange_ ? 1 : 0, kTimeToRead, static_cast<std::size_t>(expected));
}

}  // namespace ringsmith::comm
