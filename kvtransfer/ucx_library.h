// UCX (any of 1.13 or later: its API only grows), loaded when the ucx transport is made and not
// before: its constructors hook mmap and malloc and take over SIGSEGV, at load time and for the
// whole process, which a worker that does not use it should not have, and which we switch off where
// it does.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "base/status.h"

namespace baton {

// The functions that we call, under their names in the UCX API. Stays loaded to the end of the
// process (UCX cannot be unloaded).
struct UcxLibrary {
  decltype(&ucp_get_version_string) get_version_string;
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_modify) config_modify;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_context_query) context_query;
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_mem_map) mem_map;
  decltype(&ucp_mem_unmap) mem_unmap;
  decltype(&ucp_rkey_pack) rkey_pack;
  decltype(&ucp_rkey_buffer_release) rkey_buffer_release;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_am_send_nbx) am_send_nbx;
  decltype(&ucp_ep_rkey_unpack) ep_rkey_unpack;
  decltype(&ucp_rkey_destroy) rkey_destroy;
  decltype(&ucp_put_nbx) put_nbx;
  decltype(&ucp_ep_flush_nbx) ep_flush_nbx;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_free) request_free;
  decltype(&ucs_status_string) status_string;
};

// `path` of libucp.so.0; empty: what the system's loader finds. At start-up, by one thread.
// kUnavailable where there is none, or where this process has loaded another one: two of them in
// one process would share symbols and settings.
Result<std::shared_ptr<const UcxLibrary>> load_ucx(const std::string& path = {});

// "ucx: <what>: <UCX's words>".
Status ucx_error(const UcxLibrary& ucx, const std::string& what, ucs_status_t status);

}  // namespace baton
