// The pushing side's connections to decode workers: attach, detach, DRAINED_ALL.
#include <algorithm>

#include "prefill/push_side.h"

namespace baton {

void PushSide::on_decode_up(LinkId link, const PeerInfo& peer) {
  DecodePeer& decode = peers_[peer.worker_id];
  decode.link = link;
  decode.attached = false;
  decode.attach_failed = false;
  peer_of_link_[link] = peer.worker_id;
  maybe_drained_all(decode);
}

void PushSide::on_offer(LinkId link, const Attach& offer) {
  const auto it = peer_of_link_.find(link);
  if (it == peer_of_link_.end()) return;
  std::vector<LinkId>& attached = peers_[it->second].detaching;
  if (std::count(attached.begin(), attached.end(), link) != 0) return;  // one offer a link
  attached.push_back(link);
  mover_.attach(link, offer.blob, outbox_.lease(link));
}

void PushSide::on_mover_link(const MoverEvent& event) {
  const auto it = peer_of_link_.find(event.link);
  if (it == peer_of_link_.end()) return;
  DecodePeer& peer = peers_[it->second];
  switch (event.kind) {
    case MoverEvent::Kind::kAttached:
      if (peer.link != event.link) break;
      peer.attached = true;
      peer.transport = event.transport;
      peer.gbps = event.gbps;
      peer.latency_us = event.latency_us;
      tell_peers();
      peer.wanted_since_us = 0;
      outbox_.send(event.link, Attach{.transport = event.transport, .reply = true});
      break;
    case MoverEvent::Kind::kAttachFailed:
      if (peer.link != event.link) break;
      peer.attached = false;
      if (watch_ != nullptr) watch_->attach_failed();
      tell_peers();
      peer.attach_failed = true;  // until the next link: a fresh connection brings a fresh offer
      peer.error = event.error;
      outbox_.close(event.link, "no transport: " + event.error);
      break;
    case MoverEvent::Kind::kDetached:
      std::erase(peer.detaching, event.link);
      peer_of_link_.erase(it);
      maybe_drained_all(peer);
      break;
    default:
      break;
  }
  pump();
}

// Once the last copy over every earlier connection has ended, D may reuse whatever it had granted
// on them: this covers GRANTs, COMMITs and ACKs that were lost with a connection.
void PushSide::maybe_drained_all(DecodePeer& peer) {
  const bool copies_may_run = std::any_of(peer.detaching.begin(), peer.detaching.end(),
                                          [&](LinkId link) { return link != peer.link; });
  if (peer.link != 0 && !copies_may_run) outbox_.send(peer.link, DrainedAll{});
}

void PushSide::on_link_down(LinkId link) {
  const auto it = peer_of_link_.find(link);
  if (it == peer_of_link_.end()) return;
  DecodePeer& peer = peers_[it->second];
  if (peer.link == link) {
    peer.link = 0;
    peer.attached = false;
    peer.wanted_since_us = 0;
    tell_peers();
  }
  const bool was_attached =
      std::find(peer.detaching.begin(), peer.detaching.end(), link) != peer.detaching.end();
  if (was_attached) {
    mover_.detach(link);  // kFailed for each of its transfers, then kDetached
  } else {
    peer_of_link_.erase(it);
  }
  for (const AttemptId& id :
       ids_where([&](const Handoff& h) { return h.link == link && h.state != State::kQueued; })) {
    lost_decode(*find(id));
  }
  pump();
}

void PushSide::tell_peers() const {
  if (watch_ == nullptr) return;
  std::vector<AttachedPeer> attached;
  for (const auto& [name, peer] : peers_) {
    if (peer.attached) attached.push_back({name, peer.transport, peer.gbps, peer.latency_us});
  }
  watch_->peers_changed(attached);
}

std::string PushSide::transport_of(LinkId link) const {
  const auto name = peer_of_link_.find(link);
  const auto peer = name == peer_of_link_.end() ? peers_.end() : peers_.find(name->second);
  return peer == peers_.end() ? "" : peer->second.transport;
}

void PushSide::forget_peers() {
  const int64_t unused_us = config_.peer_unused_ms * 1000;
  for (auto it = peers_.begin(); it != peers_.end();) {
    const DecodePeer& peer = it->second;
    // pump() asks for the candidates of all that wait, many times a minute.
    if (peer.link != 0 || !peer.detaching.empty() || clock_.now_us() - peer.used_us < unused_us) {
      ++it;
      continue;
    }
    outbox_.disconnect(it->first);
    it = peers_.erase(it);
  }
}

void PushSide::lost_decode(Handoff& handoff) {
  const AttemptId id = handoff.id;
  switch (handoff.state) {
    case State::kReserving:
      if (handoff.cancelled) {
        erase(id);
      } else if (next_candidate(handoff, "lost the decode worker")) {
        enqueue(handoff);
      }
      break;
    case State::kGranted:
    case State::kPrefilling:
    case State::kTransferring:
      routers_.send(id.id, failed(id, "lost the decode worker"));
      if (watch_ != nullptr) watch_->handoff_failed();
      stop(handoff);
      break;
    case State::kCommitted:  // D has it or has told the router; either way nothing of ours is left
      erase(id);
      break;
    case State::kQueued:
    case State::kDraining:
    case State::kLocal:
      break;
  }
}

}  // namespace baton
