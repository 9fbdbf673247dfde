// What a worker tells of its handoffs, peers and pages.
#include "worker/test_core.h"
#include "worker/worker_metrics.h"

#include "tests/doctest.h"

namespace baton {
namespace {

struct MetricsRig {
  MetricsRig() { attach("ucx", 40); }

  void attach(const std::string& transport, double gbps) {
    w.core.handle(MoverEvent{.kind = MoverEvent::Kind::kAttached,
                             .link = kDecode,
                             .transport = transport,
                             .gbps = gbps});
  }
  // The sum over all series of that name with this in their labels.
  double value(const std::string& name, const std::string& label = "") {
    metrics.update(w.core, w.cache);
    const std::string text = "\n" + metrics.text();
    double sum = 0;
    for (size_t at = 0; (at = text.find("\n" + name + "{", at)) != std::string::npos; ++at) {
      const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
      if (line.find(label) != std::string::npos) sum += std::stod(line.substr(line.find("} ") + 2));
    }
    return sum;
  }
  // A prompt up to the end of its computing; its copies are under way.
  TransferId computed_handoff(TokenId first, uint64_t slot_gen) {
    const SequenceSpec s = TestCore::sequence(first, 80, 20);
    w.send_prefill(s);
    w.wait_ms(3);
    w.send_grant(s, slot_gen);
    w.steps_until_idle();
    return w.mover.begun.back();
  }

  WorkerMetrics metrics{{.model_name = "m", .kv_compat_id = "kv", .page_tokens = 16, .pages = 64},
                        core_config()};
  TestCore w{64, core_config(), &metrics};
};

TEST_CASE("a handoff that is done is counted with its transport, bytes and tail") {
  MetricsRig rig;
  const TransferId transfer = rig.computed_handoff(1, 7);
  CHECK(rig.value("baton_handoffs_pushed_total") == 0);
  rig.w.wait_ms(25);
  rig.w.moved(MoverEvent::Kind::kDone, transfer);
  CHECK(rig.value("baton_handoffs_pushed_total", "transport=\"ucx\"") == 1);
  CHECK(rig.value("baton_handoffs_pushed_total") == 1);
  CHECK(rig.value("baton_handoff_bytes_total", "transport=\"ucx\"") ==
        static_cast<double>(5 * rig.w.layout.groups[0].page_bytes()));
  CHECK(rig.value("baton_handoff_tail_seconds_sum") == doctest::Approx(.025));
  CHECK(rig.value("baton_reserve_seconds_sum") == doctest::Approx(.003));
  CHECK(rig.value("baton_handoffs_failed_total") == 0);
}

TEST_CASE("a handoff that fails is counted once, whether a copy fails or the peer is lost") {
  MetricsRig rig;
  rig.w.moved(MoverEvent::Kind::kFailed, rig.computed_handoff(1, 7));
  CHECK(rig.value("baton_handoffs_failed_total") == 1);

  const TransferId lost = rig.computed_handoff(2, 8);
  rig.w.core.handle(LinkEvent(LinkDown{kDecode, "gone"}));
  CHECK(rig.value("baton_handoffs_failed_total") == 2);
  rig.w.moved(MoverEvent::Kind::kFailed, lost);  // the mover's word on what has been given up
  CHECK(rig.value("baton_handoffs_failed_total") == 2);
  CHECK(rig.value("baton_handoffs_pushed_total") == 0);
}

TEST_CASE("peers are told by transport, with the slowest, and as fallbacks behind the first") {
  MetricsRig rig;  // mapped,ucx,tcp
  CHECK(rig.value("baton_transport_peers", "transport=\"ucx\"") == 1);
  CHECK(rig.value("baton_transport_slowest_gbps", "transport=\"ucx\"") == 40);
  CHECK(rig.value("baton_transport_fallback_peers") == 1);
  rig.attach("mapped", 380);
  CHECK(rig.value("baton_transport_peers", "transport=\"ucx\"") == 0);
  CHECK(rig.value("baton_transport_slowest_gbps") == 380);
  CHECK(rig.value("baton_transport_fallback_peers") == 0);
  rig.w.core.handle(MoverEvent{.kind = MoverEvent::Kind::kAttachFailed, .link = kDecode});
  CHECK(rig.value("baton_transport_peers") == 0);
  CHECK(rig.value("baton_attach_failures_total") == 1);
}

TEST_CASE("answers to RESERVE are counted, and pages in all states sum to the pool") {
  MetricsRig rig;
  const SequenceSpec s = TestCore::sequence(1, 80, 20);
  rig.w.send_open(s);
  rig.w.send_reserve(s);
  CHECK(rig.value("baton_reservations_total", "answer=\"granted\"") == 1);
  CHECK(rig.value("baton_reservations_total") == 1);
  CHECK(rig.value("baton_pages", "state=\"granted\"") == 5);
  CHECK(rig.value("baton_pages") == 64);
  CHECK(rig.value("baton_pool_pages") == 64);
  rig.w.core.begin_drain();
  CHECK(rig.value("baton_draining") == 1);
}

}  // namespace
}  // namespace baton
