// What a stranger or a broken peer sends to D's socket of transport "nccl": never a crash, never a
// byte in a page that is not granted.
#include <sys/socket.h>

#include "kvtransfer/message_stream.h"
#include "kvtransfer/nccl_test_rig.h"
#include "kvtransfer/wire.h"

#include "tests/doctest.h"

namespace baton {
namespace {

// A raw connection to D, and a rank of a communicator where it gets so far.
class Stranger {
 public:
  explicit Stranger(NcclRig& rig) : rig_(rig) {
    const SocketAddress address = *SocketAddress::parse(rig.d.endpoint());
    fd_ = ScopedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* target = reinterpret_cast<const sockaddr*>(&address.storage);
    REQUIRE_EQ(::connect(fd_.get(), target, address.bytes), 0);
  }
  ~Stranger() {
    if (comm_ != nullptr) rig_.nccl->abort(comm_);
  }

  void send_raw(const std::string& bytes) {
    (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void send(const std::string& message) {
    WireWriter out;
    out.put_string(message);
    send_raw(out.take());
  }
  void say_hello(const Nonce& nonce, uint16_t version = kNcclWireVersion) {
    WireWriter out;
    out.put(NcclMessage::kHello);
    out.put(kNcclMagic);
    out.put(version);
    out.put(nonce);
    send(out.take());
  }
  // As a peer would, up to D's kReady.
  void join() {
    say_hello(rig_.offer.keys.connect);
    const NcclId id = *rig_.nccl->make_id();
    REQUIRE(rig_.nccl->begin(&comm_, id, NcclRank::kSender, 4).ok());
    WireWriter out;
    out.put(NcclMessage::kJoin);
    out.put(id);
    send(out.take());
    const std::string both = framed(NcclMessage::kWelcome) + framed(NcclMessage::kReady);
    REQUIRE(rig_.run_until([&] { return heard() == both; }));
  }
  void send_batch(const std::vector<NcclSlice>& slices) {
    WireWriter out;
    out.put(NcclMessage::kBatch);
    out.put(static_cast<uint32_t>(slices.size()));
    for (const NcclSlice& slice : slices) out.put(slice);
    send(out.take());
  }
  bool is_shut() {
    return rig_.run_until([&] {
      heard();
      return shut_;
    });
  }
  // All so far.
  const std::string& heard() {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
      heard_.append(bytes, static_cast<size_t>(got));
    shut_ |= got == 0 || (got < 0 && errno != EAGAIN);
    return heard_;
  }

 private:
  static std::string framed(NcclMessage kind) {
    WireWriter out;
    out.put_string(std::string(1, static_cast<char>(kind)));
    return out.take();
  }

  NcclRig& rig_;
  ScopedFd fd_;
  std::string heard_;
  bool shut_ = false;
  NcclComm comm_ = nullptr;
};

}  // namespace

TEST_CASE("nccl: wrong nonce, wrong version, noise, messages out of turn") {
  NcclRig rig;
  const std::vector<std::function<void(Stranger&)>> openings = {
      [](Stranger& s) { s.say_hello(random_nonce()); },
      [&](Stranger& s) { s.say_hello(rig.offer.keys.connect, 99); },
      [&](Stranger& s) { s.say_hello(rig.offer.keys.proof); },
      [](Stranger& s) { s.send_raw(std::string(1000, 'x')); },
      [](Stranger& s) { s.send(""); },
      [](Stranger& s) { s.send(std::string(1, static_cast<char>(NcclMessage::kJoin))); },
      [](Stranger& s) { s.send_batch({{.slot_gen = 1, .bytes = 8}}); },
      [&](Stranger& s) {
        s.say_hello(rig.offer.keys.connect);
        s.send(std::string(1, static_cast<char>(NcclMessage::kJoin)) + "short");
      },
  };
  for (const auto& open : openings) {
    Stranger stranger(rig);
    open(stranger);
    CHECK(stranger.is_shut());
  }
  CHECK_EQ(rig.nccl->aborted, 0);  // none has got as far as a communicator
}

TEST_CASE("nccl: slices outside the pool or the grant are not received") {
  NcclRig rig;
  rig.grants.allow(kDLink, 1, {{2}, {}});
  rig.grants.allow(kDLink - 1, 2, {{3}, {}});  // another link's
  const int64_t page_bytes = rig.to.borrowed[0]->page_bytes();
  const NcclSlice bad[] = {
      {.slot_gen = 1, .bytes = 8, .group = 2, .page = 2},
      {.slot_gen = 1, .bytes = 8, .group = -7, .page = 2},
      {.slot_gen = 1, .bytes = 8, .group = 0, .page = -1},
      {.slot_gen = 1, .bytes = 8, .group = 0, .page = kTestPages},
      {.slot_gen = 1, .bytes = 0, .group = 0, .page = 2},
      {.slot_gen = 1, .bytes = INT64_MAX, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = page_bytes - 4, .bytes = 8, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = -8, .bytes = 8, .group = 0, .page = 2},
      {.slot_gen = 1, .offset = INT64_MAX, .bytes = 8, .group = 0, .page = 2},
      {.slot_gen = 1, .bytes = 8, .group = 0, .page = 3},
      {.slot_gen = 2, .bytes = 8, .group = 0, .page = 3},
      {.bytes = (8 << 20) + 1, .group = kNcclProbeGroup},
      {.bytes = 8, .group = kNcclProbeGroup, .page = 1},
  };
  for (const NcclSlice& slice : bad) {
    CAPTURE(&slice - bad);
    Stranger stranger(rig);
    stranger.join();
    // Behind one that is good: neither is received.
    stranger.send_batch({{.slot_gen = 1, .bytes = 8, .group = 0, .page = 2}, slice});
    CHECK(stranger.is_shut());
  }
  CHECK_EQ(rig.nccl->receives, 0);
  CHECK(rig.to.all_zero());
}

TEST_CASE("nccl: more batches than may be under way, or larger ones, end the connection") {
  NcclRig rig;
  rig.allow_all(1);
  const NcclSlice slice{.slot_gen = 1, .bytes = 8, .group = 0, .page = 2};
  {
    Stranger stranger(rig);
    stranger.join();
    for (size_t i = 0; i <= kNcclBatchesMax; ++i) stranger.send_batch({slice});
    CHECK(stranger.is_shut());
  }
  {
    Stranger stranger(rig);
    stranger.join();
    stranger.send_batch(std::vector<NcclSlice>(kNcclBatchSlicesMax + 1, slice));
    CHECK(stranger.is_shut());
  }
  {
    Stranger stranger(rig);
    stranger.join();
    stranger.send(std::string(kStreamMessageBytesMax + 1, 'x'));
    CHECK(stranger.is_shut());
  }
}

TEST_CASE("nccl: once measured, a peer has no scratch memory to write to") {
  NcclRig rig;
  Stranger stranger(rig);
  stranger.join();
  stranger.send(std::string(1, static_cast<char>(NcclMessage::kMeasured)));
  stranger.send_batch({{.bytes = 8, .group = kNcclProbeGroup}});
  CHECK(stranger.is_shut());
}

}  // namespace baton
