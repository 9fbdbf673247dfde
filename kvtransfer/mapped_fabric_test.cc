// Transport "mapped" between hosts of one NVLink fabric, with the host's memory in a GPU's place
// and a registry of handles in the driver's: what crosses a real fabric has not been seen.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/tls_testing.h"
#include "kvtransfer/gpu_fake.h"
#include "kvtransfer/mover.h"
#include "kvtransfer/test_rig.h"

#include "tests/doctest.h"

namespace baton {
namespace {

using Kind = MoverEvent::Kind;

// The fabric: who holds a handle gets the memory, until it is forgotten. Any thread.
class FakeFabric {
 public:
  FabricHandle export_fd(int fd) {
    std::lock_guard lock(mutex_);
    FabricHandle handle{};
    const uint64_t number = ++handles_;
    std::memcpy(handle.data(), &number, sizeof(number));
    memory_.emplace(number, ScopedFd(dup(fd)));
    return handle;
  }
  int find(const FabricHandle& handle) {
    std::lock_guard lock(mutex_);
    uint64_t number = 0;
    std::memcpy(&number, handle.data(), sizeof(number));
    const auto it = memory_.find(number);
    return it == memory_.end() ? -1 : it->second.get();
  }
  void forget_all() {
    std::lock_guard lock(mutex_);
    memory_.clear();
  }
  std::atomic<int32_t> imported{0};  // and mapped

 private:
  std::mutex mutex_;
  uint64_t handles_ = 0;
  std::map<uint64_t, ScopedFd> memory_;
};

class CountedMapping final : public SharedMemory {
 public:
  CountedMapping(std::unique_ptr<SharedMemory> inner, FakeFabric& fabric)
      : SharedMemory(inner->data()), inner_(std::move(inner)), fabric_(fabric) {
    ++fabric_.imported;
  }
  ~CountedMapping() override { --fabric_.imported; }

 private:
  const std::unique_ptr<SharedMemory> inner_;
  FakeFabric& fabric_;
};

class FabricMemory final : public FakeMemory {
 public:
  FabricMemory(FakeFabric& fabric, std::string clique)
      : FakeMemory(Kind::kHost, false), fabric_(fabric), clique_(std::move(clique)) {}
  std::string fabric() const override { return clique_; }
  Result<Created> create(int64_t bytes) override {
    Result<Created> created = FakeMemory::create(bytes);
    if (created.ok()) created->key.handle = fabric_.export_fd(created->key.fd.get());
    return created;
  }
  Result<std::unique_ptr<SharedMemory>> import(int, int64_t) override {
    return unavailable("a descriptor of another host");
  }
  Result<std::unique_ptr<SharedMemory>> import_handle(const FabricHandle& handle,
                                                      int64_t bytes) override {
    const int fd = fabric_.find(handle);
    if (fd < 0) return unavailable("no such handle");
    Result<std::unique_ptr<SharedMemory>> memory = FakeMemory::import(fd, bytes);
    if (!memory.ok()) return memory;
    return std::unique_ptr<SharedMemory>(new CountedMapping(std::move(*memory), fabric_));
  }

 private:
  FakeFabric& fabric_;
  const std::string clique_;
};

class FabricSlabs final : public SlabMemory {
 public:
  explicit FabricSlabs(FakeFabric& fabric) : fabric_(fabric) {}
  int64_t granularity() const override { return host_->granularity(); }
  std::byte* reserve(int64_t bytes) override { return host_->reserve(bytes); }
  Slab make_slab(std::byte* base, int64_t bytes) override {
    Slab slab = host_->make_slab(base, bytes);
    slab.fabric_handle = fabric_.export_fd(slab.fd.get());
    return slab;
  }

 private:
  FakeFabric& fabric_;
  const std::unique_ptr<SlabMemory> host_ = host_slab_memory();
};

// A worker's side of the handoff.
struct End {
  End(FakeFabric& fabric, const TlsFiles& tls, const std::string& clique, const Clock& clock) {
    for (const KvGroup& group : pools.layout.groups) {
      owned.push_back(std::make_unique<PagePool>(group, kTestPages, 8 * group.page_bytes(),
                                                 std::make_unique<FabricSlabs>(fabric)));
      borrowed.push_back(owned.back().get());
    }
    LinkConfig link;
    link.tls_cert_file = tls.cert;
    link.tls_key_file = tls.key;
    link.tls_ca_file = tls.ca;
    mover = make_page_mover({.transports = "mapped"}, pools.layout, borrowed, "127.0.0.1", clock,
                            log.sink(), std::make_shared<CredentialFiles>(link),
                            std::make_shared<FabricMemory>(fabric, clique));
  }
  TestPools pools;  // for the layout
  std::vector<std::unique_ptr<PagePool>> owned;
  std::vector<PagePool*> borrowed;
  EventLog log;
  std::unique_ptr<PageMover> mover;
};

struct Pair {
  explicit Pair(const std::string& p_clique = "u.1", bool d_has_tls = true)
      : p(fabric, authority.issue("p"), p_clique, clock),
        d(fabric, d_has_tls ? authority.issue("d") : TlsFiles{}, "u.1", clock) {}
  // D's offer, as a P on another host sees it: there is no such socket.
  Offer offer() {
    Offer offer = *decode_offer(d.mover->offer(9));
    std::string& address = offer.endpoints[0].address;
    address.replace(0, std::min(address.find(' '), address.size()), "baton-elsewhere");
    return offer;
  }
  MoverEvent attach(const Offer& offer) {
    p.mover->attach(7, encode_offer(offer), long_lease());
    return p.log.wait_any();
  }

