#include "runtime/job/store/session.hpp"

#include <algorithm>
#include <charconv>

#include "runtime/base/deadline.hpp"
#include "runtime/base/error.hpp"

namespace ringsmith::comm::store {

namespace {

void check_key(const std::string& key) {
  require(!key.empty(), "a key of the store must not be empty");
  require(key.size() <= kMostKey, "a key of " + std::to_string(key.size()) +
                                      " bytes: the store takes at most " +
                                      std::to_string(kMostKey));
}

constexpr std::size_t kMostKeysOfWill = 2;
constexpr std::size_t kMostInput = 4 + kMostMessage + kTag;

bool has_texts(const Message& m, std::size_t least, std::size_t most) {
  return m.texts.size() >= least && m.texts.size() <= most;
}

bool well_formed(const Message& m) {
  switch (static_cast<RequestKind>(m.kind)) {
    case RequestKind::set:
      return has_texts(m, 2, 2);
    case RequestKind::leave_will:
      return has_texts(m, 2, 1 + kMostKeysOfWill);
    case RequestKind::get:
    case RequestKind::add:
    case RequestKind::remove:
    case RequestKind::ask_quorum:
      return has_texts(m, 1, 1);
    case RequestKind::wait:
      return has_texts(m, 0, kMostKeysAtOnce);
    case RequestKind::compare_and_swap:
      return has_texts(m, 3, 3);
  }
  return false;
}

}  // namespace

const std::string* KeyTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void KeyTable::set(const std::string& key, std::string value) {
  check_key(key);
  require(value.size() <= kMostValue,
          "key '" + key + "': a value of " + std::to_string(value.size()) +
              " bytes: the store takes at most " + std::to_string(kMostValue));
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t before = is_new ? 0 : key.size() + found->second.size();
  const std::size_t after = key.size() + value.size();
  require(bytes_ - before + after <= limits_.bytes && values_.size() + is_new <= limits_.keys,
          "key '" + key + "': the store is full (" + std::to_string(values_.size()) + " keys, " +
              std::to_string(bytes_) + " bytes)");
  bytes_ += after - before;
  if (is_new)
    values_.emplace(key, std::move(value));
  else
    found->second = std::move(value);
}

std::int64_t KeyTable::add(const std::string& key, std::int64_t amount) {
  std::int64_t value = 0;
  if (const std::string* text = find(key); text != nullptr) {
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, value);
    require(error == std::errc() && stop == end,
            "key '" + key + "' does not hold a number to add to");
  }
  require(!__builtin_add_overflow(value, amount, &value),
          "key '" + key + "': the sum does not fit 64 bits");
  set(key, std::to_string(value));
  return value;
}

std::string KeyTable::compare_and_swap(const std::string& key, const std::string& expected,
                                       const std::string& desired) {
  check_key(key);
  const std::string* const text = find(key);
  std::string now = text != nullptr ? *text : "";
  if (now != expected) return now;
  set(key, desired);
  return desired;
}

bool KeyTable::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return true;
}

void KeyTable::remove_all(const std::string& prefix) {
  std::erase_if(values_, [&](const auto& entry) {
    if (entry.first.rfind(prefix, 0) != 0) return false;
    bytes_ -= entry.first.size() + entry.second.size();
    return true;
  });
}

Session::Session(KeyTable& table, const Secret& secret, Clock::time_point now,
                 std::chrono::milliseconds handshake, Coordinator* coordinator)
    : table_(table), secret_(secret), proof_due_(now + handshake), coordinator_(coordinator) {
  handshake_.store_nonce = random_bytes(kNonce);
  output_ = std::string(kMagic) + handshake_.store_nonce;
}

std::size_t Session::room() const {
  if (closing_) return 0;
  const std::size_t most = member_ ? kMostInput : kProof;
  return most - std::min(most, input_.size());
}

void Session::receive(std::string_view bytes) { input_ += bytes.substr(0, room()); }

