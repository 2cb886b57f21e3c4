#include "runtime/comm/transport/channel.hpp"

namespace ringsmith::comm {

Outbox::Outbox(Host& host, int peer, int lane)
    : host_(&host),
      peer_(peer),
      tail_(&host.lane(host.rank(), peer, lane).tail),
      head_(&host.lane(peer, host.rank(), lane).head),
      slots_(host.slots(host.rank(), peer, lane)),
      slot_bytes_(host.layout().slot_bytes()) {}

Inbox::Inbox(Host& host, int peer, int lane)
    : host_(&host),
      peer_(peer),
      tail_(&host.lane(peer, host.rank(), lane).tail),
      head_(&host.lane(host.rank(), peer, lane).head),
      slots_(host.slots(peer, host.rank(), lane)),
      slot_bytes_(host.layout().slot_bytes()) {}

}  // namespace ringsmith::comm
