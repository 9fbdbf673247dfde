#include "kvtransfer/mover.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "base/log.h"
#include "kvtransfer/mapped.h"
#include "kvtransfer/nccl.h"
#include "kvtransfer/tcp.h"
#include "kvtransfer/ucx.h"
#include "kvtransfer/ucx_put.h"

namespace baton {
namespace {

// GPU memory is put by UCX itself; host memory, which it cannot put into, travels in messages.
Result<std::unique_ptr<Transport>> make_ucx(const TransportContext& context) {
  if (context.memory.kind() == HandoffMemory::Kind::kCuda) {
    Result<std::unique_ptr<UcxPutTransport>> puts = UcxPutTransport::make(context);
    if (!puts.ok()) return puts.status();
    return std::unique_ptr<Transport>(std::move(*puts));
  }
  Result<std::unique_ptr<UcxTransport>> messages = UcxTransport::make(context);
  if (!messages.ok()) return messages.status();
  return std::unique_ptr<Transport>(std::move(*messages));
}

// NCCL is loaded where it can be of use and not before.
Result<std::unique_ptr<NcclTransport>> make_nccl(const TransportContext& context,
                                                 const KvTransferConfig& config) {
  if (context.memory.kind() != HandoffMemory::Kind::kCuda)
    return unavailable("it moves GPU memory only, the pages are in host memory");
  Result<std::shared_ptr<const NcclApi>> api = load_nccl();
  if (!api.ok()) return api.status();
  return std::make_unique<NcclTransport>(context, std::move(*api), config.nccl_ctas);
}

// Null where this machine cannot do it.
std::unique_ptr<Transport> make_transport(const std::string& name, const TransportContext& context,
                                          const KvTransferConfig& config) {
  if (name == "mapped") return std::make_unique<MappedTransport>(context);
  if (name == "tcp" && context.memory.kind() != HandoffMemory::Kind::kHost) {
    log_warn(
        "transport_unavailable",
        {{"transport", name}, {"reason", "it moves host memory only, the pages are on a GPU"}});
    return nullptr;
  }
  if (name == "tcp") return std::make_unique<TcpTransport>(context);
  if (name == "ucx") {
    Result<std::unique_ptr<Transport>> ucx = make_ucx(context);
    if (ucx.ok()) return std::move(*ucx);
    log_warn("transport_unavailable", {{"transport", name}, {"reason", ucx.status().message()}});
    return nullptr;
  }
  if (name == "nccl") {
    Result<std::unique_ptr<NcclTransport>> nccl = make_nccl(context, config);
    if (nccl.ok()) return std::move(*nccl);
    log_warn("transport_unavailable", {{"transport", name}, {"reason", nccl.status().message()}});
    return nullptr;
  }
  throw ConfigError("kvtransfer.transports: got \"" + name + "\", want mapped, ucx, tcp or nccl");
}

// Those listed, and the one that is required.
std::vector<std::string> wanted(const KvTransferConfig& config) {
  std::vector<std::string> names;
  std::istringstream list(config.transports);
  for (std::string name; std::getline(list, name, ',');) names.push_back(std::move(name));
  const bool listed = std::find(names.begin(), names.end(), config.require) != names.end();
  if (!config.require.empty() && !listed) names.push_back(config.require);
  return names;
}

bool ends_transfer(MoverEvent::Kind kind) {
  return kind == MoverEvent::Kind::kDone || kind == MoverEvent::Kind::kFailed ||
         kind == MoverEvent::Kind::kAborted;
}

}  // namespace

// ---- the inbox ----

void HandoffInbox::post(Command command) {
  {
    std::lock_guard lock(mutex_);
    next_.commands.push_back(std::move(command));
  }
  loop_.wake();
}

void HandoffInbox::step_written(uint64_t step) {
  {
    std::lock_guard lock(mutex_);
    next_.written_step = std::max(next_.written_step, step);
    if (transfers_ == 0) return;
  }
  loop_.wake();
}

void HandoffInbox::add_transfers(int64_t change) {
  std::lock_guard lock(mutex_);
  transfers_ += change;
}

void HandoffInbox::stop() {
  {
    std::lock_guard lock(mutex_);
    next_.stop = true;
  }
  loop_.wake();
}

HandoffInbox::Batch HandoffInbox::take() {
  std::lock_guard lock(mutex_);
  Batch batch{.written_step = next_.written_step, .stop = next_.stop};
  batch.commands.swap(next_.commands);
  return batch;
}

// ---- the mover ----

Mover::Mover(const KvTransferConfig& config, const KvLayout& layout, std::vector<PagePool*> pools,
             const std::string& listen_host, const Clock& clock, Sink sink,
             const Decorator& decorator, std::shared_ptr<CredentialFiles> credentials,
             std::shared_ptr<HandoffMemory> memory)
    : layout_(layout),
      pools_(std::move(pools)),
      sink_(std::move(sink)),
      credentials_(credentials != nullptr ? std::move(credentials)
                                          : std::make_shared<CredentialFiles>(LinkConfig{})),
      memory_(std::move(memory)),
      inbox_(loop_) {
  for (const KvGroup& group : layout_.groups)
    last_layer_ = std::max(last_layer_, group.layers.back());
  const auto report_event = [this](MoverEvent event) { report(std::move(event)); };
  const TransportContext context{loop_,        pools_,
                                 offers_,      grants_,
                                 *memory_,     *credentials_,
                                 listen_host,  config.attach_timeout_ms,
                                 report_event, config.ucx_library};
  std::vector<Transport*> transports;
  for (const std::string& name : wanted(config)) {
    std::unique_ptr<Transport> transport = make_transport(name, context, config);
    if (transport == nullptr) continue;
    if (decorator) transport = decorator(std::move(transport), loop_);
    transports.push_back(transport.get());
    transports_.push_back(std::move(transport));
  }
  if (transports_.empty())
    throw ConfigError("kvtransfer.transports: got \"" + config.transports +
                      "\": none can be used here");
  const auto required = [&](const Transport* one) { return config.require == one->name(); };
  if (!config.require.empty() && std::none_of(transports.begin(), transports.end(), required)) {
    throw ConfigError("kvtransfer.require: got \"" + config.require +
                      "\", which cannot be used here: see the log's transport_unavailable");
  }
  pusher_ = std::make_unique<Pusher>(config, layout_, pools_, std::move(transports),
                                     config.digest ? memory_->make_hasher(pools_) : nullptr, clock,
                                     report_event);
  verifier_ = std::make_unique<PageVerifier>(memory_->make_hasher(pools_), report_event);
  thread_ = std::thread([this] { run(); });
}

Mover::~Mover() {
  inbox_.stop();
  thread_.join();
}

// The handoff thread. What it cannot go on after is an error of the GPU: said once, then the owner
// ends the process. Nothing moves any more meanwhile.
void Mover::run() {
  try {
    serve();
  } catch (const std::exception& error) {
    log_error("handoff_broken", {{"error", error.what()}});
    sink_({.kind = MoverEvent::Kind::kBroken, .error = error.what()});
  }
}

void Mover::serve() {
  for (;;) {
    HandoffInbox::Batch batch = inbox_.take();
    if (batch.stop) return;
    for (const HandoffInbox::Command& command : batch.commands) command();
    pusher_->step_written(batch.written_step);
    bool more = pusher_->pump();
    more |= verifier_->pump();
    loop_.poll(!more);
  }
}

void Mover::report(MoverEvent event) {
  if (event.kind == MoverEvent::Kind::kAttached) {
    log_info("handoff_attached", {{"link", event.link},
                                  {"transport", event.transport},
                                  {"gbps", event.gbps},
                                  {"latency_us", event.latency_us}});
  }
  if (event.kind == MoverEvent::Kind::kAttachFailed) {
    log_warn("handoff_not_attached", {{"link", event.link}, {"reason", event.error}});
  }
  if (ends_transfer(event.kind)) inbox_.transfer_ended();
  sink_(std::move(event));
}

std::string Mover::offer(LinkId link) {
  Offer offer{.keys = offers_.add(link), .pools = geometry_of(pools_)};
  for (const auto& transport : transports_)
    offer.endpoints.push_back({transport->name(), transport->endpoint()});
  return encode_offer(offer);
}

void Mover::allow(LinkId link, uint64_t slot_gen,
                  const std::vector<std::vector<int32_t>>& pages_per_group) {
  grants_.allow(link, slot_gen, pages_per_group);
}

void Mover::disallow(uint64_t slot_gen) {
  grants_.disallow(slot_gen);
}

void Mover::verify(uint64_t slot_gen, const std::vector<std::vector<int32_t>>& pages_per_group,
                   const PagesDigest& want) {
  inbox_.post([this, slot_gen, pages_per_group, want] {
    verifier_->verify(slot_gen, pages_per_group, want);
  });
}

bool Mover::stores_ourselves(const std::string& transport) const {
  return std::any_of(transports_.begin(), transports_.end(), [&](const auto& ours) {
    return transport == ours->name() && ours->stores_ourselves();
  });
}

void Mover::forget(LinkId link) {
  offers_.remove(link);
  inbox_.post([this, link] {
    for (const auto& transport : transports_) transport->forget(link);
  });
}

void Mover::attach(LinkId link, const std::string& offer, Lease lease) {
  inbox_.post(
      [this, link, offer, lease = std::move(lease)] { pusher_->attach(link, offer, lease); });
}

void Mover::detach(LinkId link) {
  inbox_.post([this, link] { pusher_->detach(link); });
}

void Mover::begin(TransferId transfer, LinkId link, uint64_t slot_gen) {
  inbox_.transfer_begun();
  inbox_.post([this, transfer, link, slot_gen] { pusher_->begin(transfer, link, slot_gen); });
}

void Mover::push(const std::vector<PushPage>& pages) {
  inbox_.post([this, pages] { pusher_->push_pages(pages); });
}

void Mover::finish(TransferId transfer, uint64_t last_step) {
  inbox_.post([this, transfer, last_step] { pusher_->finish(transfer, last_step); });
}

void Mover::abort(TransferId transfer) {
  inbox_.post([this, transfer] { pusher_->abort(transfer); });
}

void Mover::layer_written(const StepInput& step, int32_t layer) {
  if (!step.pushes.empty()) {
    inbox_.post([this, pages = step.pushes, layer] { pusher_->push_layer(pages, layer); });
  }
  if (layer == last_layer_) inbox_.step_written(step.step);
}

bool Mover::layers_enqueued(const StepInput& step, std::span<void* const> written) {
  if (!memory_->waits_for_events()) return false;
  std::vector<void*> events(written.begin(), written.end());
  inbox_.post([this, pages = step.pushes, events = std::move(events)] {
    for (size_t layer = 0; layer < events.size(); ++layer) {
      pusher_->push_layer(pages, static_cast<int32_t>(layer), events[layer]);
    }
  });
  inbox_.step_written(step.step);
  return true;
}

std::unique_ptr<PageMover> make_page_mover(const KvTransferConfig& config, const KvLayout& layout,
                                           std::vector<PagePool*> pools,
                                           const std::string& listen_host, const Clock& clock,
                                           PageMover::Sink sink,
                                           std::shared_ptr<CredentialFiles> credentials,
                                           std::shared_ptr<HandoffMemory> memory) {
  if (memory == nullptr) memory = make_host_handoff_memory();
  return std::make_unique<Mover>(config, layout, std::move(pools), listen_host, clock,
                                 std::move(sink), Mover::Decorator{}, std::move(credentials),
                                 std::move(memory));
}

}  // namespace baton
