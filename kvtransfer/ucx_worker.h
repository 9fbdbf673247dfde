// UCX behind plain C++: one context and worker, its endpoints with their active messages and puts,
// its sleep. Memory that it knows: ucx_memory.h. Handoff thread only, but for construction.
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

struct UcxSetup {
  std::string library;                    // as load_ucx's path
  std::string transports = "posix,self";  // UCX's TLS
  // We put into others' memory. One that does not has no handler for puts that its peer's UCX
  // spells out in messages, and stores nothing for anybody.
  bool puts = false;
};

class UcxMemory;
class UcxRemoteMemory;

class UcxWorker {
 public:
  using Receiver = std::function<void(std::string_view header, std::string_view payload)>;

  // Reports why where UCX cannot be used here: no shared memory, or none with error handling.
  static Result<std::unique_ptr<UcxWorker>> make(const UcxSetup& setup = {});
  // With functions of the caller's in place of some of UCX's.
  static Result<std::unique_ptr<UcxWorker>> make(std::shared_ptr<const UcxLibrary> library,
                                                 const UcxSetup& setup);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  const UcxLibrary& ucx() const { return *ucx_; }
  const std::string& address() const { return address_; }
  int event_fd() const { return event_fd_; }
  bool knows_gpu_memory() const;

  // Called from progress(); must not call progress() itself, nor make or close endpoints.
  void set_receiver(uint16_t message_id, Receiver receiver);
  // Handles what has arrived and sends what waits; false: there was nothing.
  bool progress();
  // True: event_fd() will become readable with the next event. False: something has happened
  // already, progress().
  bool arm();

 private:
  friend class UcxEndpoint;
  friend class UcxMemory;
  explicit UcxWorker(std::shared_ptr<const UcxLibrary> library) : ucx_(std::move(library)) {}
  Status open(const UcxSetup& setup);
  static ucs_status_t on_message(void* arg, const void* header, size_t header_bytes, void* data,
                                 size_t data_bytes, const ucp_am_recv_param_t* param);

  const std::shared_ptr<const UcxLibrary> ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;  // the worker's
  std::map<uint16_t, Receiver> receivers_;
};

// A way to one peer's worker, in error mode PEER. Its destructor ends every send: afterwards no
// byte of ours is read, but by puts of a copy engine, which it does not wait for.
class UcxEndpoint {
 public:
  using OnBroken = std::function<void(const std::string& reason)>;
  // Called from progress() when a send that was not complete at once has ended, well or not.
  using OnSent = std::function<void()>;
  // The same of puts and flushes, with what became of it.
  using OnEnded = std::function<void(const Status&)>;

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

  // Stores `bytes` of `src`, which lies in `from`, at the peer's address `to`, which lies in
  // `into`. As send(); what has been put has left, and only flush() says that it has arrived.
  Result<bool> put(const UcxMemory& from, const std::byte* src, int64_t bytes,
                   const UcxRemoteMemory& into, uint64_t to, OnEnded on_ended);
  // True: all that has been put has arrived. False: on_ended will say so.
  Result<bool> flush(OnEnded on_ended);

 private:
  friend class UcxRemoteMemory;
  struct InFlight;
  UcxEndpoint(UcxWorker& worker, OnBroken on_broken)
      : worker_(worker), on_broken_(std::move(on_broken)) {}
  static void on_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  static void on_request_ended(void* request, ucs_status_t status, void* arg);
  Result<bool> start(const char* what, OnEnded on_ended, ucp_request_param_t params,
                     const std::function<ucs_status_ptr_t(const ucp_request_param_t*)>& call);

  UcxWorker& worker_;
  const OnBroken on_broken_;
  ucp_ep_h endpoint_ = nullptr;
};

}  // namespace baton
