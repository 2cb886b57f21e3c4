// Tests the store's parts without a network.
#include "runtime/base/error.hpp"
#include "runtime/job/store/secret.hpp"
#include "runtime/job/store/session.hpp"
#include "runtime/job/store/store.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;
using namespace ringsmith::comm;

namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

}  // namespace

TEST_CASE("HMAC-SHA256 gives the values of RFC 4231", "[store]") {
  struct Vector {
    std::string key, text, tag;
  };
  const std::vector<Vector> vectors = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
  };
  for (const Vector& v : vectors) CHECK(hex(store::hmac_sha256(v.key, v.text)) == v.tag);
  CHECK(store::equal_tags("abc", "abc"));
  CHECK_FALSE(store::equal_tags("abc", "abd"));
  CHECK_FALSE(store::equal_tags("abc", "ab"));
}

TEST_CASE("messages come back as they were; any cut or addition is noticed", "[store]") {
  const store::Message m = store::make_message(store::RequestKind::compare_and_swap, -7,
                                               {"key", "", std::string(1000, '\0')});
  const std::string bytes = m.encode();
  const store::Message back = store::Message::decode(bytes);
  CHECK(back.kind == m.kind);
  CHECK(back.number == -7);
  CHECK(back.texts == m.texts);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    CHECK_THROWS_AS(store::Message::decode(std::string_view(bytes).substr(0, n)), CommError);
  CHECK_THROWS_AS(store::Message::decode(bytes + 'x'), CommError);
  // A count of 4 billion texts, and a length of 4 billion bytes, allocate nothing.
  std::string many = bytes;
  many.replace(9, 4, "\xff\xff\xff\xff");
  CHECK_THROWS_AS(store::Message::decode(many), CommError);
  many = bytes;
  many.replace(13, 4, "\xff\xff\xff\xff");
  CHECK_THROWS_AS(store::Message::decode(many), CommError);
  CHECK_THROWS_AS(
      store::make_message(store::RequestKind::set, 0, {"k", std::string(store::kMostMessage, 'x')})
          .encode(),
      UsageError);
}

TEST_CASE("frames pass once, in order, unaltered and in their direction only", "[store]") {
  using namespace store;
  const std::string key(kTag, 'k');
  Sealer sealer(key, Direction::to_store);
  const std::string first = sealer.seal("first"), second = sealer.seal("second");

  Opener opener(key, Direction::to_store);
  std::string bytes = first + second.substr(0, 10);
  CHECK(opener.open(bytes) == "first");
  CHECK_FALSE(opener.open(bytes).has_value());  // half a frame
  bytes += second.substr(10);
  CHECK(opener.open(bytes) == "second");
  CHECK(bytes.empty());

  const auto refused = [&](std::string frames, std::string with = std::string(kTag, 'k'),
                           Direction direction = Direction::to_store) {
    Opener fresh(std::move(with), direction);
    CHECK_THROWS_AS(fresh.open(frames), CommError);
  };
  refused(second);  // out of order
  refused(first, std::string(kTag, 'x'));
  refused(first, key, Direction::to_client);
  for (const std::size_t i : {4, 8, 12, 40}) {
    std::string altered = first;
    altered[i] = static_cast<char>(altered[i] ^ 1);
    refused(altered);
  }
  refused(std::string("\xff\xff\xff\x7f") + std::string(100, 'x'));  // longer than any message
  std::string repeated = first + first;
  Opener once(key, Direction::to_store);
  CHECK(once.open(repeated) == "first");
  CHECK_THROWS_AS(once.open(repeated), CommError);
}

TEST_CASE("the table counts, compares, removes, and stays within its limits", "[store]") {
  store::KeyTable table({.keys = 3, .bytes = 100});
  CHECK(table.find("a") == nullptr);
  table.set("a", "text");
  CHECK(*table.find("a") == "text");
  CHECK_THROWS_AS(table.add("a", 1), UsageError);
  CHECK(*table.find("a") == "text");
  CHECK(table.add("n", 5) == 5);
  CHECK(table.add("n", -7) == -2);
  CHECK(*table.find("n") == "-2");
  table.set("n", "9223372036854775807");
  CHECK_THROWS_AS(table.add("n", 1), UsageError);
  CHECK_THROWS_AS(table.set("", "x"), UsageError);
  CHECK_THROWS_AS(table.set(std::string(kMostKey + 1, 'k'), "x"), UsageError);
  CHECK_THROWS_AS(table.set("big", std::string(100, 'x')), UsageError);
  table.set("c", "");
  CHECK_THROWS_AS(table.set("d", ""), UsageError);  // a fourth key
  CHECK(table.remove("c"));
  CHECK_FALSE(table.remove("c"));
  table.set("d", "");
  const std::size_t before = table.bytes();
  table.set("a", "longer text");
  table.set("a", "text");
  CHECK(table.bytes() == before);
  CHECK(table.size() == 3);
}
