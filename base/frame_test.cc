#include "base/frame.h"

#include <random>
#include <vector>

#include "tests/doctest.h"

namespace baton {
namespace {

std::vector<std::string> read_all(FrameReader& reader) {
  std::vector<std::string> messages;
  std::string_view message;
  for (;;) {
    const auto more = reader.next(&message);
    REQUIRE_MESSAGE(more.ok(), more.status().to_string());
    if (!*more) return messages;
    messages.emplace_back(message);
  }
}

TEST_CASE("messages of all sizes arrive in order, however the bytes are cut") {
  const uint64_t seed = std::random_device()();
  MESSAGE("seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<std::string> sent;
  for (const size_t size : {1UL, 5UL, kFramePayloadMax - 1, kFramePayloadMax, kFramePayloadMax + 1,
                            2 * kFramePayloadMax, 3 * kFramePayloadMax + 7, 2UL})
    sent.emplace_back(size, static_cast<char>('a' + sent.size()));

  FrameQueue queue;
  for (const auto& message : sent) queue.push(message);
  std::string bytes;
  queue.next_frames(SIZE_MAX, bytes);
  CHECK(queue.empty());

  FrameReader reader(8 << 20);
  std::vector<std::string> received;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(bytes.size() - at, 1 + random() % 100'000);
    reader.feed(std::string_view(bytes).substr(at, n));
    at += n;
    for (auto& message : read_all(reader)) received.push_back(std::move(message));
  }
  CHECK((received == sent));
}

TEST_CASE("an urgent message passes between the pieces of a long one") {
  FrameQueue queue;
  queue.push(std::string(4 * kFramePayloadMax, 'x'));
  std::string bytes;
  queue.next_frames(1, bytes);
  CHECK(bytes.size() == kFrameHeaderBytes + kFramePayloadMax);
  queue.push_urgent("heartbeat");
  queue.next_frames(SIZE_MAX, bytes);

  FrameReader reader(8 << 20);
  reader.feed(bytes);
  const auto received = read_all(reader);
  REQUIRE(received.size() == 2);
  CHECK(received[0] == "heartbeat");
  CHECK(received[1].size() == 4 * kFramePayloadMax);
}

Status first_error(const std::string& bytes, size_t message_bytes_max) {
  FrameReader reader(message_bytes_max);
  reader.feed(bytes);
  std::string_view message;
  for (;;) {
    const auto more = reader.next(&message);
    if (!more.ok()) return more.status();
    if (!*more) return {};
  }
}

TEST_CASE("broken frames are refused with a reason") {
  CHECK(first_error(std::string("\xff\xff\xff\xff\0", 5), 1 << 20).message().find("length") == 6);
  CHECK(first_error(std::string("\1\0\0\0\7x", 6), 1 << 20).message().find("kind") == 6);
  CHECK(first_error(std::string("\1\0\0\0\2x", 6), 1 << 20).message().find("last piece") !=
        std::string::npos);

  FrameQueue queue;
  queue.push(std::string((1 << 20) + 1, 'x'));
  std::string bytes;
  queue.next_frames(SIZE_MAX, bytes);
  CHECK(first_error(bytes, (1 << 20) + 1).ok());
  CHECK_FALSE(first_error(bytes, 1 << 20).ok());
}

}  // namespace
}  // namespace baton
