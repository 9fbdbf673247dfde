// Transport "tcp": slices in frames over a connection of our own; D stores them itself, only into
// granted pages, and acknowledges each after it is stored. P's copies complete by that
// acknowledgement.
//
// P sends kHelloBytes: u32 magic, u16 version, u16 0, nonce. D answers one byte kWelcome, or
// closes. P then sends frames (TcpFrame, then `bytes` of payload); D answers one byte a frame, in
// their order: kStored or kGivenUp (that grant is over, the bytes were dropped). A frame that no
// protocol could send closes the connection. Group kProbeGroup is the measurement: stored nowhere.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/data_listener.h"
#include "kvtransfer/transport.h"

namespace baton {

inline constexpr uint32_t kTcpMagic = 0x544e5442;  // "BTNT"
inline constexpr uint16_t kTcpVersion = 1;
inline constexpr size_t kHelloBytes = 8 + sizeof(Nonce);
inline constexpr int32_t kProbeGroup = -1;

enum class TcpAnswer : uint8_t { kWelcome = 1, kStored, kGivenUp };

struct TcpFrame {
  uint64_t slot_gen = 0;
  int64_t offset = 0;  // in the page
  int64_t bytes = 0;
  int32_t group = 0;
  int32_t page = 0;  // D's
};
static_assert(sizeof(TcpFrame) == 32);

class TcpReceiver;

// D's listener and connections, and P's connect(). Construction throws ConfigError when it cannot
// listen.
class TcpTransport final : public Transport {
 public:
  // Listens on context.listen_host, any port.
  explicit TcpTransport(const TransportContext& context);
  ~TcpTransport() override;
  const char* name() const override { return "tcp"; }
  bool stores_ourselves() const override { return true; }
  std::string endpoint() const override { return listener_.endpoint(); }
  void forget(LinkId link) override;
  Result<std::unique_ptr<Route>> connect(LinkId link, const Offer& offer,
                                         const std::string& address, RouteOwner& owner) override;

 private:
  void on_accept(ScopedFd socket);
  void serve(uint64_t id);

  const TransportContext context_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<TcpReceiver>> receivers_;
  DataListener listener_;
};

}  // namespace baton
