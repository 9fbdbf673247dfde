// UCX behind plain C++: one context and worker of active messages over POSIX shared memory, its
// endpoints, its sleep. Handoff thread only, but for construction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kvtransfer/ucx_library.h"

namespace baton {

// Largest payload of one message: with its header it fits one segment of shared memory (a segment's
// length is 16 bits wide in UCX 1.13, and a message of several segments is put together in another
// buffer first).
inline constexpr int64_t kUcxPayloadBytesMax = 60 << 10;

class UcxWorker {
 public:
  using Receiver = std::function<void(std::string_view header, std::string_view payload)>;

  // Reports why where UCX cannot be used here: no shared memory, or none with error handling.
  static Result<std::unique_ptr<UcxWorker>> make();
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  const UcxLibrary& ucx() const { return *ucx_; }
  const std::string& address() const { return address_; }
  int event_fd() const { return event_fd_; }

  // Called from progress(); must not call progress() itself, nor make or close endpoints.
  void set_receiver(uint16_t message_id, Receiver receiver);
  // Handles what has arrived and sends what waits; false: there was nothing.
  bool progress();
  // True: event_fd() will become readable with the next event. False: something has happened
  // already, progress().
  bool arm();

 private:
  friend class UcxEndpoint;
  UcxWorker() = default;
  Status open();
  static ucs_status_t on_message(void* arg, const void* header, size_t header_bytes, void* data,
                                 size_t data_bytes, const ucp_am_recv_param_t* param);

  std::shared_ptr<const UcxLibrary> ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;  // the worker's
  std::map<uint16_t, Receiver> receivers_;
};

// A way to one peer's worker, in error mode PEER. Its destructor ends every send: afterwards no
// byte of ours is read.
class UcxEndpoint {
 public:
  using OnBroken = std::function<void(const std::string& reason)>;
  // Called from progress() when a send that was not complete at once has ended, well or not.
  using OnSent = std::function<void()>;

  static Result<std::unique_ptr<UcxEndpoint>> connect(UcxWorker& worker, const std::string& address,
                                                      OnBroken on_broken);
  ~UcxEndpoint();
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  // True: sent, the bytes are free. False: header and payload must stay until on_sent.
  Result<bool> send(uint16_t message_id, std::string_view header, std::string_view payload,
                    OnSent on_sent);
  // A few bytes without a payload; copied.
  void send_small(uint16_t message_id, std::string header);

 private:
  struct SendInFlight;
  UcxEndpoint(UcxWorker& worker, OnBroken on_broken)
      : worker_(worker), on_broken_(std::move(on_broken)) {}
  static void on_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  static void on_send_ended(void* request, ucs_status_t status, void* arg);

  UcxWorker& worker_;
  const OnBroken on_broken_;
  ucp_ep_h endpoint_ = nullptr;
};

}  // namespace baton
