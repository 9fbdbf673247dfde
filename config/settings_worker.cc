// The settings of baton-worker.
#include "config/settings_table.h"

namespace baton {
namespace {

void add_kv(SettingTable& table, KvConfig& values) {
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

void add_scheduler(SettingTable& table, SchedulerConfig& values) {
  using C = SchedulerConfig;
  add<C>(
      table, "scheduler", values,
      {
          {"step_tokens",
           &C::step_tokens,
           "tokens",
           {0, kMiB},
           "Most tokens of one step, decodes and prefill chunks together; 0: 512 on CPU, 8192 on "
           "a GPU."},
          {"chunk_tokens",
           &C::chunk_tokens,
           "tokens",
           {0, kMiB},
           "Largest prefill chunk of one sequence in a step; 0: 256 on CPU, on a GPU what the step "
           "has room for."},
          {"mixed_tokens",
           &C::mixed_tokens,
           "tokens",
           {0, kMiB},
           "Most tokens of prompts in a step that has decodes, which wait for them; 0: 256 on a "
           "GPU, on CPU no bound of its own."},
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

void add_prefill(SettingTable& table, PrefillConfig& values) {
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

void add_decode(SettingTable& table, DecodeConfig& values) {
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

void add_kvtransfer(SettingTable& table, KvTransferConfig& values) {
  using C = KvTransferConfig;
  add<C>(table, "kvtransfer", values,
         {
             {"transports", &C::transports, "", kAny,
              "Ways to move pages, best first, separated by commas: mapped, ucx, tcp, nccl."},
             {"min_gbps",
              &C::min_gbps,
              "GB/s",
              {0, 10000},
              "A slower transport is refused at connect; 0: none is."},
             {"require",
              &C::require,
              "",
              {0, 0, "mapped ucx tcp nccl loopback"},
              "Only this transport, listed or not; empty: any that is listed."},
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
             {"nccl_ctas",
              &C::nccl_ctas,
              "multiprocessors",
              {1, 64},
              "CUDA, transport nccl: most that its kernels take of a GPU, at each end of a pair."},
             {"ucx_library", &C::ucx_library, "", kAny,
              "Path of the libucp.so.0 that transport ucx loads; empty: the one that the system's "
              "loader finds. For GPU memory: one with CUDA modules, as in the wheel libucx-cu13 "
              "(tested: 1.22)."},
         });
}

}  // namespace

std::vector<Setting> settings_of(WorkerConfig& values) {
  using C = WorkerConfig;
  SettingTable table;
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
          {"loop_linger_us",
           &C::loop_linger_us,
           "us",
           {-1, 10'000},
           "After a message, and when a prompt that is being handed over is about to end, the "
           "threads that come next poll instead of sleeping, so long at most; -1: 1000 on a GPU "
           "with 8 processors and more, else 0."},
          {"status_interval_ms", &C::status_interval_ms, "ms", kWaitMs,
           "Routers are told of changes at most so often."},
          {"status_keepalive_ms", &C::status_keepalive_ms, "ms", kWaitMs,
           "And without a change so often."},
          {"debug_wait_ms", &C::debug_wait_ms, "ms", kWaitMs,
           "Longest wait of /debug for the loop's answer."},
          {"stall_timeout_ms", &C::stall_timeout_ms, "ms", kWaitMs,
           "/livez fails when a round of the loop or a step of the engine takes longer; a worker "
           "that "
           "leaves waits so long for its threads, then ends without them."},
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

}  // namespace baton
