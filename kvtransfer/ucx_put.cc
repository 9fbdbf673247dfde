#include "kvtransfer/ucx_put.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "kvtransfer/ucx_environment.h"
#include "kvtransfer/ucx_put_route.h"
#include "kvtransfer/wire.h"

namespace baton {
namespace {

constexpr int32_t kProgressTurnsMax = 256;  // between two looks at the other sockets
// UCX promises no wake-up by the end of a put of every transport; while one is under way it is
// looked at so often.
constexpr int64_t kLookAgainMs = 1;
constexpr const char* kOneHost = "cuda_ipc,cuda_copy,posix,self";
// Not dc: destroying our end of it would not keep a peer's puts out.
constexpr const char* kWithNic = "cuda_ipc,cuda_copy,posix,self,rc";

bool has_nic() {
  std::error_code ignored;
  return std::filesystem::directory_iterator("/sys/class/infiniband", ignored) !=
         std::filesystem::directory_iterator();
}

std::string read_boot_id() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return boot_id;
}

MoverEvent peer_dead(LinkId link) {
  return {.kind = MoverEvent::Kind::kPeerDead, .link = link, .transport = "ucx"};
}

// UCX's cuda_ipc exports plain allocations, and VMM ones by fabric handles; by file descriptors
// only where UCX was built on a system that has pidfd_getfd, which its wheels are not.
Status check_pools(const std::vector<PagePool*>& pools) {
  for (const PagePool* pool : pools) {
    for (const Slab& slab : pool->slabs()) {
      if (!slab.fd.valid() || slab.fabric_handle) continue;
      return unavailable(
          "the pages are in slabs that UCX cannot share; with kvtransfer.require = ucx they are in "
          "one allocation that it can");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<UcxPutTransport>> UcxPutTransport::make(const TransportContext& context) {
  const UcxVariables variables = check_ucx_environment(environ);
  if (!variables.status.ok()) return variables.status;
  for (const std::string& name : variables.no_effect) {
    log_warn("ucx_variable_ignored", {{"name", name}, {"reason", "the worker sets it itself"}});
  }
  const bool far = has_nic();
  if (!far) {
    const Status status = check_pools(context.pools);
    if (!status.ok()) return status;
  }
  Result<std::shared_ptr<const UcxLibrary>> library = load_ucx(context.ucx_library);
  if (!library.ok()) return library.status();
  return make(
      context,
      {.library = std::move(*library), .transports = far ? kWithNic : kOneHost, .far = far});
}

Result<std::unique_ptr<UcxPutTransport>> UcxPutTransport::make(const TransportContext& context,
                                                               const Options& options) {
  Result<std::unique_ptr<UcxWorker>> serving = UcxWorker::make(
      options.library, {.transports = options.transports, .puts = options.emulated_puts});
  if (!serving.ok()) return serving.status();
  Result<std::unique_ptr<UcxWorker>> pushing =
      UcxWorker::make(options.library, {.transports = options.transports, .puts = true});
  if (!pushing.ok()) return pushing.status();
  std::unique_ptr<UcxPutTransport> transport(
      new UcxPutTransport(context, options, std::move(*serving), std::move(*pushing)));
  if (transport->on_gpu_ && !transport->serving_->knows_gpu_memory()) {
    return unavailable(std::string("UCX ") + options.library->get_version_string() +
                       " has no CUDA modules; kvtransfer.ucx_library names another");
  }
  const Status status = transport->share_memory();
  if (!status.ok()) return status;
  return transport;
}

UcxPutTransport::UcxPutTransport(const TransportContext& context, const Options& options,
                                 std::unique_ptr<UcxWorker> serving,
                                 std::unique_ptr<UcxWorker> pushing)
    : context_(context),
      far_(options.far),
      on_gpu_(context.memory.kind() == HandoffMemory::Kind::kCuda),
      serving_(std::move(serving)),
      pushing_(std::move(pushing)),
      boot_id_(options.boot_id.empty() ? read_boot_id() : options.boot_id),
      notes_(context.loop, context.offers,
             [report = context.report](LinkId link) { report(peer_dead(link)); }) {
  WireWriter out;
  out.put_string(serving_->ucx().get_version_string());
  out.put_string(boot_id_);
  out.put_string(notes_.socket_name());
  out.put_string(serving_->address());
  endpoint_ = out.take();
  serving_->set_receiver(kPutHello,
                         [this](auto header, auto payload) { on_hello(header, payload); });
  serving_->set_receiver(kPutCheck, [this](auto header, auto) { on_check(header); });
  for (const uint16_t message : {kPutWelcome, kPutChecked, kPutGoodbye}) {
    pushing_->set_receiver(message, [this, message](auto header, auto payload) {
      WireReader in(header);
      uint64_t route = 0;
      if (!in.get(route)) return;
      const auto it = routes_.find(route);
      if (it != routes_.end()) it->second->on_message(message, in, payload);
    });
  }
  const auto nothing = [](uint32_t) {};  // before_sleep() does the work
  serving_watch_ = context_.loop.watch(serving_->event_fd(), EPOLLIN, nothing);
  pushing_watch_ = context_.loop.watch(pushing_->event_fd(), EPOLLIN, nothing);
  sleep_hook_ = context_.loop.before_sleep([this] { return before_sleep(); });
}

UcxPutTransport::~UcxPutTransport() {
  // One by one: closing an endpoint makes progress, which may look the others up.
  while (!connections_.empty()) connections_.erase(connections_.begin());
}

Status UcxPutTransport::share_memory() {
  Result<std::unique_ptr<SharedMemory>> scratch = context_.memory.allocate(kUcxScratchBytes);
  if (!scratch.ok()) return scratch.status();
  scratch_ = std::move(*scratch);
  if (context_.memory.waits_for_events()) {
    gate_ = context_.memory.make_marked_stream([this] {
      passed_.fetch_add(1);
      context_.loop.wake();
    });
  }
  for (auto& [worker, memory] :
       {std::pair(serving_.get(), &scratch_target_), std::pair(pushing_.get(), &scratch_source_)}) {
    Result<std::unique_ptr<UcxMemory>> made =
        UcxMemory::make(*worker, scratch_->data(), kUcxScratchBytes, on_gpu_);
    if (!made.ok()) return made.status();
    *memory = std::move(*made);
  }
  Result<std::string> key = scratch_target_->pack_key();
  if (!key.ok()) return key.status();
  scratch_key_ = std::move(*key);
  const Status status = register_pools(*serving_, targets_);
  if (!status.ok()) return status;
  for (const auto& slabs : targets_) {
    std::vector<std::string>& keys = keys_.emplace_back();
    for (const std::unique_ptr<UcxMemory>& slab : slabs) {
      key = slab->pack_key();
      if (!key.ok()) return key.status();
      keys.push_back(std::move(*key));
    }
  }
  return {};
}

Status UcxPutTransport::register_pools(UcxWorker& worker, Memories& memories) {
  memories.resize(context_.pools.size());
  for (size_t group = 0; group < memories.size(); ++group) {
    for (const Slab& slab : context_.pools[group]->slabs()) {
      Result<std::unique_ptr<UcxMemory>> memory =
          UcxMemory::make(worker, slab.base, slab.bytes, on_gpu_);
      if (!memory.ok()) return memory.status();
      memories[group].push_back(std::move(*memory));
    }
  }
  return {};
}

// ---- the loop ----

bool UcxPutTransport::progress() {
  bool busy = false;
  for (UcxWorker* const worker : {serving_.get(), pushing_.get()}) {
    for (int32_t turn = 0; turn < kProgressTurnsMax && worker->progress(); ++turn) busy = true;
  }
  return busy;
}

// UCX's rule for sleeping on its descriptors: progress until nothing is left, then arm.
bool UcxPutTransport::before_sleep() {
  if (gate_ != nullptr && !std::exchange(gpu_is_current_, true)) gate_->use_in_this_thread();
  last_event_ = nullptr;
  bool busy = progress();
  std::erase_if(hellos_, [this](const Hello& hello) { return settle_hello(hello); });
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool broken = it->second.broken;
    if (broken) say(it->second, kPutGoodbye);
    it = broken ? connections_.erase(it) : std::next(it);
    busy |= broken;  // closing makes progress, which may have broken another one
  }
  bool under_way = false;
  for (const auto& [id, route] : routes_) {
    busy |= route->turn();
    under_way |= route->puts_under_way();
  }
  look_again_.reset();
  if (busy) return false;
  if (under_way || !hellos_.empty()) look_again_ = context_.loop.after_ms(kLookAgainMs, [] {});
  return serving_->arm() && pushing_->arm();
}

int64_t UcxPutTransport::mark_behind(void* event) {
  if (event != last_event_) {
    gate_->wait_for(event);
    gate_->mark();
    ++marks_;
    last_event_ = event;
  }
  return marks_;
}

// ---- D ----

void UcxPutTransport::on_hello(std::string_view header, std::string_view payload) {
  WireReader in(header);
  Hello hello;
  uint16_t version = 0;
  Nonce nonce{};
  std::string boot_id;
  if (!in.get(version) || version != kUcxPutVersion || !in.get(nonce) || !in.get(hello.route) ||
      !in.get_string(boot_id) || !in.at_end())
    return;
  const std::optional<OfferBook::Found> found = context_.offers.find(nonce);
  if (!found || connections_.size() + hellos_.size() >= kUcxSlots) return;
  hello.found = *found;
  hello.address = payload;
  hello.far = boot_id != boot_id_;
  hellos_.push_back(std::move(hello));
}

bool UcxPutTransport::settle_hello(const Hello& hello) {
  if (hello.far ? !far_ : !notes_.has(hello.found.link)) {
    // Its note comes by another way, and may come later.
    return hello.far || hello.since.elapsed_us() > 1e3 * double(context_.attach_timeout_ms);
  }
  welcome(hello);
  return true;
}

void UcxPutTransport::welcome(const Hello& hello) {
  // One connection a link: a second hello would be somebody else's, or a mistake.
  const auto taken = [this](auto matches) {
    return std::any_of(connections_.begin(), connections_.end(),
                       [&](const auto& entry) { return matches(entry.second); });
  };
  if (taken([&](const Connection& one) { return one.link == hello.found.link; })) return;
  const uint64_t id = next_connection_++;
  Result<std::unique_ptr<UcxEndpoint>> endpoint =
      UcxEndpoint::connect(*serving_, hello.address, [this, id](const std::string&) {
        if (const auto it = connections_.find(id); it != connections_.end())
          it->second.broken = true;
      });
  if (!endpoint.ok()) return;
  uint32_t slot = 0;
  while (taken([&](const Connection& one) { return one.slot == slot; })) ++slot;
  Connection& connection = connections_[id];
  connection = {hello.found.link, hello.found.keys,    hello.route, slot,
                /*broken=*/false, std::move(*endpoint)};
  WireWriter out;
  out.put(connection.route);
  out.put(connection.keys.proof);
  out.put(id);
  // Kept until it has been sent; a send that fails is the connection's end.
  const auto header = std::make_shared<const std::string>(out.take());
  const auto payload = std::make_shared<const std::string>(welcome_payload(slot));
  (void)connection.endpoint->send(kPutWelcome, *header, *payload, [header, payload] {});
}

std::string UcxPutTransport::welcome_payload(uint32_t slot) const {
  WireWriter out;
  out.put(slot);
  out.put(scratch_target_->address());
  out.put_string(scratch_key_);
  for (size_t group = 0; group < targets_.size(); ++group) {
    for (size_t slab = 0; slab < targets_[group].size(); ++slab) {
      out.put(targets_[group][slab]->address());
      out.put_string(keys_[group][slab]);
    }
  }
  return out.take();
}

void UcxPutTransport::on_check(std::string_view header) {
  WireReader in(header);
  uint64_t id = 0;
  Nonce nonce{};
  Nonce want{};
  if (!in.get(id) || !in.get(nonce) || !in.get(want) || !in.at_end()) return;
  const auto it = connections_.find(id);
  if (it == connections_.end() || it->second.keys.connect != nonce) return;
  Connection& connection = it->second;
  Nonce seen{};
  const Status read = context_.memory.read(
      seen.data(), scratch_->data() + connection.slot * kUcxSlotBytes, seen.size());
  if (read.ok() && seen == want) return say(connection, kPutChecked);
  log_warn("ucx_refused",
           {{"link", connection.link},
            {"reason", read.ok() ? "the peer's store is not in our memory" : read.message()}});
  connection.broken = true;
}

void UcxPutTransport::say(Connection& connection, UcxPutMessage message) {
  WireWriter out;
  out.put(connection.route);
  out.put(connection.keys.proof);
  connection.endpoint->send_small(message, out.take());
}

void UcxPutTransport::forget(LinkId link) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool gone = it->second.link == link;
    if (gone) say(it->second, kPutGoodbye);
    it = gone ? connections_.erase(it) : std::next(it);
  }
  notes_.forget(link);
}

// ---- P ----

Result<std::unique_ptr<Route>> UcxPutTransport::connect(LinkId link, const Offer& offer,
                                                        const std::string& address,
                                                        RouteOwner& owner) {
  WireReader in(address);
  std::string version, boot_id, socket_name, worker_address;
  if (!in.get_string(version) || !in.get_string(boot_id) || !in.get_string(socket_name) ||
      !in.get_string(worker_address) || !in.at_end())
    return invalid_argument("malformed address");
  const std::string ours = pushing_->ucx().get_version_string();
  if (version != ours) return unavailable("the peer has version " + version + ", we have " + ours);
  if (boot_id != boot_id_ && !far_)
    return unavailable("the peer is on another host, and there is no NIC that reaches it");
  if (boot_id == boot_id_) {
    const Status left = DeathNotes::leave(socket_name, offer.keys.connect);
    if (!left.ok()) return left;
  }
  if (sources_.empty()) {
    const Status registered = register_pools(*pushing_, sources_);
    if (!registered.ok()) return registered;
  }
  return UcxPutRoute::connect(*this, link, offer, worker_address, owner);
}

const UcxMemory& UcxPutTransport::source_of(const Slice& slice) const {
  const auto group = static_cast<size_t>(slice.group);
  const PagePool& pool = *context_.pools[group];
  const int64_t slab_bytes = pool.pages_per_slab() * pool.page_bytes();
  return *sources_[group][static_cast<size_t>((slice.src - pool.base()) / slab_bytes)];
}

}  // namespace baton
