// The settings of the links between processes.
#include "config/settings_table.h"

namespace baton {

void add_link(SettingTable& table, LinkConfig& values) {
  using C = LinkConfig;
  add<C>(table, "link", values,
         {
             {"token_file", &C::token_file, "", kAny,
              "File with the cluster's shared secret, 16 bytes or more; needed beyond loopback.",
              "token-file"},
             {"tls_cert_file", &C::tls_cert_file, "", kAny,
              "PEM certificate (and chain) of this process; with key and CA: mutual TLS 1.3."},
             {"tls_key_file", &C::tls_key_file, "", kAny, "PEM private key of tls_cert_file."},
             {"tls_ca_file", &C::tls_ca_file, "", kAny,
              "PEM certificates of the authorities whose word is taken for a peer's certificate."},
             {"lease_ms", &C::lease_ms, "ms", {40, 600'000}, "A peer silent for so long is gone."},
             {"hello_timeout_ms", &C::hello_timeout_ms, "ms", kWaitMs,
              "A new connection is whole by then, or closed."},
             {"reconnect_ms",
              &C::reconnect_ms,
              "ms",
              {1, 1000},
              "First wait between tries; doubles up to 1 s."},
             {"outbox_bytes_max",
              &C::outbox_bytes_max,
              "bytes",
              {kMiB, 1024 * kMiB},
              "Queued to one peer; with more, its connection is dropped."},
             {"connections_max", &C::connections_max, "connections", {1, 65536}, "Open at once."},
         });
}

}  // namespace baton
