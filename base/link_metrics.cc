#include "base/link_metrics.h"

namespace baton {
namespace {

constexpr const char* kPeers = "baton_link_peers";
constexpr const char* kOutboxBytes = "baton_link_outbox_bytes";
constexpr const char* kReconnects = "baton_link_reconnects_total";
constexpr const char* kBytes = "baton_link_bytes_total";
constexpr const char* kHandshakeFailures = "baton_link_handshake_failures_total";

void follow(Counter& counter, int64_t& told, int64_t now) {
  if (now > told) counter.add(static_cast<double>(now - told));
  told = now;
}

}  // namespace

std::vector<MetricInfo> link_metric_infos() {
  using enum MetricType;
  return {
      {kPeers, kGauge, "links", {}, "Links to other processes that are up"},
      {kOutboxBytes, kGauge, "bytes", {}, "Queued to peers and not yet written"},
      {kReconnects, kCounter, "links", {}, "Dialled addresses that came up once more"},
      {kBytes,
       kCounter,
       "bytes",
       {"direction"},
       "Over the links between processes, before TLS; direction: in, out"},
      {kHandshakeFailures,
       kCounter,
       "connections",
       {"reason"},
       "Connections that ended before they were up; reason: unauthenticated (TLS or token), "
       "refused (another version or kv_compat_id), timeout, lost, other"},
  };
}

LinkMetrics::LinkMetrics(MetricRegistry& registry)
    : registry_(registry),
      peers_(registry.gauge(kPeers)),
      outbox_bytes_(registry.gauge(kOutboxBytes)),
      reconnects_(registry.counter(kReconnects)),
      bytes_in_(registry.counter(kBytes, {{"direction", "in"}})),
      bytes_out_(registry.counter(kBytes, {{"direction", "out"}})) {}

void LinkMetrics::update(const LinkStats& stats) {
  peers_.set(static_cast<double>(stats.peers));
  outbox_bytes_.set(static_cast<double>(stats.outbox_bytes));
  follow(reconnects_, told_.reconnects, stats.reconnects);
  follow(bytes_in_, told_.bytes_in, stats.bytes_in);
  follow(bytes_out_, told_.bytes_out, stats.bytes_out);
  for (const auto& [reason, count] : stats.handshake_failures) {
    auto at = handshake_failures_.find(reason);
    if (at == handshake_failures_.end())
      at = handshake_failures_
               .emplace(reason, registry_.counter(kHandshakeFailures, {{"reason", reason}}))
               .first;
    follow(at->second, told_.handshake_failures[reason], count);
  }
}

}  // namespace baton
