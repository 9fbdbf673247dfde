#include "base/message_codec.h"

#include <random>

#include "base/message_fields.h"
#include "base/msgpack.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Random = std::mt19937_64;

// ---- random values of every field ----

template <typename T>
requires std::is_integral_v<T>
void fill(Random& random, T& value) {
  // All magnitudes alike, so that each length of integer is met.
  value = static_cast<T>(random() >> (random() % 64));
}
void fill(Random& random, float& value) {
  value = static_cast<float>(static_cast<int64_t>(random()) / 1e18);
}
void fill(Random& random, double& value) {
  value = static_cast<int64_t>(random()) / 1e18;
}
template <typename E>
requires std::is_enum_v<E>
void fill(Random& random, E& value) {
  value = static_cast<E>(random() % (static_cast<uint64_t>(kLastValue<E>) + 1));
}
void fill(Random& random, std::string& value) {
  value.resize(random() % 300);
  for (char& c : value) c = static_cast<char>(random());
}
void fill(Random& random, TokenLogprob& value) {
  fill(random, value.token);
  fill(random, value.logprob);
}
template <typename T, typename U>
void fill(Random& random, std::pair<T, U>& value) {
  fill(random, value.first);
  fill(random, value.second);
}
template <typename T>
void fill(Random& random, std::optional<T>& value);
template <typename T>
void fill(Random& random, std::vector<T>& list);
void fill(Random& random, TokenEvent& e);
template <typename T>
requires requires(T& value) {
  fields(value);
}
void fill(Random& random, T& value) {
  std::apply([&](auto&... field) { (fill(random, field), ...); }, fields(value));
}
void fill(Random& random, TokenEvent& e) {
  fill(random, e.id);
  fill(random, e.choice);
  fill(random, e.position);
  fill(random, e.token);
  fill(random, e.finish);
  fill(random, e.stop_id);
  fill(random, e.logprob);
  fill(random, e.top);
}
template <typename T>
void fill(Random& random, std::optional<T>& value) {
  value.reset();
  if (random() % 2 == 0) fill(random, value.emplace());
}
template <typename T>
void fill(Random& random, std::vector<T>& list) {
  list.clear();
  for (size_t n = random() % 20; n > 0; --n) {
    T element{};
    fill(random, element);
    list.push_back(element);
  }
}

template <size_t... kIndex>
std::vector<Message> one_of_each(Random& random, std::index_sequence<kIndex...>) {
  std::vector<Message> messages(sizeof...(kIndex));
  (messages[kIndex].emplace<kIndex>(), ...);
  for (Message& message : messages) std::visit([&](auto& m) { fill(random, m); }, message);
  return messages;
}
std::vector<Message> one_of_each(Random& random) {
  return one_of_each(random, std::make_index_sequence<std::variant_size_v<Message>>());
}

TEST_CASE("every message comes back as it was") {
  const uint64_t seed = std::random_device()();
  MESSAGE("seed " << seed);
  Random random(seed);
  for (int round = 0; round < 50; ++round)
    for (const Message& message : one_of_each(random)) {
      const auto decoded = decode_message(encode_message(message));
      REQUIRE_MESSAGE(decoded.ok(), decoded.status().to_string());
      CHECK_MESSAGE(*decoded == message, message_name(message));
    }
}

TEST_CASE("no spec is longer than its bound says") {
  const uint64_t seed = std::random_device()();
  MESSAGE("seed " << seed);
  Random random(seed);
  for (int round = 0; round < 200; ++round) {
    Open open;
    fill(random, open.spec);
    open.spec.allowed_token_ids.assign(random() % 2000, -1);
    open.spec.logit_bias.assign(random() % 2000, {INT32_MIN, 0.1F});
    CHECK(encode_message(open).size() <= encoded_bytes_max(open.spec));
  }
}

TEST_CASE("default values come back, columns left out") {
  Events events;
  events.events.resize(3);
  const Message message = events;
  const std::string bytes = encode_message(message);
  CHECK(bytes.size() < 120);
  CHECK(*decode_message(bytes) == message);
  CHECK(*decode_message(encode_message(Events{})) == Message(Events{}));
}

TEST_CASE("the bytes of a message are those of MessagePack") {
  // [9, 300]: Release of grant 300
  CHECK(encode_message(Release{300}) == std::string("\x92\x09\xcd\x01\x2c", 5));
  CHECK(encode_message(DrainedAll{}) == "\x91\x0b");
}

TEST_CASE("hostile bytes are refused or read, never fatal") {
  const uint64_t seed = std::random_device()();
  MESSAGE("seed " << seed);
  Random random(seed);
  int refused = 0;
  for (int round = 0; round < 60; ++round)
    for (const Message& message : one_of_each(random)) {
      const std::string good = encode_message(message);
      for (int mutation = 0; mutation < 10; ++mutation) {
        std::string bytes = good;
        for (size_t n = 1 + random() % 4; n > 0; --n)
          bytes[random() % bytes.size()] = static_cast<char>(random());
        if (random() % 3 == 0) bytes.resize(random() % bytes.size());
        const auto decoded = decode_message(bytes);
        if (!decoded.ok()) ++refused;
        if (decoded.ok()) CHECK(decode_message(encode_message(*decoded)).ok());
      }
    }
  CHECK(refused > 1000);
}

TEST_CASE("deep nesting costs no stack") {
  // An unknown trailing field of Draining that is a million lists in each other.
  std::string bytes("\x92\x15", 2);
  bytes += std::string(1'000'000, '\x91');
  bytes += '\xc0';
  CHECK(decode_message(bytes).ok());
  bytes.pop_back();
  CHECK(decode_message(bytes).status().code() == Code::kInvalidArgument);
  CHECK_FALSE(decode_message(std::string(60'000, '\x91')).ok());
}

TEST_CASE("a newer peer's fields and types are passed over") {
  std::string more;
  MsgpackWriter pack(more);
  pack.array(4);
  pack.uint(Message(Release{}).index());
  pack.uint(5);
  pack.bin("new");
  more += std::string(
      "\x81\xa1k\xd6\x01"
      "abcd",
      9);  // a map of a string and an ext value
  CHECK(*decode_message(more) == Message(Release{5}));

  const std::string fewer("\x91\x08", 2);  // ACK without its fields
  CHECK(*decode_message(fewer) == Message(Ack{}));

  const std::string unknown("\x92\x63\x01", 3);
  CHECK(decode_message(unknown).status().code() == Code::kNotFound);
}

TEST_CASE("lists that lie about their length") {
  for (const char* tail : {"\xdd\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff"}) {
    std::string bytes("\x96\x01", 2);
    bytes += std::string("\x93\x01\x01\x01\x90\x01\xc4", 7);
    bytes.append(tail, 5);
    CHECK_FALSE(decode_message(bytes).ok());
  }
  CHECK_FALSE(decode_message("").ok());
  CHECK_FALSE(decode_message(std::string("\x90", 1)).ok());
  CHECK_FALSE(decode_message(encode_message(Ack{}) + "x").ok());
}

}  // namespace
}  // namespace baton
