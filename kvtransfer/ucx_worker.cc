#include "kvtransfer/ucx_worker.h"

#include <poll.h>

#include "kvtransfer/ucx_memory.h"
namespace baton {

namespace {

struct Setting {
  const char* name;
  const char* value;
};

constexpr Setting kSettings[] = {
    // Without it shared memory is not chosen in error mode PEER (UCX 1.13). The key of the posix
    // transport is MM_, its parent's.
    {"MM_ERROR_HANDLING", "y"},
    {"MM_SEG_SIZE", "62k"},
    {"MM_FIFO_SIZE", "256"},
    // Every message is copied through shared memory; a rendezvous would need memory that UCX has
    // allocated itself.
    {"RNDV_THRESH", "inf"},
};

Result<ucp_context_h> make_context(const UcxLibrary& ucx, const UcxSetup& setup) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucx.config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return ucx_error(ucx, "reading its configuration", status);
  const std::unique_ptr<ucp_config_t, decltype(ucx.config_release)> owned(config,
                                                                          ucx.config_release);
  // UCX's tcp, which stores wherever a connected stranger says, is never among them.
  status = ucx.config_modify(config, "TLS", setup.transports.c_str());
  if (status != UCS_OK) return ucx_error(ucx, "TLS", status);
  for (const Setting& setting : kSettings) {
    status = ucx.config_modify(config, setting.name, setting.value);
    if (status != UCS_OK) return ucx_error(ucx, setting.name, status);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (setup.puts) params.features |= UCP_FEATURE_RMA;
  ucp_context_h context = nullptr;
  status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  if (status != UCS_OK) return ucx_error(ucx, "init", status);
  return context;
}

}  // namespace

// ---- worker ----

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(const UcxSetup& setup) {
  Result<std::shared_ptr<const UcxLibrary>> library = load_ucx(setup.library);
  if (!library.ok()) return library.status();
  return make(std::move(*library), setup);
}

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(std::shared_ptr<const UcxLibrary> library,
                                                   const UcxSetup& setup) {
  std::unique_ptr<UcxWorker> worker(new UcxWorker(std::move(library)));
  const Status opened = worker->open(setup);
  if (!opened.ok()) return opened;
  // Can shared memory carry an endpoint in error mode PEER? Our own address is as good as a peer's.
  const Result<std::unique_ptr<UcxEndpoint>> self =
      UcxEndpoint::connect(*worker, worker->address_, {});
  if (!self.ok()) return self.status();
  return worker;
}

Status UcxWorker::open(const UcxSetup& setup) {
  const UcxLibrary& ucx = *ucx_;
  const Result<ucp_context_h> context = make_context(ucx, setup);
  if (!context.ok()) return context.status();
  context_ = *context;
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode =
      UCS_THREAD_MODE_SERIALIZED;  // made by one thread, used by the handoff thread
  ucs_status_t status = ucx.worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return ucx_error(ucx, "worker", status);
  status = ucx.worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return ucx_error(ucx, "wake-up descriptor", status);
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  status = ucx.worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return ucx_error(ucx, "address", status);
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  ucx.worker_release_address(worker_, address);
  return {};
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) ucx_->worker_destroy(worker_);
  if (context_ != nullptr) ucx_->cleanup(context_);
}

void UcxWorker::set_receiver(uint16_t message_id, Receiver receiver) {
  Receiver& kept = receivers_[message_id] = std::move(receiver);
  ucp_am_handler_param_t params{};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = message_id;
  params.cb = &UcxWorker::on_message;
  params.arg = &kept;
  CHECK_EQ(ucx_->worker_set_am_recv_handler(worker_, &params), UCS_OK) << "message " << message_id;
}

ucs_status_t UcxWorker::on_message(void* arg, const void* header, size_t header_bytes, void* data,
                                   size_t data_bytes, const ucp_am_recv_param_t* param) {
  // A rendezvous is nothing that we send; it is dropped without fetching its data.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
  (*static_cast<Receiver*>(arg))({static_cast<const char*>(header), header_bytes},
                                 {static_cast<const char*>(data), data_bytes});
  return UCS_OK;
}

