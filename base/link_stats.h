// What the links of a process have done so far, for /metrics. A plain copy.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace baton {

struct LinkStats {
  int64_t peers = 0;         // links that are up
  int64_t reconnects = 0;    // of addresses that had been up before
  int64_t bytes_in = 0;      // over all connections; TLS adds its own
  int64_t bytes_out = 0;     //
  int64_t outbox_bytes = 0;  // queued and not written
  // Connections that ended before they were up, by why: "unauthenticated" (TLS or token), "refused"
  // (no hello, another version, kv_compat_id, ...), "timeout", "lost", "other". All are there from
  // the start.
  std::map<std::string, int64_t> handshake_failures;
};

}  // namespace baton
