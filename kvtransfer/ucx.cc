#include "kvtransfer/ucx.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/log.h"
#include "kvtransfer/ucx_environment.h"
#include "kvtransfer/ucx_route.h"
#include "kvtransfer/wire.h"

namespace baton {
namespace {

constexpr size_t kConnectionsMax = 1024;
constexpr int32_t kProgressTurnsMax = 256;  // between two looks at the other sockets

// Shared memory reaches as far as one boot of one kernel; UCX itself would log an error about an
// address from elsewhere. Versions of UCX promise each other nothing.
std::string host_and_version(const UcxLibrary& ucx) {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return boot_id + " " + ucx.get_version_string();
}

}  // namespace

Result<std::unique_ptr<UcxTransport>> UcxTransport::make(const TransportContext& context) {
  const UcxVariables variables = check_ucx_environment(environ);
  if (!variables.status.ok()) return variables.status;
  for (const std::string& name : variables.no_effect) {
    log_warn("ucx_variable_ignored", {{"name", name}, {"reason", "the worker sets it itself"}});
  }
  Result<std::unique_ptr<UcxWorker>> worker = UcxWorker::make({.library = context.ucx_library});
  if (!worker.ok()) return worker.status();
  return std::unique_ptr<UcxTransport>(new UcxTransport(context, std::move(*worker)));
}

UcxTransport::UcxTransport(const TransportContext& context, std::unique_ptr<UcxWorker> worker)
    : context_(context), worker_(std::move(worker)) {
  WireWriter out;
  out.put_string(host_and_version(worker_->ucx()));
  out.put_string(worker_->address());
  endpoint_ = out.take();
  worker_->set_receiver(kUcxHello,
                        [this](auto header, auto payload) { on_hello(header, payload); });
  worker_->set_receiver(kUcxPiece,
                        [this](auto header, auto payload) { on_piece(header, payload); });
  for (const uint16_t message : {kUcxWelcome, kUcxAnswers, kUcxGoodbye}) {
    worker_->set_receiver(message, [this, message](std::string_view header, std::string_view) {
      WireReader in(header);
      uint64_t route = 0;
      if (!in.get(route)) return;
      const auto it = routes_.find(route);
      if (it != routes_.end()) it->second->on_message(message, in);
    });
  }
  watch_ = context_.loop.watch(worker_->event_fd(), EPOLLIN,
                               [](uint32_t) {});  // before_sleep() does the work
  sleep_hook_ = context_.loop.before_sleep([this] { return before_sleep(); });
}

UcxTransport::~UcxTransport() {
  // One by one: closing an endpoint makes progress, which may look the others up.
  while (!connections_.empty()) connections_.erase(connections_.begin());
}

// UCX's rule for sleeping on its descriptor: progress until nothing is left, then arm.
bool UcxTransport::before_sleep() {
  bool busy = false;
  for (int32_t turn = 0; turn < kProgressTurnsMax && worker_->progress(); ++turn) busy = true;
  for (const Hello& hello : std::exchange(hellos_, {})) welcome(hello);
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool broken = it->second.broken;
    broken ? close(it->second) : send_answers(it->second);
    it = broken ? connections_.erase(it) : std::next(it);
    busy |= broken;  // closing makes progress, which may have told our routes something
  }
  return !busy && worker_->arm();
}

// ---- D ----

void UcxTransport::on_hello(std::string_view header, std::string_view payload) {
  WireReader in(header);
  Hello hello;
  Nonce nonce{};
  if (!in.get(nonce) || !in.get(hello.route) || !in.at_end()) return;
  const std::optional<OfferBook::Found> found = context_.offers.find(nonce);
  if (!found || connections_.size() + hellos_.size() >= kConnectionsMax) return;
  hello.found = *found;
  hello.address = payload;
  hellos_.push_back(std::move(hello));
}

