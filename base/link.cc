#include "base/link.h"

#include "base/link_loop.h"

namespace baton {

class Links::Impl : public LinkLoop {
  using LinkLoop::LinkLoop;
};

Links::Links(const LinkConfig& config, PeerInfo self, const std::string& listen, const Clock& clock,
             Sink sink, std::shared_ptr<CredentialFiles> credentials)
    : impl_(std::make_unique<Impl>(config, std::move(self),
                                   credentials != nullptr
                                       ? std::move(credentials)
                                       : std::make_shared<CredentialFiles>(config),
                                   listen, clock, std::move(sink))) {}

Links::~Links() = default;

void Links::send(LinkId link, Message message) {
  impl_->post(LinkLoop::Send{link, std::move(message)});
}

void Links::close(LinkId link, const std::string& reason) {
  impl_->post(LinkLoop::Close{link, reason});
}

void Links::connect(const std::string& address) {
  impl_->post(LinkLoop::Connect{address});
}

void Links::disconnect(const std::string& address) {
  impl_->post(LinkLoop::Disconnect{address});
}

void Links::release(const std::string& address) {
  impl_->post(LinkLoop::Release{address});
}

void Links::linger(std::chrono::microseconds duration) {
  impl_->linger(duration);
}

LinkStats Links::stats() const {
  return impl_->stats();
}

Lease Links::lease(LinkId link) const {
  return impl_->lease(link);
}

int32_t Links::port() const {
  return impl_->port();
}

}  // namespace baton
