#include "kvtransfer/ucx_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace baton {
namespace {

// UCX reads these in its constructors, where no other way of setting them reaches. Taken back right
// after, so that no child inherits them.
class LoadTimeSetting {
 public:
  LoadTimeSetting(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~LoadTimeSetting() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  LoadTimeSetting(const LoadTimeSetting&) = delete;
  LoadTimeSetting& operator=(const LoadTimeSetting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

void* open_library() {
  const LoadTimeSetting no_mmap_hooks("UCX_MEM_MMAP_HOOK_MODE", "none");
  const LoadTimeSetting no_malloc_hooks("UCX_MEM_MALLOC_HOOKS", "n");
  const LoadTimeSetting no_signal_handlers("UCX_HANDLE_ERRORS", "none");
  const LoadTimeSetting no_lines_on_stdout("UCX_LOG_LEVEL", "fatal");  // failures come as a status
  return dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
}

// dlsym looks into what libucp has loaded, too: ucs_status_string is libucs's.
template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::shared_ptr<const UcxLibrary>> load_ucx() {
  void* const library = open_library();
  if (library == nullptr) return unavailable(std::string("ucx: ") + dlerror());
  UcxLibrary ucx{};
  const bool found =
      find(library, "ucp_get_version_string", ucx.get_version_string) &&
      find(library, "ucp_config_read", ucx.config_read) &&
      find(library, "ucp_config_modify", ucx.config_modify) &&
      find(library, "ucp_config_release", ucx.config_release) &&
      find(library, "ucp_init_version", ucx.init_version) &&
      find(library, "ucp_cleanup", ucx.cleanup) &&
      find(library, "ucp_worker_create", ucx.worker_create) &&
      find(library, "ucp_worker_destroy", ucx.worker_destroy) &&
      find(library, "ucp_worker_get_efd", ucx.worker_get_efd) &&
      find(library, "ucp_worker_get_address", ucx.worker_get_address) &&
      find(library, "ucp_worker_release_address", ucx.worker_release_address) &&
      find(library, "ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler) &&
      find(library, "ucp_worker_progress", ucx.worker_progress) &&
      find(library, "ucp_worker_arm", ucx.worker_arm) &&
      find(library, "ucp_ep_create", ucx.ep_create) &&
      find(library, "ucp_ep_close_nbx", ucx.ep_close_nbx) &&
      find(library, "ucp_am_send_nbx", ucx.am_send_nbx) &&
      find(library, "ucp_request_check_status", ucx.request_check_status) &&
      find(library, "ucp_request_free", ucx.request_free) &&
      find(library, "ucs_status_string", ucx.status_string);
  if (!found) return unavailable(std::string("ucx: ") + dlerror());
  return std::make_shared<const UcxLibrary>(ucx);
}

}  // namespace baton
