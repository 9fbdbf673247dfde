#include "kvtransfer/nccl_receiver.h"

#include <cstring>
#include <string>

#include "base/log.h"
#include "kvtransfer/probe.h"

namespace baton {
namespace {

constexpr int64_t kScratchBytes = kProbeSliceBytes * kProbeSlices;

}  // namespace

NcclReceiver::NcclReceiver(const TransportContext& context, std::shared_ptr<const NcclApi> api,
                           int32_t ctas, ScopedFd socket, Events events)
    : context_(context), api_(std::move(api)), ctas_(ctas), events_(std::move(events)) {
  control_ = std::make_unique<MessageStream>(
      context.loop, context.credentials.current()->open(std::move(socket), StreamSide::kAcceptor),
      [this](std::string_view message) { return on_message(message); },
      [this](const Status& reason) { close(reason); });
  timeout_ =
      context.loop.after_ms(context.attach_timeout_ms, [this] { close(unavailable("no hello")); });
}

void NcclReceiver::close(const Status& reason) {
  if (std::exchange(closed_, true)) return;
  // Strangers leave no trace, and an end is on the link's log.
  if (welcomed_ && (!ready_ || reason.code() == Code::kInvalidArgument))
    log_warn("nccl_refused", {{"link", link_}, {"reason", reason.message()}});
  timeout_.reset();
  control_.reset();
  if (pair_ != nullptr) return pair_->end();
  over();
}

void NcclReceiver::over() {
  const std::function<void()> over = events_.over;  // outlives this object
  over();
}

void NcclReceiver::send(NcclMessage kind) {
  WireWriter out;
  out.put(kind);
  control_->send(out.take());
}

Status NcclReceiver::on_message(std::string_view message) {
  WireReader in(message);
  NcclMessage kind{};
  if (!in.get(kind)) return invalid_argument("empty message");
  if (kind == NcclMessage::kHello && !welcomed_) return take_hello(in);
  if (kind == NcclMessage::kJoin && welcomed_ && pair_ == nullptr) return join(in);
  if (kind == NcclMessage::kBatch && ready_) return take_batch(in);
  if (kind == NcclMessage::kMeasured && ready_ && under_way_ == 0) {
    scratch_ = nullptr;
    return {};
  }
  const char* const want = !welcomed_         ? "hello"
                           : pair_ == nullptr ? "join"
                           : ready_           ? "batch, or measured behind the last"
                                              : "none before the communicator is ready";
  return invalid_argument("got message " + std::to_string(static_cast<int>(kind)) + ", want " +
                          want);
}

Status NcclReceiver::take_hello(WireReader in) {
  uint32_t magic = 0;
  uint16_t version = 0;
  Nonce nonce{};
  if (!in.get(magic) || !in.get(version) || !in.get(nonce) || !in.at_end() || magic != kNcclMagic ||
      version != kNcclWireVersion) {
    return invalid_argument("not a hello of this version");
  }
  const std::optional<OfferBook::Found> found = context_.offers.find(nonce);
  if (!found) return invalid_argument("unknown nonce");
  welcomed_ = true;
  link_ = found->link;
  send(NcclMessage::kWelcome);
  return {};
}

Status NcclReceiver::join(WireReader in) {
  NcclId id{};
  if (!in.get(id) || !in.at_end()) return invalid_argument("malformed join");
  Result<HandoffMemory::Created> scratch = context_.memory.create(kScratchBytes);
  if (!scratch.ok()) return scratch.status();
  scratch_ = scratch->memory->data();
  events_.joins(link_);
  const int64_t patience_ms = kNcclPatienceTimeouts * context_.attach_timeout_ms;
  pair_ = std::make_unique<NcclPair>(
      api_, context_.memory, context_.loop,
      NcclPair::Spec{
          .rank = NcclRank::kReceiver, .id = id, .ctas = ctas_, .end_timeout_ms = patience_ms},
      std::move(scratch->memory),
      NcclPair::Events{.ready =
                           [this] {
                             ready_ = true;
                             timeout_.reset();
                             send(NcclMessage::kReady);
                           },
                       .moved = [this](int64_t groups) { on_moved(groups); },
                       .broken = [this](const Status& reason) { close(reason); },
                       .ended = [this] { over(); }});
  timeout_ = context_.loop.after_ms(
      patience_ms, [this] { close(unavailable("the communicator was not made in time")); });
  return {};
}

// ---- batches ----

Status NcclReceiver::take_batch(WireReader in) {
  uint32_t count = 0;
  if (!in.get(count) || count == 0 || count > kNcclBatchSlicesMax)
    return invalid_argument("malformed batch");
  if (under_way_ == kNcclBatchesMax) return invalid_argument("too many batches");
  WireWriter answer;
  answer.put(NcclMessage::kTaken);
  std::vector<NcclMove> taken;
  for (uint32_t i = 0; i < count; ++i) {
    NcclSlice slice;
    if (!in.get(slice)) return invalid_argument("malformed batch");
    const Result<std::byte*> at = address_of(slice);
    if (!at.ok()) return at.status();
    const GrantBoard::Verdict verdict = judge(slice);
    if (verdict == GrantBoard::Verdict::kForbidden) {
      return invalid_argument("page " + std::to_string(slice.page) + " is not in grant " +
                              std::to_string(slice.slot_gen));
    }
    const bool take = verdict == GrantBoard::Verdict::kStored;
    answer.put(static_cast<uint8_t>(take));
    if (take) taken.push_back({*at, slice.bytes});
  }
  if (!in.at_end()) return invalid_argument("malformed batch");
  control_->send(answer.take());
  if (taken.empty()) return {};
  ++under_way_;
  pair_->move(std::move(taken));
  return {};
}

Result<std::byte*> NcclReceiver::address_of(const NcclSlice& slice) const {
  if (slice.group == kNcclProbeGroup) {
    const bool fits = slice.page == 0 && slice.bytes > 0 && slice.offset >= 0 &&
                      slice.offset <= kScratchBytes && slice.bytes <= kScratchBytes - slice.offset;
    if (scratch_ == nullptr || !fits) return invalid_argument("probe outside the scratch memory");
    return scratch_ + slice.offset;
  }
  const Status status =
      check_slice(context_.pools, slice.group, slice.page, slice.offset, slice.bytes);
  if (!status.ok()) return status;
  return context_.pools[slice.group]->page(slice.page) + slice.offset;
}

GrantBoard::Verdict NcclReceiver::judge(const NcclSlice& slice) {
  if (slice.group == kNcclProbeGroup) return GrantBoard::Verdict::kStored;
  return context_.grants.store_if_allowed(link_, slice.slot_gen, slice.group, slice.page, [] {});
}

void NcclReceiver::on_moved(int64_t groups) {
  for (int64_t i = 0; i < groups; ++i) send(NcclMessage::kStored);
  under_way_ -= static_cast<size_t>(groups);
}

}  // namespace baton
