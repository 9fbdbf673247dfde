// Every setting of Baton, once: its default here, its name, unit, range and help in the table of
// config/settings.cc, which drives the JSON file, the command line flags ("--scheduler.step-tokens
// 512") and docs/settings.md. Parts take their own struct.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton {

struct KvConfig {
  int32_t page_tokens = 0;  // 0: 16 on CPU, 64 on CUDA
  int64_t pool_mib = 0;     // memory of all pages of a worker; 0: 1024 on CPU, on CUDA what
                            // gpu_memory_utilization leaves
  int64_t slab_mib = 64;
  std::string dtype = "auto";  // auto, f32, f16, bf16
};

struct SchedulerConfig {
  // Where 0 is allowed, it stands for the device's default, which parse_worker_config fills in.
  int32_t step_tokens = 0;     // tokens of one step, decodes and prefill chunks together
  int32_t chunk_tokens = 0;    // largest prefill chunk of one sequence in a step
  int32_t mixed_tokens = 0;    // of prompts in a step that has decodes; 0, also behind
                               // parse_worker_config: no such bound
  int32_t running_max = 256;   // choices decoding at once
  int32_t waiting_max = 1024;  // requests held that have not started
  int32_t steps_ahead = 1;     // steps prepared while one runs
  // "prefill.chunk_ms": the prompt tokens of one step take about so long at most; 0 = no such bound
  int64_t chunk_ms = 100;
  // a lower priority is worth so many prompt tokens: nobody is passed by more of them
  int32_t priority_tokens = 65536;
  bool prefix_cache = true;
};

struct PrefillConfig {
  int32_t reserve_ahead = 4;       // grants held that have not begun
  int64_t reserve_ttl_ms = 2000;   // a grant not begun by then is returned
  int32_t queue_max = 1024;        // prompts held in any state; more are refused
  int64_t reserve_wait_ms = 3000;  // without an answer to RESERVE by then: the next candidate
  int64_t peer_unused_ms = 60000;  // the connection to a decode worker that no prompt has named for
                                   // so long is closed
  int32_t retry_after_ms = 100;    // the router tries again after so long when P refuses a prompt
  double max_peer_share = 0.5;  // of reserve_ahead: for one decode worker, while there are others
};

struct DecodeConfig {
  int32_t headroom_pages = 2;  // per running choice's group, kept free of grants for growth
  int32_t local_prefill_tokens =
      64;  // prompts with at most so many uncached tokens are prefilled by D itself
  double local_prefill_ratio = 0.25;  // or when D would compute at most this share of what P would
  int32_t open_max = 4096;            // requests held in any state; more are refused
  int64_t open_wait_ms = 1000;        // a RESERVE may overtake its OPEN by so much
  int32_t cancel_memory_max = 65536;  // cancels remembered for RESERVEs and OPENs still under way
  int32_t retry_after_ms = 20;        // the router tries again after so long when D answers FULL
  int64_t keep_prefix_ms = 5000;  // after the loss of P the prompt's cached pages stay pinned for
                                  // so long, for the next attempt
  int64_t reserve_starve_ms = 1000;  // a request with FULL older than this goes before younger ones
  int64_t grant_ttl_ms = 120000;     // without COMMIT or DRAINED by then: quarantine and RELEASE
  double max_granted_share = 0.5;    // of the pool: grants and quarantine of one worker id
  double max_landing_share = 0.8;    // of the pool: of all peers
};

struct KvTransferConfig {
  std::string transports = "mapped,ucx,tcp";  // in order of preference
  double min_gbps = 0;                        // slower at connect: refused; 0 = off
  std::string require;                        // only this transport; empty = any
  int64_t attach_timeout_ms = 3000;
  bool digest = false;   // P sends a digest of the pages with COMMIT; D checks it before it decodes
  int32_t push_sms = 0;  // of a GPU, for pages that are complete already; 0: its copy engines push
  int32_t nccl_ctas = 16;   // of a GPU, that a pair's NCCL kernels take at each end, at most
  std::string ucx_library;  // libucp.so.0 to load; empty: the loader's
};

struct LinkConfig {
  std::string token_file;  // cluster token; empty only on loopback addresses
  // mutual TLS 1.3: all three, or none for plain connections
  std::string tls_cert_file, tls_key_file, tls_ca_file;
  int64_t lease_ms = 1000;  // a peer silent for so long is gone
  int64_t hello_timeout_ms = 2000;
  int64_t reconnect_ms = 50;            // first wait between tries; doubles up to 1 s
  int64_t outbox_bytes_max = 64 << 20;  // queued to one peer; more and the connection is dropped
  int32_t connections_max = 1024;
};

// The router's view of a Kubernetes API server, for kube: entries of `workers`.
struct KubeConfig {
  std::string api_server;  // https://host:port; empty: as Kubernetes tells its containers
  std::string token_file = "/var/run/secrets/kubernetes.io/serviceaccount/token";
  std::string ca_file = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
  std::string namespace_file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
  int64_t request_timeout_ms = 10000;  // connect, request and the head of the answer
  int64_t idle_timeout_ms = 120000;    // a watch that says nothing for so long is opened anew
  int64_t watch_timeout_s = 300;       // a watch is asked to last about so long
  int64_t retry_max_ms = 10000;        // longest pause between tries
};

