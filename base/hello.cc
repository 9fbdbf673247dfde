#include "base/hello.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

namespace baton {
namespace {

constexpr std::string_view kMagic = "BATON\r\n\x1a";
constexpr size_t kRecordHeaderBytes = 5;
constexpr char kTlsAlert = 0x15;  // first bytes of TLS records (RFC 8446, 5.1)
constexpr char kTlsHandshake = 0x16;
constexpr size_t kProofBytes = 32;
constexpr size_t kReasonBytesMax = 512;

template <typename T>
void append(T value, std::string& out) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

void append_name(const std::string& name, std::string& out, size_t bytes_max = kPeerNameBytesMax) {
  CHECK(name.size() <= bytes_max) << "a name of " << name.size() << " bytes in our hello";
  append(static_cast<uint16_t>(name.size()), out);
  out += name;
}

std::string record(char type, std::string_view body) {
  std::string out(1, type);
  append(static_cast<uint32_t>(body.size()), out);
  out += body;
  return out;
}

// Reads from the front; past the end everything is zero and ok() false.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T take() {
    uint64_t value = 0;
    const std::string_view bytes = take_bytes(sizeof(T));
    for (size_t i = bytes.size(); i > 0; --i)
      value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
    return static_cast<T>(value);
  }
  std::string_view take_bytes(size_t n) {
    ok_ = ok_ && n <= rest_.size();
    if (!ok_) return {};
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  std::string take_name(size_t bytes_max = kPeerNameBytesMax) {
    const auto size = take<uint16_t>();
    ok_ = ok_ && size <= bytes_max;
    return std::string(take_bytes(size));
  }
  bool more() const { return !rest_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

std::string hello_record(const PeerInfo& self, int64_t lease_ms, const HelloNonce& nonce) {
  std::string body;
  append(kWireVersion, body);
  body.append(nonce.begin(), nonce.end());
  append(static_cast<uint32_t>(lease_ms), body);
  append(static_cast<uint8_t>(self.role), body);
  append(self.epoch, body);
  append(self.context_len, body);
  append(self.vocab_size, body);
  append_name(self.worker_id, body);
  append_name(self.kv_compat_id, body);
  append_name(self.model_name, body);
  append_name(self.clique, body, kPlaceBytesMax);
  append_name(self.zone, body, kPlaceBytesMax);
  return record('H', body);
}

// What a peer gives as its reason ends in our log.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, kReasonBytesMax));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

}  // namespace

HelloNonce random_hello_nonce() {
  HelloNonce nonce;
  CHECK(RAND_bytes(nonce.data(), nonce.size()) == 1) << "the system gives no random bytes";
  return nonce;
}

Hello::Hello(Side side, PeerInfo self, int64_t lease_ms, std::vector<std::string> tokens,
             const HelloNonce& nonce)
    : side_(side),
      self_(std::move(self)),
      tokens_(std::move(tokens)),
      self_record_(hello_record(self_, lease_ms, nonce)) {
  CHECK(!tokens_.empty()) << "a hello without a token, want at least an empty one";
  if (side_ == Side::kDialer) output_ = std::string(kMagic) + self_record_;
}

std::string Hello::take_output() {
  return std::exchange(output_, {});
}

Status Hello::feed(std::string& bytes) {
  if (state_ == State::kMagic) {
    const size_t n = std::min(bytes.size(), kMagic.size());
    if (std::string_view(bytes).substr(0, n) != kMagic.substr(0, n)) return refuse_magic(bytes[0]);
    if (n < kMagic.size()) return {};
    bytes.erase(0, n);
    state_ = State::kHello;
  }
  while (!up() && bytes.size() >= kRecordHeaderBytes) {
    const auto length = Fields(std::string_view(bytes).substr(1)).take<uint32_t>();
    if (length > kHelloRecordMax)
      return invalid_argument("hello record: got " + std::to_string(length) +
                              " bytes, want at most " + std::to_string(kHelloRecordMax));
    if (bytes.size() < kRecordHeaderBytes + length) return {};
    const std::string whole = bytes.substr(0, kRecordHeaderBytes + length);
    bytes.erase(0, whole.size());
    if (Status status = take_record(whole[0], whole); !status.ok()) return status;
  }
  return {};
}

Status Hello::refuse_magic(char first) {
  const Status no_tls(Code::kUnauthenticated,
                      "TLS: the peer wants it, and this process has no link.tls_cert_file");
  if (first == kTlsHandshake) return refuse(no_tls);  // the dialer knows plain text when it sees it
  if (first == kTlsAlert) return no_tls;
  return invalid_argument("magic: got other bytes, want a Baton process");
}

Status Hello::take_record(char type, std::string_view record) {
  const std::string_view body = record.substr(kRecordHeaderBytes);
  if (type == 'R') return invalid_argument("refused by the peer: " + printable(body));
  if (type == 'H' && state_ == State::kHello) return take_hello(record);
  if (type == 'P' && state_ == State::kProof) return take_proof(body);
  return invalid_argument("hello record: got one out of order");
}

Status Hello::take_hello(std::string_view record) {
  if (Status status = parse_peer(record.substr(kRecordHeaderBytes)); !status.ok())
    return refuse(status);
  if (Status status = check_peer(); !status.ok()) return refuse(status);
  peer_record_ = record;
  if (side_ == Side::kAcceptor) {
    output_ += std::string(kMagic) + self_record_;
  } else {
    output_ += baton::record('P', proof_of(Side::kDialer, tokens_[0]));
  }
  state_ = State::kProof;
  return {};
}

Status Hello::parse_peer(std::string_view body) {
  Fields fields(body);
  // The version comes first and decides whether the rest can be read at all.
  const auto version = fields.take<uint32_t>();
  if (version != kWireVersion)
    return invalid_argument("wire version: got " + std::to_string(version) + ", want " +
                            std::to_string(kWireVersion));
  fields.take_bytes(sizeof(HelloNonce));
  peer_lease_ms_ = fields.take<uint32_t>();
  const auto role = fields.take<uint8_t>();
  peer_.role = static_cast<Role>(role);
  peer_.epoch = fields.take<uint64_t>();
  peer_.context_len = fields.take<int32_t>();
  peer_.vocab_size = fields.take<int32_t>();
  peer_.worker_id = fields.take_name();
  peer_.kv_compat_id = fields.take_name();
  peer_.model_name = fields.take_name();
  if (fields.more()) {  // earlier builds do not say where they are
    peer_.clique = fields.take_name(kPlaceBytesMax);
    peer_.zone = fields.take_name(kPlaceBytesMax);
  }
  if (!fields.ok() || role > static_cast<uint8_t>(Role::kRouter) || peer_lease_ms_ == 0)
    return invalid_argument("hello: got a malformed one");
  return {};
}

Status Hello::take_proof(std::string_view proof) {
  const Side peer_side = side_ == Side::kDialer ? Side::kAcceptor : Side::kDialer;
  const bool known = std::any_of(tokens_.begin(), tokens_.end(), [&](const std::string& token) {
    const std::string want = proof_of(peer_side, token);
    return proof.size() == want.size() &&
           CRYPTO_memcmp(proof.data(), want.data(), want.size()) == 0;
  });
  if (!known)
    return refuse(
        Status(Code::kUnauthenticated, "cluster token: the two processes have different ones"));
  if (side_ == Side::kAcceptor) output_ += record('P', proof_of(Side::kAcceptor, tokens_[0]));
  state_ = State::kUp;
  return {};
}

Status Hello::check_peer() const {
  if (peer_.epoch == self_.epoch && peer_.worker_id == self_.worker_id)
    return invalid_argument("peer: got " + self_.worker_id + " itself, want another process");
  const bool workers = peer_.role != Role::kRouter && self_.role != Role::kRouter;
  if (workers && peer_.kv_compat_id != self_.kv_compat_id)
    return invalid_argument("kv_compat_id: " + self_.worker_id + " has " + self_.kv_compat_id +
                            ", " + peer_.worker_id + " has " + peer_.kv_compat_id +
                            ": their pages do not mix");
  return {};
}

Status Hello::refuse(Status reason) {
  // An acceptor has not sent its magic while it refuses the first record.
  if (side_ == Side::kAcceptor && state_ != State::kProof) output_ += kMagic;
  output_ += record('R', reason.message().substr(0, kReasonBytesMax));
  return reason;
}

std::string Hello::proof_of(Side side, const std::string& token) const {
  const bool dialer = side_ == Side::kDialer;
  std::string signed_bytes = side == Side::kDialer ? "baton dialer" : "baton acceptor";
  signed_bytes += dialer ? self_record_ : peer_record_;
  signed_bytes += dialer ? peer_record_ : self_record_;
  signed_bytes += channel_binding_;
  std::array<uint8_t, kProofBytes> proof;
  unsigned int size = 0;
  CHECK(HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
             reinterpret_cast<const uint8_t*>(signed_bytes.data()), signed_bytes.size(),
             proof.data(), &size) != nullptr &&
        size == proof.size())
      << "HMAC-SHA256 failed";
  return {proof.begin(), proof.end()};
}

}  // namespace baton