bool UcxWorker::knows_gpu_memory() const {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return ucx_->context_query(context_, &attributes) == UCS_OK &&
         (attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0;
}

bool UcxWorker::progress() {
  return ucx_->worker_progress(worker_) != 0;
}

bool UcxWorker::arm() {
  return ucx_->worker_arm(worker_) == UCS_OK;
}

// ---- endpoint ----

struct UcxEndpoint::InFlight {
  const UcxLibrary& ucx;
  OnEnded on_ended;
};

Result<std::unique_ptr<UcxEndpoint>> UcxEndpoint::connect(UcxWorker& worker,
                                                          const std::string& address,
                                                          OnBroken on_broken) {
  std::unique_ptr<UcxEndpoint> endpoint(new UcxEndpoint(worker, std::move(on_broken)));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxEndpoint::on_error;
  params.err_handler.arg = endpoint.get();
  const UcxLibrary& ucx = worker.ucx();
  const ucs_status_t status = ucx.ep_create(worker.worker_, &params, &endpoint->endpoint_);
  if (status != UCS_OK) return ucx_error(ucx, "endpoint", status);
  return endpoint;
}

UcxEndpoint::~UcxEndpoint() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const UcxLibrary& ucx = worker_.ucx();
  void* const request = ucx.ep_close_nbx(endpoint_, &params);
  if (!UCS_PTR_IS_PTR(request)) return;
  // Forced closing asks nothing of the peer: a few turns of progress and it is done.
  while (ucx.request_check_status(request) == UCS_INPROGRESS) {
    if (worker_.progress() || !worker_.arm()) continue;
    pollfd wait{.fd = worker_.event_fd(), .events = POLLIN, .revents = 0};
    poll(&wait, 1, 1);
  }
  ucx.request_free(request);
}

void UcxEndpoint::on_error(void* arg, ucp_ep_h, ucs_status_t status) {
  const auto* endpoint = static_cast<const UcxEndpoint*>(arg);
  if (endpoint->on_broken_) endpoint->on_broken_(endpoint->worker_.ucx().status_string(status));
}

void UcxEndpoint::on_request_ended(void* request, ucs_status_t status, void* arg) {
  const std::unique_ptr<InFlight> ended(static_cast<InFlight*>(arg));
  ended->ucx.request_free(request);
  ended->on_ended(status == UCS_OK ? Status() : unavailable(ended->ucx.status_string(status)));
}

Result<bool> UcxEndpoint::start(
    const char* what, OnEnded on_ended, ucp_request_param_t params,
    const std::function<ucs_status_ptr_t(const ucp_request_param_t*)>& call) {
  const UcxLibrary& ucx = worker_.ucx();
  auto in_flight = std::make_unique<InFlight>(InFlight{ucx, std::move(on_ended)});
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &UcxEndpoint::on_request_ended;
  params.user_data = in_flight.get();
  const ucs_status_ptr_t request = call(&params);
  if (UCS_PTR_IS_ERR(request)) return ucx_error(ucx, what, UCS_PTR_STATUS(request));
  if (request == nullptr) return true;
  in_flight.release();  // on_request_ended's now
  return false;
}

Result<bool> UcxEndpoint::send(uint16_t message_id, std::string_view header,
                               std::string_view payload, OnSent on_sent) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  return start(
      "send", [on_sent = std::move(on_sent)](const Status&) { on_sent(); }, params,
      [&](const ucp_request_param_t* all) {
        return worker_.ucx().am_send_nbx(endpoint_, message_id, header.data(), header.size(),
                                         payload.data(), payload.size(), all);
      });
}

Result<bool> UcxEndpoint::put(const UcxMemory& from, const std::byte* src, int64_t bytes,
                              const UcxRemoteMemory& into, uint64_t to, OnEnded on_ended) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
  params.memory_type = from.type();
  params.memh = from.handle();
  return start("put", std::move(on_ended), params, [&](const ucp_request_param_t* all) {
    return worker_.ucx().put_nbx(endpoint_, src, static_cast<size_t>(bytes), to, into.key(), all);
  });
}

Result<bool> UcxEndpoint::flush(OnEnded on_ended) {
  return start("flush", std::move(on_ended), {}, [&](const ucp_request_param_t* all) {
    return worker_.ucx().ep_flush_nbx(endpoint_, all);
  });
}

void UcxEndpoint::send_small(uint16_t message_id, std::string header) {
  const auto kept = std::make_shared<const std::string>(std::move(header));
  // A send that fails is the connection's end, of which on_broken and the link tell.
  (void)send(message_id, *kept, {}, [kept] {});
}

}  // namespace baton
