#include "kvtransfer/ucx_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
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

constexpr const char* kSoname = "libucp.so.0";

// The file behind a loaded library.
std::string file_of(void* library) {
  Dl_info info{};
  void* const symbol = dlsym(library, "ucp_init_version");
  if (symbol == nullptr || dladdr(symbol, &info) == 0) return {};
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored);
}

// Whether this process has another one than `path` already.
Status check_alone(const std::string& path) {
  void* const loaded = dlopen(kSoname, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr || path.empty()) return {};
  const std::string file = file_of(loaded);
  std::error_code ignored;
  if (file == std::filesystem::weakly_canonical(path, ignored)) return {};
  return unavailable("ucx: " + path + ": " + file +
                     " is loaded already, and one is all there can be");
}

void* open_library(const std::string& path) {
  const LoadTimeSetting no_mmap_hooks("UCX_MEM_MMAP_HOOK_MODE", "none");
  const LoadTimeSetting no_malloc_hooks("UCX_MEM_MALLOC_HOOKS", "n");
  const LoadTimeSetting no_signal_handlers("UCX_HANDLE_ERRORS", "none");
  const LoadTimeSetting no_lines_on_stdout("UCX_LOG_LEVEL", "fatal");  // failures come as a status
  return dlopen(path.empty() ? kSoname : path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

// dlsym looks into what libucp has loaded, too: ucs_status_string is libucs's.
template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<std::shared_ptr<const UcxLibrary>> load_ucx(const std::string& path) {
  const Status alone = check_alone(path);
  if (!alone.ok()) return alone;
  void* const library = open_library(path);
  if (library == nullptr) return unavailable(std::string("ucx: ") + dlerror());
  UcxLibrary ucx{};
  const bool found =
      find(library, "ucp_get_version_string", ucx.get_version_string) &&
      find(library, "ucp_config_read", ucx.config_read) &&
      find(library, "ucp_config_modify", ucx.config_modify) &&
      find(library, "ucp_config_release", ucx.config_release) &&
      find(library, "ucp_init_version", ucx.init_version) &&
      find(library, "ucp_context_query", ucx.context_query) &&
      find(library, "ucp_cleanup", ucx.cleanup) && find(library, "ucp_mem_map", ucx.mem_map) &&
      find(library, "ucp_mem_unmap", ucx.mem_unmap) &&
      find(library, "ucp_rkey_pack", ucx.rkey_pack) &&
      find(library, "ucp_rkey_buffer_release", ucx.rkey_buffer_release) &&
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
      find(library, "ucp_ep_rkey_unpack", ucx.ep_rkey_unpack) &&
      find(library, "ucp_rkey_destroy", ucx.rkey_destroy) &&
      find(library, "ucp_put_nbx", ucx.put_nbx) &&
      find(library, "ucp_ep_flush_nbx", ucx.ep_flush_nbx) &&
      find(library, "ucp_request_check_status", ucx.request_check_status) &&
      find(library, "ucp_request_free", ucx.request_free) &&
      find(library, "ucs_status_string", ucx.status_string);
  if (!found) return unavailable(std::string("ucx: ") + dlerror());
  return std::make_shared<const UcxLibrary>(ucx);
}

Status ucx_error(const UcxLibrary& ucx, const std::string& what, ucs_status_t status) {
  return unavailable("ucx: " + what + ": " + ucx.status_string(status));
}

}  // namespace baton