void UcxTransport::welcome(const Hello& hello) {
  // One connection a link: a second hello would be somebody else's, or a mistake.
  const bool taken = std::any_of(connections_.begin(), connections_.end(), [&](const auto& entry) {
    return entry.second.link == hello.found.link;
  });
  if (taken) return;
  const uint64_t id = next_connection_++;
  Result<std::unique_ptr<UcxEndpoint>> endpoint =
      UcxEndpoint::connect(*worker_, hello.address, [this, id](const std::string&) {
        if (const auto it = connections_.find(id); it != connections_.end())
          it->second.broken = true;
      });
  if (!endpoint.ok()) return;
  Connection& connection = connections_[id];
  connection = {hello.found.link, hello.found.keys, hello.route, false, {}, std::move(*endpoint)};
  WireWriter out;
  out.put(connection.route);
  out.put(connection.keys.proof);
  out.put(id);
  connection.endpoint->send_small(kUcxWelcome, out.take());
}

void UcxTransport::close(Connection& connection) {
  WireWriter out;
  out.put(connection.route);
  out.put(connection.keys.proof);
  connection.endpoint->send_small(kUcxGoodbye, out.take());
}

void UcxTransport::forget(LinkId link) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool gone = it->second.link == link;
    if (gone) close(it->second);
    it = gone ? connections_.erase(it) : std::next(it);
  }
}

void UcxTransport::on_piece(std::string_view header, std::string_view payload) {
  WireReader in(header);
  uint64_t id = 0;
  Nonce nonce{};
  UcxPiece piece;
  if (!in.get(id) || !in.get(nonce) || !in.get(piece) || !in.at_end()) return;
  const auto it = connections_.find(id);
  if (it == connections_.end() || it->second.broken || it->second.keys.connect != nonce) return;
  Connection& connection = it->second;
  const GrantBoard::Verdict verdict = store(connection, piece, payload);
  if (verdict == GrantBoard::Verdict::kForbidden) {
    log_warn("ucx_refused", {{"link", connection.link},
                             {"reason", "page " + std::to_string(piece.page) + " of kv_group " +
                                            std::to_string(piece.group) + " is not in grant " +
                                            std::to_string(piece.slot_gen)}});
    connection.broken = true;
    return;
  }
  connection.answers.push_back({piece.number, verdict == GrantBoard::Verdict::kStored});
  if (connection.answers.size() == kUcxAnswersMax) send_answers(connection);
}

// Many pieces, one message: the peer is woken once.
void UcxTransport::send_answers(Connection& connection) {
  if (connection.answers.empty()) return;
  WireWriter out;
  out.put(connection.route);
  out.put(connection.keys.proof);
  for (const UcxAnswer& answer : connection.answers) out.put(answer);
  connection.answers.clear();
  connection.endpoint->send_small(kUcxAnswers, out.take());
}

GrantBoard::Verdict UcxTransport::store(const Connection& connection, const UcxPiece& piece,
                                        std::string_view bytes) {
  if (piece.group == kUcxProbeGroup) return GrantBoard::Verdict::kStored;
  const Status status = check_slice(context_.pools, piece.group, piece.page, piece.offset,
                                    static_cast<int64_t>(bytes.size()));
  if (!status.ok()) return GrantBoard::Verdict::kForbidden;
  std::byte* const to = context_.pools[piece.group]->page(piece.page) + piece.offset;
  return context_.grants.store_if_allowed(connection.link, piece.slot_gen, piece.group, piece.page,
                                          [&] { std::memcpy(to, bytes.data(), bytes.size()); });
}

// ---- P ----

Result<std::unique_ptr<Route>> UcxTransport::connect(LinkId link, const Offer& offer,
                                                     const std::string& address,
                                                     RouteOwner& owner) {
  WireReader in(address);
  std::string host;
  std::string worker_address;
  if (!in.get_string(host) || !in.get_string(worker_address) || !in.at_end())
    return invalid_argument("malformed address");
  if (host != host_and_version(worker_->ucx()))
    return unavailable("the peer is on another host, or has another version of UCX");
  return UcxRoute::connect(*this, link, offer, worker_address, owner);
}

}  // namespace baton
