// The hello: what two processes say before the first frame, in fixed binary so that a stranger's
// bytes reach no decoder. Called by link_connection.cc; one object a connection, plain state
// without I/O.
//
//   stream   "BATON\r\n\x1a", then records; integers are little-endian
//   record   u8 type | u32 length <= kHelloRecordMax | body
//   'H'      u32 wire version | 32-byte nonce | u32 lease_ms | u8 role | u64 epoch |
//            i32 context_len | i32 vocab_size | worker_id, kv_compat_id, model_name: u16 and bytes
//            | clique, zone: likewise, left out by earlier builds; what follows is passed over
//   'P'      HMAC-SHA256 (RFC 2104) under the cluster token of
//            label | dialer's record 'H' | acceptor's record 'H' | channel binding
//   'R'      refusal: text
//
//   dialer    magic H --------> P --------> up when it has the acceptor's P
//   acceptor         magic H -----> P       up when it has sent its own
//
// Both nonces and the side's label enter each proof, so one can neither be replayed nor reflected,
// and the acceptor proves nothing to a dialer that has not. Under TLS the binding is a secret of
// that one TLS connection (RFC 8446, 7.5), so whoever sits between two of them has no use for a
// proof. Two workers with different kv_compat_id refuse each other here: they could share no page.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_stream.h"
#include "base/messages.h"
#include "base/status.h"

namespace baton {

// Raised when a peer of before could misread us; see the rule of versions in message_codec.h.
inline constexpr uint32_t kWireVersion = 1;
inline constexpr size_t kHelloRecordMax = 4096;
inline constexpr size_t kPeerNameBytesMax = 1024;  // of each of the three names
inline constexpr size_t kPlaceBytesMax = 256;      // of clique and of zone

using HelloNonce = std::array<uint8_t, 32>;
HelloNonce random_hello_nonce();

class Hello {
 public:
  using Side = StreamSide;

  // The names of `self` are at most kPeerNameBytesMax long, its places kPlaceBytesMax. `lease_ms`:
  // after which silence we take the peer for dead. `tokens`: at least one; the first proves, all
  // are accepted.
  Hello(Side side, PeerInfo self, int64_t lease_ms, std::vector<std::string> tokens,
        const HelloNonce& nonce);

  // The stream's ByteStream::channel_binding(). Before the feed() of the first byte.
  void bind_channel(std::string binding) { channel_binding_ = std::move(binding); }

  // Takes what it needs from the front of `bytes`, never more. An error ends the connection: send
  // take_output() first, it holds the refusal for the peer, if any.
  Status feed(std::string& bytes);
  std::string take_output();

  // The peer has proved that it knows the token; what follows in the stream are frames.
  bool up() const { return state_ == State::kUp; }

  const PeerInfo& peer() const { return peer_; }  // once up
  int64_t peer_lease_ms() const { return peer_lease_ms_; }
  Side side() const { return side_; }

 private:
  enum class State { kMagic, kHello, kProof, kUp };

  Status take_record(char type, std::string_view record);
  Status take_hello(std::string_view record);
  Status take_proof(std::string_view proof);
  Status parse_peer(std::string_view body);
  Status refuse_magic(char first);
  Status refuse(Status reason);
  Status check_peer() const;
  std::string proof_of(Side side, const std::string& token) const;

  const Side side_;
  const PeerInfo self_;
  const std::vector<std::string> tokens_;
  const std::string self_record_;
  State state_ = State::kMagic;
  std::string output_;
  std::string peer_record_;
  std::string channel_binding_;
  PeerInfo peer_;
  int64_t peer_lease_ms_ = 0;
};

}  // namespace baton
