#include "kvtransfer/offer.h"

#include <sys/random.h>

#include "kvtransfer/wire.h"

namespace baton {
namespace {

constexpr uint32_t kMagic = 0x4f4e5442;  // "BTNO"
constexpr uint16_t kVersion = 1;
constexpr size_t kBlobBytesMax = 64 << 10;
constexpr int64_t kPageBytesMax = int64_t{1} << 32;

bool sane(const PoolGeometry& pool) {
  return pool.page_bytes > 0 && pool.page_bytes <= kPageBytesMax && pool.num_pages > 0 &&
         pool.pages_per_slab > 0;
}

// Not shortened at the first difference: the time taken says nothing about the nonce.
bool equal(const Nonce& a, const Nonce& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce;
  const ssize_t got = getrandom(nonce.data(), nonce.size(), 0);
  CHECK_EQ(got, static_cast<ssize_t>(nonce.size())) << "getrandom";
  return nonce;
}

std::string to_hex(const Nonce& nonce) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : nonce) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::vector<PoolGeometry> geometry_of(const std::vector<PagePool*>& pools) {
  std::vector<PoolGeometry> geometry;
  for (const PagePool* pool : pools) {
    geometry.push_back({pool->page_bytes(), pool->num_pages(), pool->pages_per_slab()});
  }
  return geometry;
}

std::string encode_offer(const Offer& offer) {
  WireWriter out;
  out.put(kMagic);
  out.put(kVersion);
  out.put(offer.keys.connect);
  out.put(offer.keys.proof);
  out.put(static_cast<uint8_t>(offer.pools.size()));
  for (const PoolGeometry& pool : offer.pools) {
    out.put(pool.page_bytes);
    out.put(pool.num_pages);
    out.put(pool.pages_per_slab);
  }
  out.put(static_cast<uint8_t>(offer.endpoints.size()));
  for (const Offer::Endpoint& endpoint : offer.endpoints) {
    out.put_string(endpoint.transport);
    out.put_string(endpoint.address);
  }
  return out.take();
}

Result<Offer> decode_offer(const std::string& blob) {
  if (blob.size() > kBlobBytesMax) {
    return invalid_argument("offer: got " + std::to_string(blob.size()) + " bytes, want at most " +
                            std::to_string(kBlobBytesMax));
  }
  WireReader in(blob);
  uint32_t magic = 0;
  uint16_t version = 0;
  if (!in.get(magic) || magic != kMagic || !in.get(version))
    return invalid_argument("offer: not an offer of a pool");
  if (version != kVersion) {
    return invalid_argument("offer: got version " + std::to_string(version) + ", want " +
                            std::to_string(kVersion));
  }
  const Status malformed = invalid_argument("offer: malformed");
  Offer offer;
  uint8_t count = 0;
  if (!in.get(offer.keys.connect) || !in.get(offer.keys.proof) || !in.get(count)) return malformed;
  offer.pools.resize(count);
  for (PoolGeometry& pool : offer.pools) {
    if (!in.get(pool.page_bytes) || !in.get(pool.num_pages) || !in.get(pool.pages_per_slab))
      return malformed;
    if (!sane(pool)) return malformed;
  }
  if (!in.get(count)) return malformed;
  offer.endpoints.resize(count);
  for (Offer::Endpoint& endpoint : offer.endpoints) {
    if (!in.get_string(endpoint.transport) || !in.get_string(endpoint.address)) return malformed;
  }
  if (!in.at_end()) return malformed;
  return offer;
}

OfferKeys OfferBook::add(LinkId link) {
  const OfferKeys keys{random_nonce(), random_nonce()};
  std::lock_guard lock(mutex_);
  keys_[link] = keys;
  return keys;
}

void OfferBook::remove(LinkId link) {
  std::lock_guard lock(mutex_);
  keys_.erase(link);
}

std::optional<OfferBook::Found> OfferBook::find(const Nonce& connect) const {
  std::lock_guard lock(mutex_);
  for (const auto& [link, keys] : keys_) {
    if (equal(keys.connect, connect)) return Found{link, keys};
  }
  return std::nullopt;
}

}  // namespace baton
