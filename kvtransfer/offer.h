// The offer: what D tells P over their authenticated link so that P can reach D's pools by one of
// D's transports. And the book of the nonces given out, by which D knows a data connection's link
// again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/link.h"
#include "base/status.h"
#include "model/page_pool.h"

namespace baton {

using Nonce = std::array<uint8_t, 16>;
Nonce random_nonce();
std::string to_hex(const Nonce& nonce);

// Both random, made for one link.
struct OfferKeys {
  Nonce connect{};  // P shows it when it connects
  Nonce proof{};    // D shows it where P looks (in the memory that P has mapped)
};

// Of one kv_group's pool; page p lies in slab p / pages_per_slab.
struct PoolGeometry {
  int64_t page_bytes = 0;
  int32_t num_pages = 0;
  int32_t pages_per_slab = 0;
  bool operator==(const PoolGeometry&) const = default;
};
std::vector<PoolGeometry> geometry_of(const std::vector<PagePool*>& pools);

struct Offer {
  struct Endpoint {
    std::string transport;
    std::string address;  // opaque outside the transport
  };
  OfferKeys keys;
  std::vector<PoolGeometry> pools;  // by kv_group
  std::vector<Endpoint> endpoints;  // in D's order of preference
};

// Format, little-endian: u32 magic, u16 version, keys, u8 pools, pools, u8 endpoints, endpoints as
// two strings (u32 size, bytes).
std::string encode_offer(const Offer& offer);
Result<Offer> decode_offer(const std::string& blob);  // kInvalidArgument for anything malformed

// Thread-safe: the loop's thread gives out and takes back, the handoff thread looks up.
class OfferBook {
 public:
  struct Found {
    LinkId link = 0;
    OfferKeys keys;
  };

  OfferKeys add(LinkId link);  // new keys, in place of earlier ones of this link
  void remove(LinkId link);
  std::optional<Found> find(
      const Nonce& connect) const;  // nothing: a stranger, or a link that is gone

 private:
  mutable std::mutex mutex_;
  std::map<LinkId, OfferKeys> keys_;
};

}  // namespace baton
