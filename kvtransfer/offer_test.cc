#include "kvtransfer/offer.h"

#include <random>

#include "tests/doctest.h"

namespace baton {
namespace {

Offer sample() {
  return {.keys = {random_nonce(), random_nonce()},
          .pools = {{8192, 24, 8}, {1 << 20, 1000, 64}},
          .endpoints = {{"mapped", "baton-1"}, {"tcp", "127.0.0.1:1"}}};
}

}  // namespace

TEST_CASE("an offer comes back as it was") {
  const Offer offer = sample();
  const Result<Offer> back = decode_offer(encode_offer(offer));
  REQUIRE(back.ok());
  CHECK_EQ(back->keys.connect, offer.keys.connect);
  CHECK_EQ(back->keys.proof, offer.keys.proof);
  CHECK_EQ(back->pools, offer.pools);
  REQUIRE_EQ(back->endpoints.size(), 2);
  CHECK_EQ(back->endpoints[1].transport, "tcp");
  CHECK_EQ(back->endpoints[1].address, "127.0.0.1:1");
}

TEST_CASE("a damaged offer is refused or read, never more") {
  const uint64_t seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::string good = encode_offer(sample());
  for (size_t cut = 0; cut < good.size(); ++cut)
    CHECK_FALSE(decode_offer(good.substr(0, cut)).ok());
  CHECK_FALSE(decode_offer(good + "x").ok());
  CHECK_FALSE(decode_offer(std::string(1 << 20, 'x')).ok());
  for (int32_t i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (int32_t flips = 0; flips < 4; ++flips)
      bad[random() % bad.size()] = static_cast<char>(random());
    const Result<Offer> offer = decode_offer(bad);
    if (!offer.ok()) continue;
    for (const PoolGeometry& pool : offer->pools) CHECK_GT(pool.page_bytes, 0);
  }
}

TEST_CASE("the book knows a nonce until its link is gone") {
  OfferBook book;
  const OfferKeys first = book.add(1);
  const OfferKeys second = book.add(2);
  CHECK_EQ(book.find(first.connect)->link, 1);
  CHECK_EQ(book.find(second.connect)->keys.proof, second.proof);
  CHECK_FALSE(book.find(first.proof).has_value());
  book.remove(1);
  CHECK_FALSE(book.find(first.connect).has_value());
}

}  // namespace baton