struct RouteConfig {
  int32_t candidates = 2;            // decode workers that get OPEN
  int32_t queue_max = 1024;          // requests waiting for a place; more get 429
  int64_t queue_wait_ms = 30000;     // then 503
  int32_t local_prompt_tokens = 32;  // prompts up to this size go straight to a decode worker
  int32_t recovery_attempts_max = 5;
  int64_t request_timeout_ms = 600000;
  int64_t ttft_max_ms = 0;               // predicted later than this: 429; 0 = all are let in
  int64_t placed_wait_ms = 15000;        // neither an answer nor progress by then: another worker
  int64_t priority_wait_ms = 10000;      // a step of priority goes before what came so much earlier
  int64_t retry_wait_max_ms = 1000;      // longest pause before a refused request is placed again
  int64_t discovery_interval_ms = 2000;  // workers_file and dns: entries are looked at so often
  std::string zone_policy = "prefer";    // prefer, require, ignore: P and D of one zone
  int32_t history_blocks_max = 1 << 18;  // 16 tokens each: 4 Mi tokens of prefixes, some 25 MB
};

struct HttpConfig {
  std::string host = "127.0.0.1";
  int32_t port = 8000;
  int64_t body_bytes_max = 16 << 20;
  int32_t header_bytes_max = 64 << 10;
  int32_t connections_max = 4096;
  int64_t keep_alive_ms = 120000;
  int64_t read_timeout_ms = 30000;           // a request must be whole by then
  int64_t write_buffer_bytes_max = 4 << 20;  // a reader that stops is cut off here
  int64_t write_timeout_ms = 30000;          // or when it has taken nothing for so long
  int32_t json_depth_max = 64;
  int32_t n_max = 16;                        // choices a request
  int32_t batch_max = 256;                   // prompts a request
  std::string api_keys_file;                 // one key a line; empty = no authentication
  std::string tls_cert_file, tls_key_file;   // both: HTTPS; none: plain HTTP
  bool trust_request_chat_template = false;  // requests may bring a chat_template of their own
  bool log_requests = true;                  // a line for each one that asks for tokens
};

// Of the router. Seconds, as the histograms' edges are; edges as "0.1,0.5,1", empty: vLLM's.
struct MetricsConfig {
  std::string ttft_edges_s, tpot_edges_s;
  double ttft_slo_s = 0.5;  // the service level objectives; each must be an edge
  double tpot_slo_s = 0.05;
  bool vllm_aliases = true;  // series also under the names that vLLM gives them
};

struct WorkerConfig {
  std::string model;          // GGUF file or Hugging Face folder
  std::string role = "both";  // prefill, decode, both
  std::string listen = "127.0.0.1:7100";
  std::string worker_id;               // default: the listen address
  std::string metrics_listen;          // host:port of /metrics, /livez, /readyz; empty = off
  std::string device = "cpu";          // cpu, cuda, cuda:N
  std::string zone;                    // where it runs, e.g. an availability zone; empty: not known
  std::string nvlink_clique = "auto";  // auto: as NVML says; else the name, empty for none
  std::string isa = "auto";
  std::string load_format = "auto";     // dummy: random weights from a config.json alone
  double gpu_memory_utilization = 0.9;  // of the GPU: weights, scratch and pages
  bool deterministic = false;      // CUDA: results do not depend on the batch (the CPU's never do)
  std::string cuda_graphs = "on";  // on: captured at start; lazy: at first need; off
  int32_t threads = 0;             // 0 = all cores
  int32_t context_len = 0;         // 0 = the model's
  int64_t drain_timeout_ms = 30000;
  int64_t drain_hand_back_ms = 5000;  // so long before that it hands back what is left
  int64_t loop_max_us = 2000;         // an iteration of the loop longer than this is logged
  int64_t loop_tick_ms = 5;           // longest sleep of the loop: the resolution of its timers
  int64_t loop_linger_us = -1;        // polling for what is about to come; -1: the device's default
  int64_t status_interval_ms = 20;    // STATUS at most so often, when something has changed
  int64_t status_keepalive_ms = 500;  // and at least so often
  int64_t debug_wait_ms = 1000;       // /debug waits so long for the loop's answer
  int64_t stall_timeout_ms = 30000;   // /livez fails after so long without a round of the loop,
                                      // or while one step takes longer
  bool log_debug = false;             // a line for each step and each handoff, and more
  bool vllm_aliases = true;           // "metrics.vllm_aliases", as for the router
  KvConfig kv;
  SchedulerConfig scheduler;
  PrefillConfig prefill;
  DecodeConfig decode;
  KvTransferConfig kvtransfer;
  LinkConfig link;
};

struct RouterConfig {
  std::string model;               // for the tokeniser, chat template and facts
  std::string served_model_name;   // default: the file's or folder's name
  std::string chat_template_file;  // empty: the model's own
  std::string workers;             // host:port, dns:name:port, kube:namespace/service:port; commas
  std::string workers_file;        // more of them, one a line
  int32_t text_threads = 2;
  int32_t text_queue_max = 4096;  // bodies that wait for a text thread; more get 429
  int64_t loop_tick_ms = 10;      // deadlines and retries are checked so often
  int64_t drain_timeout_ms = 30000;
  KubeConfig kube;
  RouteConfig route;
  HttpConfig http;
  MetricsConfig metrics;
  LinkConfig link;
};

}  // namespace baton
