// The table of all settings. A new one gets its default in config.h and a row here.
#include <sstream>

#include "config/settings.h"

namespace baton {
namespace {

struct Range {
  double min = 0, max = 0;
  const char* choices = "";  // separated by blanks
};

template <typename S>
struct Row {
  const char* name;
  std::variant<int32_t S::*, int64_t S::*, double S::*, bool S::*, std::string S::*> member;
  const char* unit;
  Range range;
  const char* help;
  const char* alias = "";
};

constexpr double kMiB = 1 << 20;
constexpr Range kAny = {};
constexpr Range kShare = {0, 1};
constexpr Range kWaitMs = {1, 3'600'000};

using Table = std::vector<Setting>;

template <typename S>
void add(Table& table, const std::string& section, S& values, const std::vector<Row<S>>& rows) {
  for (const Row<S>& row : rows) {
    Setting setting{.name = section.empty() ? row.name : section + "." + row.name,
                    .unit = row.unit,
                    .min = row.range.min,
                    .max = row.range.max,
                    .help = row.help,
                    .alias = row.alias};
    std::istringstream choices(row.range.choices);
    for (std::string choice; choices >> choice;) setting.choices.push_back(choice);
    std::visit([&](auto member) { setting.value = &(values.*member); }, row.member);
    table.push_back(std::move(setting));
  }
}

void add_kv(Table& table, KvConfig& values) {
  using C = KvConfig;
  add<C>(table, "kv", values,
         {
             {"page_tokens",
              &C::page_tokens,
              "tokens",
              {0, 1024},
              "Tokens of one page of the KV cache; 0: 16 on CPU, 64 on CUDA."},
             {"pool_mib",
              &C::pool_mib,
              "MiB",
              {0, 16 * kMiB},
              "Memory of all pages of a worker; 0: 1024 on CPU, on CUDA what "
              "gpu_memory_utilization leaves."},
             {"slab_mib",
              &C::slab_mib,
              "MiB",
              {1, 65536},
              "The pool is made of allocations of this size."},
             {"dtype",
              &C::dtype,
              "",
              {0, 0, "auto f32 f16 bf16"},
              "Type of the cached keys and values."},
         });
}

void add_scheduler(Table& table, SchedulerConfig& values) {
  using C = SchedulerConfig;
  add<C>(
      table, "scheduler", values,
      {
          {"step_tokens",
           &C::step_tokens,
           "tokens",
           {1, kMiB},
           "Most tokens of one step, decodes and prefill chunks together."},
          {"chunk_tokens",
           &C::chunk_tokens,
           "tokens",
           {1, kMiB},
           "Largest prefill chunk of one sequence in a step."},
          {"running_max", &C::running_max, "choices", {1, 65536}, "Choices that decode at once."},
          {"waiting_max",
           &C::waiting_max,
           "requests",
           {1, kMiB},
           "Requests held that have not started."},
          {"steps_ahead", &C::steps_ahead, "steps", {0, 1}, "Steps prepared while one runs."},
          {"priority_tokens",
           &C::priority_tokens,
           "tokens",
           {1, 1 << 30},
           "A request goes before those of the next lower priority that came at most so many "
           "tokens of prompts earlier."},
          {"prefix_cache", &C::prefix_cache, "", kAny,
           "Keep pages of ended requests for prompts that begin alike."},
      });
  // A matter of prompts, so its name says prefill; the scheduler of every role keeps to it.
  add<C>(
      table, "prefill", values,
      {
          {"chunk_ms",
           &C::chunk_ms,
           "ms",
           {0, 60'000},
           "Longest computing of prompts in one step, by the measured rate; 0: bounded in tokens "
           "only."},
      });
}

void add_prefill(Table& table, PrefillConfig& values) {
  using C = PrefillConfig;
  add<C>(table, "prefill", values,
         {
             {"reserve_ahead",
              &C::reserve_ahead,
              "requests",
              {1, 1024},
              "Grants held whose prompt has not begun."},
             {"reserve_ttl_ms", &C::reserve_ttl_ms, "ms", kWaitMs,
              "A grant not begun by then is given back."},
             {"queue_max",
              &C::queue_max,
              "requests",
              {1, 1 << 20},
              "Prompts held in any state; more are refused."},
             {"reserve_wait_ms", &C::reserve_wait_ms, "ms", kWaitMs,
              "Without an answer to a reservation by then, the next candidate is asked."},
             {"peer_unused_ms", &C::peer_unused_ms, "ms", kWaitMs,
              "The connection to a decode worker that no prompt has named for so long is closed."},
             {"retry_after_ms",
              &C::retry_after_ms,
              "ms",
              {0, 60'000},
              "A prompt refused for want of room is placed again after so long."},
             {"max_peer_share", &C::max_peer_share, "of reserve_ahead", kShare,
              "Most of them for one decode worker, while others are connected."},
         });
}

void add_decode(Table& table, DecodeConfig& values) {
  using C = DecodeConfig;
  add<C>(
      table, "decode", values,
      {
          {"headroom_pages",
           &C::headroom_pages,
           "pages",
           {0, 1024},
           "Kept free of grants for each running choice, to grow into."},
          {"local_prefill_tokens",
           &C::local_prefill_tokens,
           "tokens",
           {0, kMiB},
           "Prompts with at most so many uncached tokens are prefilled where they decode."},
          {"local_prefill_ratio", &C::local_prefill_ratio, "", kShare,
           "The same, when this is at most such a share of what the prefill worker would compute."},
          {"open_max",
           &C::open_max,
           "requests",
           {1, 1 << 20},
           "Requests held in any state; more are refused."},
          {"open_wait_ms", &C::open_wait_ms, "ms", kWaitMs,
           "How far a reservation may overtake its request."},
          {"cancel_memory_max",
           &C::cancel_memory_max,
           "requests",
           {1, 1 << 24},
           "Cancelled requests remembered until nothing of them can be under way any more."},
          {"retry_after_ms",
           &C::retry_after_ms,
           "ms",
           {0, 60'000},
           "A reservation refused for want of room is tried again after so long."},
          {"keep_prefix_ms", &C::keep_prefix_ms, "ms", kWaitMs,
           "Cached pages of a prompt whose prefill worker is lost stay pinned for the next try so "
           "long."},
          {"reserve_starve_ms", &C::reserve_starve_ms, "ms", kWaitMs,
           "A reservation refused for so long goes before younger ones."},
          {"grant_ttl_ms", &C::grant_ttl_ms, "ms", kWaitMs,
           "A grant without an end by then is quarantined and called back."},
          {"max_granted_share", &C::max_granted_share, "of the pool", kShare,
           "Most pages granted to, or quarantined for, one worker."},
          {"max_landing_share", &C::max_landing_share, "of the pool", kShare,
           "The same, for all workers."},
      });
}

void add_kvtransfer(Table& table, KvTransferConfig& values) {
  using C = KvTransferConfig;
  add<C>(table, "kvtransfer", values,
         {
             {"transports", &C::transports, "", kAny,
              "Ways to move pages, best first, separated by commas."},
             {"min_gbps",
              &C::min_gbps,
              "GB/s",
              {0, 10000},
              "A slower transport is refused at connect; 0: none is."},
             {"require",
              &C::require,
              "",
              {0, 0, "mapped ucx tcp loopback"},
              "Only this transport; empty: any."},
             {"attach_timeout_ms", &C::attach_timeout_ms, "ms", kWaitMs,
              "Longest try of one transport."},
             {"digest", &C::digest, "", kAny,
              "Prefill: send a digest of the pages along; decode workers check it before the first "
              "token."},
             {"push_sms",
              &C::push_sms,
              "multiprocessors",
              {0, 132},
              "CUDA: pages of a cached prefix are pushed by a kernel on so many, where that is "
              "faster at connect; 0: by the copy engines, as all others."},
         });
}

void add_link(Table& table, LinkConfig& values) {
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

void add_kube(Table& table, KubeConfig& values) {
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

void add_route(Table& table, RouteConfig& values) {
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

void add_http(Table& table, HttpConfig& values) {
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

constexpr const char* kAliasesHelp =
    "Tell series also under the names that vLLM gives them, for dashboards and autoscalers.";

void add_metrics(Table& table, MetricsConfig& values) {
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

std::vector<Setting> settings_of(WorkerConfig& values) {
  using C = WorkerConfig;
  Table table;
  add<C>(
      table, "", values,
      {
          {"model", &C::model, "", kAny, "GGUF file or Hugging Face folder."},
          {"role", &C::role, "", {0, 0, "prefill decode both"}, "What this worker does."},
          {"listen", &C::listen, "", kAny, "host:port for routers and workers."},
          {"worker_id", &C::worker_id, "", kAny,
           "Name that stays over restarts; empty: the listen address."},
          {"metrics_listen", &C::metrics_listen, "", kAny,
           "host:port of /metrics, /startupz, /livez, /readyz, /info and /debug; empty: none."},
          {"device", &C::device, "", kAny, "cpu, cuda, or cuda:N for GPU N."},
          {"zone", &C::zone, "", kAny,
           "Where this worker runs, as an availability zone; routers keep handoffs inside "
           "(route.zone_policy)."},
          {"nvlink_clique", &C::nvlink_clique, "", kAny,
           "Workers of one clique hand pages over by NVLink; auto: what the GPU's driver says."},
          {"load_format",
           &C::load_format,
           "",
           {0, 0, "auto dummy"},
           "auto: the model's weights; dummy: random ones of the shapes in config.json (CUDA)."},
          {"gpu_memory_utilization", &C::gpu_memory_utilization, "of the GPU", kShare,
           "Memory that weights, scratch and pages take together, where kv.pool_mib is 0."},
          {"deterministic", &C::deterministic, "", kAny,
           "On CUDA: what a request gets does not depend on the batch it is in, for batches of up "
           "to 128 choices, and prefill.chunk_ms is 0. On CPU it never does."},
          {"cuda_graphs",
           &C::cuda_graphs,
           "",
           {0, 0, "on lazy off"},
           "Decode steps as CUDA graphs: captured at start, when first needed, or not."},
          {"isa",
           &C::isa,
           "",
           {0, 0, "auto portable avx2 avx512_vnni"},
           "Instructions that the CPU kernels use."},
          {"threads",
           &C::threads,
           "threads",
           {0, 4096},
           "Threads of the forward pass; 0: one a core."},
          {"context_len",
           &C::context_len,
           "tokens",
           {0, 16 * kMiB},
           "Longest sequence; 0: the model's."},
          {"drain_timeout_ms", &C::drain_timeout_ms, "ms", kWaitMs,
           "Longest time from a stop signal to the end."},
          {"drain_hand_back_ms", &C::drain_hand_back_ms, "ms", kWaitMs,
           "So long before drain_timeout_ms is over, what is left goes back to the routers, which "
           "go on with it elsewhere."},
          {"loop_tick_ms",
           &C::loop_tick_ms,
           "ms",
           {1, 1000},
           "Longest sleep of the loop: the resolution of its timers."},
          {"status_interval_ms", &C::status_interval_ms, "ms", kWaitMs,
           "Routers are told of changes at most so often."},
          {"status_keepalive_ms", &C::status_keepalive_ms, "ms", kWaitMs,
           "And without a change so often."},
          {"debug_wait_ms", &C::debug_wait_ms, "ms", kWaitMs,
           "Longest wait of /debug for the loop's answer."},
          {"stall_timeout_ms", &C::stall_timeout_ms, "ms", kWaitMs,
           "/livez fails when a round of the loop or a step of the engine takes longer."},
          {"loop_max_us",
           &C::loop_max_us,
           "us",
           {100, 10'000'000},
           "Longer rounds of the loop are logged, with log_debug."},
          {"log_debug", &C::log_debug, "", kAny,
           "Log each step and each handoff with the time it took, and more."},
      });
  add_kv(table, values.kv);
  add_scheduler(table, values.scheduler);
  add_prefill(table, values.prefill);
  add_decode(table, values.decode);
  add_kvtransfer(table, values.kvtransfer);
  add<C>(table, "metrics", values, {{"vllm_aliases", &C::vllm_aliases, "", kAny, kAliasesHelp}});
  add_link(table, values.link);
  return table;
}

std::vector<Setting> settings_of(RouterConfig& values) {
  using C = RouterConfig;
  Table table;
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
