#include "base/link_metrics.h"

namespace baton {
namespace {

constexpr const char* kBytesName = "baton_link_bytes_total";
constexpr const char* kBytesHelp = "Bytes over the links between processes, before TLS";

void follow(Counter& counter, int64_t& told, int64_t now) {
  if (now > told) counter.add(static_cast<double>(now - told));
  told = now;
}

}  // namespace

LinkMetrics::LinkMetrics(MetricRegistry& registry)
    : registry_(registry),
      peers_(registry.gauge("baton_link_peers", "Links that are up")),
      outbox_bytes_(
          registry.gauge("baton_link_outbox_bytes", "Queued to peers and not yet written")),
      reconnects_(registry.counter("baton_link_reconnects_total",
                                   "Dialled addresses that came up once more")),
      bytes_in_(registry.counter(kBytesName, kBytesHelp, {{"direction", "in"}})),
      bytes_out_(registry.counter(kBytesName, kBytesHelp, {{"direction", "out"}})) {}

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
               .emplace(reason, registry_.counter("baton_link_handshake_failures_total",
                                                  "Connections that ended before they were up",
                                                  {{"reason", reason}}))
               .first;
    follow(at->second, told_.handshake_failures[reason], count);
  }
}

}  // namespace baton