bool Session::advance(Clock::time_point now) {
  if (closing_) return false;
  if (!member_) {
    if (input_.size() == kProof) {
      judge_proof();
      return true;
    }
    closing_ = now >= proof_due_;
    if (closing_) output_.clear();  // the client may never read it
    return false;
  }
  if (coordinator_ != nullptr && coordinator_->is_dropped(this)) {
    closing_ = true;
    return true;
  }
  if (!output_.empty()) return false;
  if (wait_) return settle_wait(now);
  if (asks_) return settle_quorum(now);
  try {
    const std::optional<std::string> body = opener_->open(input_);
    if (!body) return false;
    const Message request = Message::decode(*body);
    if (!well_formed(request)) throw CommError("a request to the store is malformed");
    answer(request, now);
  } catch (const CommError&) {
    // A StoreClient never sends such a frame, and the start of the next frame is unknown.
    input_.clear();
    closing_ = true;
  }
  return true;
}

void Session::judge_proof() {
  handshake_.client_nonce = input_.substr(0, kNonce);
  member_ = equal_tags(std::string_view(input_).substr(kNonce), handshake_.client_proof(secret_));
  input_.clear();
  if (member_) {
    output_ += '\1' + handshake_.store_proof(secret_);
    const std::string key = handshake_.session_key(secret_);
    opener_.emplace(key, Direction::to_store);
    sealer_.emplace(key, Direction::to_client);
  } else {
    output_ += std::string(kVerdict, '\0');  // a client without proof gets none in return
    closing_ = true;
  }
}

void Session::answer(const Message& request, Clock::time_point now) {
  const auto& t = request.texts;
  try {
    switch (static_cast<RequestKind>(request.kind)) {
      case RequestKind::set:
        table_.set(t[0], t[1]);
        return reply(make_message(Status::ok));
      case RequestKind::add:
        return reply(make_message(Status::ok, table_.add(t[0], request.number)));
      case RequestKind::compare_and_swap:
        return reply(make_message(Status::ok, 0, {table_.compare_and_swap(t[0], t[1], t[2])}));
      case RequestKind::remove:
        return reply(make_message(Status::ok, table_.remove(t[0]) ? 1 : 0));
      case RequestKind::leave_will:
        std::for_each(t.begin() + 1, t.end(), check_key);
        require(t[0].size() <= kMostValue, "a will is too long");
        will_ = t;
        return reply(make_message(Status::ok));
      case RequestKind::ask_quorum:
        require(coordinator_ != nullptr,
                "no coordinator of quorums runs here: start the ranks with ringrun --per-step");
        coordinator_->ask(this, QuorumAsk::decode(t[0]), now);
        asks_ = true;
        return;
      case RequestKind::get:
      case RequestKind::wait:
        for (const std::string& key : t) check_key(key);
        wait_ = {
            request,
            now + limited(std::chrono::milliseconds(std::max<std::int64_t>(request.number, 0)))};
        static_cast<void>(settle_wait(now));
    }
  } catch (const UsageError& e) {
    reply(make_message(Status::refused, 0, {e.what()}));
  }
}

bool Session::settle_wait(Clock::time_point now) {
  std::vector<std::string> missing;
  for (const std::string& key : wait_->request.texts)
    if (table_.find(key) == nullptr) missing.push_back(key);
  const bool late = now >= wait_->until;
  if (!missing.empty() && !late) return false;
  const bool get = wait_->request.kind == static_cast<std::uint8_t>(RequestKind::get);
  if (!missing.empty())
    reply(make_message(Status::timeout, 0, std::move(missing)));
  else if (get)
    reply(make_message(Status::ok, 0, {*table_.find(wait_->request.texts[0])}));
  else
    reply(make_message(Status::ok));
  wait_.reset();
  return true;
}

bool Session::settle_quorum(Clock::time_point now) {
  const auto answer = coordinator_->take_reply(this, now);
  if (!answer) return false;
  asks_ = false;
  reply(make_message(answer->failed ? Status::timeout : Status::ok, 0, {answer->text}));
  return true;
}

void Session::reply(const Message& message) { output_ += sealer_->seal(message.encode()); }

std::optional<Session::Clock::time_point> Session::alarm() const {
  if (closing_) return {};
  if (!member_) return proof_due_;
  if (wait_) return wait_->until;
  if (asks_) return coordinator_->alarm();
  return {};
}

void Session::leave(Clock::time_point now) {
  try {
    for (std::size_t key = 1; key < will_.size(); ++key)
      if (table_.compare_and_swap(will_[key], "", will_[0]) == will_[0]) break;
  } catch (const UsageError&) {  // the table is full, so the will cannot be written
  }
  will_.clear();
  if (coordinator_ != nullptr) coordinator_->lost(this, now);
}

}  // namespace ringsmith::comm::store
