// A worker process: builds the parts in the order of the data, then runs the one loop.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/link.h"
#include "base/status_server.h"
#include "config/config.h"
#include "kvtransfer/page_mover.h"
#include "model/engine.h"
#include "scheduler/scheduler.h"
#include "worker/core.h"
#include "worker/engine_thread.h"
#include "worker/inbox.h"
#include "worker/startup.h"
#include "worker/worker_metrics.h"

namespace baton {

class WorkerProcess {
 public:
  // Loads the model, maps the pools, starts the threads and listens. Throws ConfigError, one line.
  explicit WorkerProcess(WorkerConfig config);
  ~WorkerProcess();

  // The loop. Returns when drained after stop(), or at drain_timeout_ms. 0: all was served; 1: the
  // engine or the handoff thread broke, or the drain ran out of time.
  int run();
  // Thread-safe: drain and leave.
  void stop() { inbox_.push(DrainWish{}); }

 private:
  // The engine is made before the mover that it tells of each layer.
  struct LateSink final : LayerSink {
    void layer_written(const StepInput& step, int32_t layer) override {
      if (sink != nullptr) sink->layer_written(step, layer);
    }
    bool layers_enqueued(const StepInput& step, std::span<void* const> written) override {
      return sink != nullptr && sink->layers_enqueued(step, written);
    }
    LayerSink* sink = nullptr;
  };

  void linger();
  std::vector<PagePool*> pools() const;
  PeerInfo self() const;
  std::unique_ptr<StatusServer> serve_status();
  std::string clique() const;
  WorkerInfo info() const;
  // The status server's thread. It answers while the model is being loaded too, when the parts
  // below the server are not there yet: startup_ says.
  StatusReply answer(const std::string& path);
  StatusReply answer_of_started(const std::string& path);
  StatusReply debug(const std::string& path);
  bool alive() const;

  // In the order in which they are made; the threads end first.
  WorkerConfig config_;
  const Epoch epoch_;
  SystemClock clock_;
  Inbox inbox_;
  LateSink layer_sink_;
  Startup startup_;
  std::shared_ptr<CredentialFiles> credentials_;
  std::unique_ptr<StatusServer> status_server_;
  LoadedModel model_;
  PageLedger ledger_;
  PrefixCache prefix_cache_;
  Scheduler scheduler_;
  WorkerMetrics metrics_;
  std::atomic<bool> ready_{false};
  std::atomic<int64_t> round_us_{0};         // when the loop last came round
  std::atomic<int64_t> step_running_us_{0};  // how long the step had taken by then
  std::unique_ptr<PageMover> mover_;
  std::unique_ptr<EngineThread> engine_thread_;
  std::unique_ptr<Links> links_;
  std::unique_ptr<WorkerCore> core_;
  std::string info_;  // of /info; fixed once started
};

}  // namespace baton