  FakeFabric fabric;
  TestAuthority authority;
  SystemClock clock;
  End p, d;
};

}  // namespace

TEST_CASE("fabric: pages cross by handles, and the mappings go with the peer") {
  Pair pair;
  REQUIRE(pair.p.owned[0]->slabs().size() > 1);
  const MoverEvent attached = pair.attach(pair.offer());
  REQUIRE_EQ(attached.error, "");
  CHECK_EQ(attached.transport, "mapped");
  const auto slabs =
      static_cast<int32_t>(pair.d.owned[0]->slabs().size() + pair.d.owned[1]->slabs().size());
  CHECK_EQ(pair.fabric.imported, slabs);  // and no scratch memory

  PagePool& from = *pair.p.owned[1];
  PagePool& to = *pair.d.owned[1];
  std::memset(from.page(3), 0x5a, static_cast<size_t>(from.page_bytes()));
  pair.p.mover->begin(5, 7, 1);
  pair.p.mover->push({{5, 1, 3, kTestPages - 1}});
  pair.p.mover->finish(5, 0);
  CHECK_EQ(pair.p.log.wait(Kind::kDone).transfer, 5);
  CHECK_EQ(
      std::memcmp(from.page(3), to.page(kTestPages - 1), static_cast<size_t>(from.page_bytes())),
      0);
  pair.d.mover->forget(9);  // as its end would
  CHECK_EQ(pair.p.log.wait(Kind::kAttachFailed).link, 7);
  CHECK_EQ(pair.fabric.imported, 0);
  // Nothing across hosts proves P's death.
  CHECK(pair.d.log.all().empty());
}

TEST_CASE("fabric: an address that swallows connections leaves the next one its time") {
  // Linux queues one connection more than the backlog and drops what comes then.
  const ScopedFd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof(address);
  REQUIRE_EQ(bind(silent.get(), name, bytes), 0);
  REQUIRE_EQ(listen(silent.get(), 0), 0);
  REQUIRE_EQ(getsockname(silent.get(), name, &bytes), 0);
  std::vector<ScopedFd> queued;
  for (int32_t i = 0; i < 4; ++i) {
    queued.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)connect(queued.back().get(), name, bytes);
  }
  Pair pair;
  Offer offer = pair.offer();
  std::string& at = offer.endpoints[0].address;
  at.insert(at.rfind(' ') + 1, "127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + ",");
  CHECK_EQ(pair.attach(offer).error, "");
}

TEST_CASE("fabric: not between cliques, and not without TLS") {
  {
    Pair pair("u.2");
    const MoverEvent failed = pair.attach(pair.offer());
    CHECK_EQ(failed.kind, Kind::kAttachFailed);
    CHECK_NE(failed.error.find("NVLink clique u.1, ours in \"u.2\""), std::string::npos);
  }
  Pair pair("u.1", /*d_has_tls=*/false);
  CHECK_EQ(pair.offer().endpoints[0].address, "baton-elsewhere");  // no way but the socket
  CHECK_EQ(pair.attach(pair.offer()).kind, Kind::kAttachFailed);
  CHECK_EQ(pair.fabric.imported, 0);
}

TEST_CASE("fabric: a stranger's nonce, memory that is not the peer's, handles that are no good") {
  Pair pair;
  Offer offer = pair.offer();
  offer.keys.connect = random_nonce();
  CHECK_EQ(pair.attach(offer).kind, Kind::kAttachFailed);
  offer = pair.offer();
  offer.keys.proof = random_nonce();
  CHECK_NE(pair.attach(offer).error.find("this memory is not the peer's"), std::string::npos);
  offer = pair.offer();
  pair.fabric.forget_all();  // the slabs': scratch memory is made later
  CHECK_NE(pair.attach(offer).error.find("no such handle"), std::string::npos);
  CHECK_EQ(pair.fabric.imported, 0);
}

}  // namespace baton
