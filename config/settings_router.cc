// The settings of baton-router.
#include "config/settings_table.h"

namespace baton {
namespace {

void add_kube(SettingTable& table, KubeConfig& values) {
  using C = KubeConfig;
  add<C>(table, "kube", values,
         {
             {"api_server", &C::api_server, "", kAny,
              "https://host:port of the API server; empty: as Kubernetes tells its containers."},
             {"token_file", &C::token_file, "", kAny,
              "Bearer token, read again for each request; empty: none is sent."},
             {"ca_file", &C::ca_file, "", kAny,
              "PEM certificates of the API server's authorities, read for each connection."},
             {"namespace_file", &C::namespace_file, "", kAny,
              "Namespace of kube: entries that name none."},
             {"request_timeout_ms", &C::request_timeout_ms, "ms", kWaitMs,
              "Longest wait for the API server to take a connection and to answer."},
             {"idle_timeout_ms", &C::idle_timeout_ms, "ms", kWaitMs,
              "A watch that says nothing for so long, not even a bookmark, is opened anew."},
             {"watch_timeout_s",
              &C::watch_timeout_s,
              "s",
              {1, 3600},
              "The API server is asked to end a watch after about so long; another follows."},
             {"retry_max_ms", &C::retry_max_ms, "ms", kWaitMs,
              "Longest pause before the API server is asked again after a failure."},
         });
}

void add_route(SettingTable& table, RouteConfig& values) {
  using C = RouteConfig;
  add<C>(table, "route", values,
         {
             {"candidates",
              &C::candidates,
              "workers",
              {1, 16},
              "Decode workers that hear of a request."},
             {"queue_max",
              &C::queue_max,
              "requests",
              {1, kMiB},
              "Requests waiting for a place; more get status 429."},
             {"queue_wait_ms", &C::queue_wait_ms, "ms", kWaitMs,
              "Longest wait for a place; then status 503."},
             {"local_prompt_tokens",
              &C::local_prompt_tokens,
              "tokens",
              {0, kMiB},
              "Prompts up to this length go straight to a decode worker."},
             {"recovery_attempts_max",
              &C::recovery_attempts_max,
              "attempts",
              {1, 100},
              "Replays of one request in a row, without a new token between them."},
             {"request_timeout_ms",
              &C::request_timeout_ms,
              "ms",
              {1, 86'400'000},
              "Longest life of a request."},
             {"ttft_max_ms",
              &C::ttft_max_ms,
              "ms",
              {0, 3'600'000},
              "A request whose first token is predicted later than this gets status 429; 0: all "
              "are let in."},
             {"placed_wait_ms", &C::placed_wait_ms, "ms", kWaitMs,
              "A worker that has a request, says nothing of it and computes no prompts for so long "
              "loses it to another."},
             {"priority_wait_ms", &C::priority_wait_ms, "ms", kWaitMs,
              "A waiting request goes before those of the next lower priority that came at most so "
              "much earlier."},
             {"retry_wait_max_ms", &C::retry_wait_max_ms, "ms", kWaitMs,
              "Longest pause before a request that found every worker full is placed again."},
             {"discovery_interval_ms",
              &C::discovery_interval_ms,
              "ms",
              {10, 3'600'000},
              "workers_file is looked at and dns: entries are resolved so often."},
             {"zone_policy",
              &C::zone_policy,
              "",
              {0, 0, "prefer require ignore"},
              "Whether pages are handed over between zones: when nothing nearer will do, never, or "
              "as if there were no zones."},
             {"history_blocks_max",
              &C::history_blocks_max,
              "blocks",
              {1, 1 << 28},
              "Prefixes remembered for placement, in blocks of 16 tokens; the oldest go first."},
         });
}

void add_http(SettingTable& table, HttpConfig& values) {
  using C = HttpConfig;
  add<C>(
      table, "http", values,
      {
          {"host", &C::host, "", kAny, "Address to listen on.", "host"},
          {"port", &C::port, "", {0, 65535}, "Port to listen on; 0: any.", "port"},
          {"body_bytes_max",
           &C::body_bytes_max,
           "bytes",
           {1024, 1024 * kMiB},
           "Largest body; more gets status 413."},
          {"header_bytes_max",
           &C::header_bytes_max,
           "bytes",
           {1024, kMiB},
           "Largest header; more gets status 431."},
          {"connections_max",
           &C::connections_max,
           "connections",
           {1, 65536},
           "Clients connected at once."},
          {"keep_alive_ms", &C::keep_alive_ms, "ms", kWaitMs,
           "An idle connection is closed after it."},
          {"read_timeout_ms", &C::read_timeout_ms, "ms", kWaitMs,
           "A request that has begun is whole by then."},
          {"write_buffer_bytes_max",
           &C::write_buffer_bytes_max,
           "bytes",
           {65536, 1024 * kMiB},
           "Queued to one client; a client that stops reading is cut off here."},
          {"write_timeout_ms", &C::write_timeout_ms, "ms", kWaitMs,
           "A client that takes nothing of what is queued for so long is cut off."},
          {"json_depth_max", &C::json_depth_max, "levels", {8, 1000}, "Deepest nesting of a body."},
          {"n_max", &C::n_max, "choices", {1, 1024}, "Most choices of one request."},
          {"batch_max", &C::batch_max, "prompts", {1, 65536}, "Most prompts of one request."},
          {"api_keys_file", &C::api_keys_file, "", kAny,
           "File of accepted keys, one a line, read again when it changes; empty: all may call."},
          {"tls_cert_file", &C::tls_cert_file, "", kAny,
           "PEM certificate chain for HTTPS, read again when it changes; empty: plain HTTP."},
          {"tls_key_file", &C::tls_key_file, "", kAny, "PEM key of that certificate."},
          {"trust_request_chat_template", &C::trust_request_chat_template, "", kAny,
           "Requests may bring a chat_template of their own."},
          {"log_requests", &C::log_requests, "", kAny,
           "A line in the log for each request that asks for tokens."},
      });
}

void add_metrics(SettingTable& table, MetricsConfig& values) {
  using C = MetricsConfig;
  add<C>(table, "metrics", values,
         {
             {"ttft_edges_s", &C::ttft_edges_s, "s", kAny,
              "Bucket edges of the TTFT histograms, ascending, separated by commas; empty: "
              "vLLM's."},
             {"tpot_edges_s", &C::tpot_edges_s, "s", kAny,
              "Bucket edges of the TPOT and inter-token histograms; empty: vLLM's and finer ones "
              "below 10 ms."},
             {"ttft_slo_s",
              &C::ttft_slo_s,
              "s",
              {0.0001, 3600},
              "Service level objective of the TTFT; must be an edge."},
             {"tpot_slo_s",
              &C::tpot_slo_s,
              "s",
              {0.0001, 3600},
              "Service level objective of the TPOT; must be an edge."},
             {"vllm_aliases", &C::vllm_aliases, "", kAny, kAliasesHelp},
         });
}

}  // namespace

std::vector<Setting> settings_of(RouterConfig& values) {
  using C = RouterConfig;
  SettingTable table;
  add<C>(table, "", values,
         {
             {"model", &C::model, "", kAny,
              "GGUF file or Hugging Face folder: tokeniser and chat template."},
             {"served_model_name", &C::served_model_name, "", kAny,
              "Name in the API; empty: that of the file or folder."},
             {"chat_template_file", &C::chat_template_file, "", kAny,
              "Jinja file in place of the model's own chat template; empty: that one."},
             {"workers", &C::workers, "", kAny,
              "host:port of workers, dns:name:port for every address of a name, or "
              "kube:namespace/service:port for every endpoint of a Kubernetes Service; separated "
              "by commas."},
             {"workers_file", &C::workers_file, "", kAny,
              "File with more of them, one a line; read again when it changes."},
             {"text_threads",
              &C::text_threads,
              "threads",
              {1, 256},
              "Threads that tokenise and detokenise."},
             {"text_queue_max",
              &C::text_queue_max,
              "requests",
              {1, kMiB},
              "Bodies that wait for one of these threads; more get status 429."},
             {"loop_tick_ms",
              &C::loop_tick_ms,
              "ms",
              {1, 1000},
              "Deadlines and retries are checked so often."},
             {"drain_timeout_ms", &C::drain_timeout_ms, "ms", kWaitMs,
              "Longest time from a stop signal to the end."},
         });
  add_kube(table, values.kube);
  add_route(table, values.route);
  add_http(table, values.http);
  add_metrics(table, values.metrics);
  add_link(table, values.link);
  return table;
}

}  // namespace baton
