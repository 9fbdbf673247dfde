// Transport "ucx" with puts, both ends in this thread.
#include "kvtransfer/ucx_put.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvtransfer/ucx_test_rig.h"
#include "kvtransfer/wire.h"

#include "tests/doctest.h"

// Asked by LeakSanitizer, in builds with it. This thread has thread-local storage of UCX, a library
// loaded late, and GCC 12's LeakSanitizer guesses where such storage lies: wrong, it crashes.
extern "C" const char* __lsan_default_options() {
  return "use_tls=0";
}

namespace baton {
namespace {

using Kind = MoverEvent::Kind;

// Attached; of transfer 5, which ends with it, page 1's put is held, and the flush behind it.
struct HeldPut : UcxTestPair {
  HeldPut() : UcxTestPair(held_ucx()) {
    REQUIRE_EQ(attach().kind, Kind::kAttached);
    HeldRma::hold = true;
    push_whole(5, 1);
    REQUIRE_EQ(HeldRma::requests.size(), 2);
  }
  // A transfer of one page.
  void push_whole(TransferId transfer, int32_t page) {
    pusher->begin(transfer, 7, transfer);
    pusher->push_pages({{transfer, 0, page, page}});
    pusher->finish(transfer, 0);
    rest();
  }
};

TEST_CASE("ucx puts: pages arrive whole, by layers and as complete pages") {
  UcxTestPair pair(real_ucx());
  const MoverEvent attached = pair.attach();
  CHECK_EQ(attached.error, "");
  REQUIRE_EQ(attached.kind, Kind::kAttached);
  CHECK_EQ(attached.transport, "ucx");
  CHECK_GT(attached.gbps, 0);
  CHECK_GT(attached.latency_us, 0);
  CHECK_FALSE(pair.d.transport->stores_ourselves());
  std::vector<PushPage> pages;
  for (int32_t i = 0; i < kTestPages; ++i) pages.push_back({5, i % 2, i, kTestPages - 1 - i});
  pair.pusher->begin(5, 7, 1);
  pair.pusher->push_pages({pages.begin(), pages.begin() + 10});
  for (int32_t layer = 0; layer < 5; ++layer)
    pair.pusher->push_layer({pages.begin() + 10, pages.end()}, layer);
  pair.pusher->finish(5, 0);
  CHECK_EQ(pair.next().kind, Kind::kDone);
  for (const PushPage& page : pages) CHECK(same_page(pair.p.pools, pair.d.pools, page));
  CHECK(pair.d.pools.is_zero(0, 0));
}

TEST_CASE("ucx puts: a slice waits for its layer's event, also for one that is recorded again") {
  UcxTestPair pair(held_ucx());
  REQUIRE_EQ(pair.attach().kind, Kind::kAttached);
  FakeEvent first, second;
  pair.pusher->begin(5, 7, 1);
  pair.pusher->push_layer({{5, 0, 1, 1}}, 0, &first);
  pair.rest();
  CHECK(pair.d.pools.is_zero(0, 1));
  pair.pusher->push_layer({{5, 0, 1, 1}}, 2, &second);
  pair.rest();
  pair.p.memory.pass(first);
  pair.rest();
  CHECK_FALSE(pair.d.pools.is_zero(0, 1));
  CHECK_FALSE(same_page(pair.p.pools, pair.d.pools, {5, 0, 1, 1}));
  pair.pusher->finish(5, 0);
  pair.rest();
  CHECK(pair.log.empty());
  pair.p.memory.pass(second);
  CHECK_EQ(pair.next().kind, Kind::kDone);
  CHECK(same_page(pair.p.pools, pair.d.pools, {5, 0, 1, 1}));

  first.passed = false;
  pair.pusher->begin(6, 7, 2);
  pair.pusher->push_layer({{6, 0, 2, 2}}, 0, &first);
  pair.pusher->finish(6, 0);
  pair.rest();
  CHECK(pair.d.pools.is_zero(0, 2));
  pair.p.memory.pass(first);
  CHECK_EQ(pair.next().kind, Kind::kDone);
}

TEST_CASE("ucx puts: a slice is done by the flush behind it, not by its put's end") {
  HeldPut pair;
  HeldRma::end(UCS_OK);
  pair.rest();
  CHECK(pair.log.empty());
  // What is put while a flush is under way is the next one's.
  pair.push_whole(6, 2);
  REQUIRE_EQ(HeldRma::requests.size(), 2);
  HeldRma::end(UCS_OK);
  CHECK_EQ(pair.next().transfer, 5);
  pair.rest();
  CHECK(pair.log.empty());
  HeldRma::end(UCS_OK);
  HeldRma::end(UCS_OK);
  CHECK_EQ(pair.next().transfer, 6);
}

TEST_CASE("ucx puts: as many are under way as are allowed") {
  UcxTestPair pair(held_ucx());
  REQUIRE_EQ(pair.attach().kind, Kind::kAttached);
  HeldRma::hold = true;
  pair.pusher->begin(5, 7, 1);
  for (int32_t round = 0; round < 40; ++round) {
    std::vector<PushPage> pages;
    for (int32_t page = 0; page < kTestPages; ++page) pages.push_back({5, 0, page, page});
    pair.pusher->push_pages(pages);
  }
  pair.pusher->finish(5, 0);
  pair.rest();
  CHECK_EQ(HeldRma::puts(), 256);
  pair.until([&] {
    while (!HeldRma::requests.empty()) {
      CHECK_LE(HeldRma::puts(), 256);
      HeldRma::end(UCS_OK);
    }
    return !pair.log.empty();
  });
  CHECK_EQ(pair.next().kind, Kind::kDone);
}

TEST_CASE("ucx puts: one that fails breaks the link, once no other is under way") {
  for (const bool at_once : {true, false}) {
    CAPTURE(at_once);
    HeldPut pair;
    if (at_once) {
      HeldRma::refusal = UCS_ERR_IO_ERROR;
      pair.pusher->push_pages({{5, 0, 2, 2}});
    } else {
      HeldRma::end(UCS_ERR_IO_ERROR);
    }
    pair.rest();
    CHECK(pair.log.empty());
    HeldRma::end_all(UCS_OK);
    const MoverEvent failed = pair.next();
    CHECK_EQ(failed.kind, Kind::kFailed);
    CHECK_NE(failed.error.find("put: "), std::string::npos);
    CHECK_EQ(pair.next().kind, Kind::kAttachFailed);
  }
}

TEST_CASE("ucx puts: a flush that fails completes nothing") {
  HeldPut pair;
  HeldRma::end(UCS_OK);
  HeldRma::end(UCS_ERR_CONNECTION_RESET);
  const MoverEvent failed = pair.next();
  CHECK_EQ(failed.kind, Kind::kFailed);
  CHECK_NE(failed.error.find("flush: "), std::string::npos);
}

TEST_CASE("ucx puts: a link that D forgets in mid-put ends when the put has") {
  HeldPut pair;
  pair.d.transport->forget(9);
  pair.rest();
  CHECK(pair.log.empty());
  pair.pusher->push_pages({{5, 0, 2, 2}});  // nothing new starts
  pair.rest();
  CHECK_EQ(HeldRma::puts(), 1);
  HeldRma::end_all(UCS_OK);
  const MoverEvent failed = pair.next();
  CHECK_EQ(failed.kind, Kind::kFailed);
  CHECK_EQ(failed.error, "the peer has closed the connection");
  CHECK_EQ(pair.next().kind, Kind::kAttachFailed);
}

TEST_CASE("ucx puts: a detached link tells so when its puts have ended, and can be attached anew") {
  HeldPut pair;
  pair.pusher->detach(7);
  pair.rest();
  CHECK(pair.log.empty());
  HeldRma::end_all(UCS_OK);
  CHECK_EQ(pair.next().kind, Kind::kFailed);
  CHECK_EQ(pair.next().kind, Kind::kDetached);
  HeldRma::hold = false;
  pair.d.transport->forget(9);
  CHECK_EQ(pair.attach().kind, Kind::kAttached);
}

TEST_CASE("ucx puts: those that never end are given up with their endpoint") {
  HeldPut pair;
  pair.d.transport->forget(9);
  CHECK_EQ(pair.next().kind, Kind::kFailed);
  CHECK_EQ(pair.next().kind, Kind::kAttachFailed);
  HeldRma::end_all(UCS_ERR_CANCELED);  // too late to matter
}

TEST_CASE("ucx puts: two workers that attach to each other at once do not spoil their challenges") {
  UcxTestPair pair(held_ucx());
  std::deque<MoverEvent> log;
  Pusher back(pair.config, pair.d.pools.layout, pair.d.pools.borrowed, {pair.d.transport.get()},
              nullptr, pair.clock, [&](MoverEvent event) { log.push_back(std::move(event)); });
  Offer offer{
      .keys = pair.p.offers.add(3), .pools = geometry_of(pair.p.pools.borrowed), .endpoints = {}};
  offer.endpoints.push_back({"ucx", pair.p.transport->endpoint()});
  HeldRma::hold = true;
  back.attach(4, encode_offer(offer), long_lease());
  pair.pusher->attach(7, pair.offer(), long_lease());
  pair.until([] { return HeldRma::puts() == 2; });  // both have written theirs
  HeldRma::hold = false;
  HeldRma::end_all(UCS_OK);
  pair.until([&] {
    back.pump();
    return !log.empty() && !pair.log.empty();
  });
  CHECK_EQ(log.front().kind, Kind::kAttached);
  CHECK_EQ(pair.log.front().kind, Kind::kAttached);
}

TEST_CASE("ucx puts: who does not put the challenge into D's memory is not served") {
  UcxTestPair pair(held_ucx());
  HeldRma::hold = true;
  pair.pusher->attach(7, pair.offer(), long_lease());
  pair.until([] { return HeldRma::requests.size() == 2; });
  while (!HeldRma::requests.empty()) {
    HeldRma::requests.front().store = [] {};
    HeldRma::end(UCS_OK);
  }
  const MoverEvent refused = pair.next();
  CHECK_EQ(refused.kind, Kind::kAttachFailed);
  CHECK_EQ(refused.error, "ucx: the peer has closed the connection");
}

TEST_CASE("ucx puts: a peer whose death nobody could prove gets no memory") {
  UcxTestPair pair(real_ucx(), 300);
  const OfferKeys keys = pair.d.offers.add(9);
  Offer offer{.keys = keys, .pools = geometry_of(pair.d.pools.borrowed), .endpoints = {}};
  // P leaves its note with somebody else: at its own socket.
  const std::string at_d = pair.d.transport->endpoint(), at_p = pair.p.transport->endpoint();
  WireReader d(at_d);
  std::string version, boot_id, socket_name, worker;
  REQUIRE((d.get_string(version) && d.get_string(boot_id) && d.get_string(socket_name) &&
           d.get_string(worker)));
  WireReader p(at_p);
  REQUIRE((p.get_string(version) && p.get_string(boot_id) && p.get_string(socket_name)));
  WireWriter address;
  for (const std::string& part : {version, boot_id, socket_name, worker}) address.put_string(part);
  offer.endpoints.push_back({"ucx", address.take()});
  pair.pusher->attach(7, encode_offer(offer), long_lease());
  CHECK_EQ(pair.next().error, "ucx: no answer from the peer");
}

TEST_CASE("ucx puts: addresses of other versions, of other hosts, and malformed ones are refused") {
  UcxTestPair pair(real_ucx());
  const auto refusal = [&](const std::string& version, const std::string& boot_id) {
    WireWriter address;
    for (const std::string& part : {version, boot_id, std::string("x"), std::string("y")})
      address.put_string(part);
    Offer offer{.keys = pair.d.offers.add(9),
                .pools = geometry_of(pair.d.pools.borrowed),
                .endpoints = {{"ucx", address.take()}}};
    pair.pusher->attach(7, encode_offer(offer), long_lease());
    return pair.next().error;
  };
  const std::string ours = real_ucx()->get_version_string();
  CHECK_NE(refusal("0.1", "here").find("the peer has version 0.1, we have " + ours),
           std::string::npos);
  CHECK_NE(refusal(ours, "elsewhere").find("another host"), std::string::npos);
  Offer offer{.keys = pair.d.offers.add(9),
              .pools = geometry_of(pair.d.pools.borrowed),
              .endpoints = {{"ucx", "nonsense"}}};
  pair.pusher->attach(7, encode_offer(offer), long_lease());
  CHECK_EQ(pair.next().error, "ucx: malformed address");
}

TEST_CASE(
    "ucx puts: a peer's memory that UCX does not reach is told so within the attach timeout") {
  UcxTestPair pair(held_ucx(), 3000);
  HeldRma::hold = true;
  pair.pusher->attach(7, pair.offer(), long_lease());
  CHECK_EQ(pair.next().error, "ucx: UCX does not reach the peer's memory");
  HeldRma::end_all(UCS_ERR_CANCELED);
}

TEST_CASE(
    "ucx puts: a peer on another host is served where a NIC reaches it, without a death note") {
  const std::shared_ptr<const UcxLibrary> library = held_ucx();
  for (const bool p_far : {false, true}) {
    for (const bool d_far : {false, true}) {
      CAPTURE(p_far);
      CAPTURE(d_far);
      UcxTestPair pair({.library = library, .far = p_far, .boot_id = "elsewhere"},
                       {.library = library, .far = d_far}, p_far && !d_far ? 300 : 10'000);
      const MoverEvent event = pair.attach();
      CHECK_EQ(event.kind, p_far && d_far ? Kind::kAttached : Kind::kAttachFailed);
      if (!p_far) CHECK_NE(event.error.find("another host"), std::string::npos);
      if (p_far && !d_far) CHECK_EQ(event.error, "ucx: no answer from the peer");
    }
  }
}

TEST_CASE("ucx: a message of many segments arrives whole, as a welcome with many slabs is") {
  Result<std::unique_ptr<UcxWorker>> from = UcxWorker::make(real_ucx(), {.puts = true});
  Result<std::unique_ptr<UcxWorker>> to = UcxWorker::make(real_ucx(), {});
  REQUIRE(from.ok());
  REQUIRE(to.ok());
  std::string want(400'000, '\0'), got;
  for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<char>(i * 7 + i / 256);
  (*to)->set_receiver(kPutWelcome, [&](std::string_view, std::string_view bytes) { got = bytes; });
  Result<std::unique_ptr<UcxEndpoint>> endpoint =
      UcxEndpoint::connect(**from, (*to)->address(), {});
  REQUIRE(endpoint.ok());
  REQUIRE((*endpoint)->send(kPutWelcome, "header", want, [] {}).ok());
  const Stopwatch waited;
  while (got.empty() && waited.elapsed_us() < 20e6) {
    const bool sent = (*from)->progress();
    if (!(*to)->progress() && !sent) usleep(100);
  }
  CHECK(got == want);
}

TEST_CASE("a death note is honoured once the process that left it has ended") {
  PollLoop loop;
  OfferBook offers;
  std::vector<LinkId> dead;
  DeathNotes notes(loop, offers, [&](LinkId link) { dead.push_back(link); });
  const Nonce nonce = offers.add(9).connect;
  const pid_t child = fork();
  if (child == 0) {
    if (!DeathNotes::leave(notes.socket_name(), nonce).ok()) _exit(1);
    for (;;) pause();
  }
  const auto wait_until = [&](auto ready) {
    const Stopwatch waited;
    while (!ready() && waited.elapsed_us() < 20e6) {
      const PollLoop::Watch tick = loop.after_ms(10, [] {});
      loop.poll(true);
    }
    REQUIRE(ready());
  };
  wait_until([&] { return notes.has(9); });
  CHECK(dead.empty());
  notes.forget(9);
  CHECK_FALSE(notes.has(9));
  kill(child, SIGKILL);
  REQUIRE_EQ(waitpid(child, nullptr, 0), child);
  wait_until([&] { return !dead.empty(); });
  CHECK(dead == std::vector<LinkId>{9});
}

TEST_CASE("a second UCX in one process is refused") {
  real_ucx();
  const Result<std::shared_ptr<const UcxLibrary>> other = load_ucx("/nowhere/libucp.so.0");
  REQUIRE_FALSE(other.ok());
  CHECK_NE(other.status().message().find("is loaded already"), std::string::npos);
}

}  // namespace
}  // namespace baton
