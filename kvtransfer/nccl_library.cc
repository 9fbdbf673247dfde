#include "kvtransfer/nccl_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/log.h"
#include "kvtransfer/nccl_api.h"

namespace baton {
namespace {

class NcclLibrary final : public NcclApi {
 public:
  explicit NcclLibrary(const NcclFunctions& nccl) : nccl_(nccl) {}

  Result<NcclId> make_id() const override;
  Status begin(NcclComm* comm, const NcclId& id, NcclRank rank, int32_t ctas) const override;
  Result<bool> settled(NcclComm comm) const override;
  Status enqueue(NcclComm comm, NcclRank rank, std::span<const NcclMove> moves,
                 void* stream) const override;
  void abort(NcclComm comm) const override { (void)nccl_.comm_abort(comm); }

 private:
  Status check(int result, const char* call, NcclComm comm) const;

  const NcclFunctions nccl_;
};

// A call that goes on in the background is no failure.
Status NcclLibrary::check(int result, const char* call, NcclComm comm) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return {};
  const char* detail = nccl_.get_last_error(comm);
  std::string text = std::string(call) + ": " + nccl_.get_error_string(result);
  if (detail != nullptr && *detail != 0) text += std::string(" (") + detail + ")";
  return unavailable(std::move(text));
}

Result<NcclId> NcclLibrary::make_id() const {
  NcclUniqueId made{};
  const Status status = check(nccl_.get_unique_id(&made), "ncclGetUniqueId", nullptr);
  if (!status.ok()) return status;
  NcclId id;
  static_assert(sizeof(id) == sizeof(made.internal));
  std::memcpy(id.data(), made.internal, id.size());
  return id;
}

Status NcclLibrary::begin(NcclComm* comm, const NcclId& id, NcclRank rank, int32_t ctas) const {
  NcclUniqueId unique{};
  std::memcpy(unique.internal, id.data(), id.size());
  NcclConfig config{.blocking = 0, .max_ctas = ctas};
  return check(nccl_.comm_init_rank_config(comm, 2, unique, static_cast<int>(rank), &config),
               "ncclCommInitRankConfig", nullptr);
}

Result<bool> NcclLibrary::settled(NcclComm comm) const {
  int state = kNcclSuccess;
  Status status = check(nccl_.comm_get_async_error(comm, &state), "ncclCommGetAsyncError", comm);
  if (status.ok()) status = check(state, "NCCL", comm);
  if (!status.ok()) return status;
  return state == kNcclSuccess;
}

Status NcclLibrary::enqueue(NcclComm comm, NcclRank rank, std::span<const NcclMove> moves,
                            void* stream) const {
  Status status = check(nccl_.group_start(), "ncclGroupStart", comm);
  if (!status.ok()) return status;
  for (const NcclMove& move : moves) {
    const auto bytes = static_cast<size_t>(move.bytes);
    const int result = rank == NcclRank::kSender
                           ? nccl_.send(move.at, bytes, kNcclInt8, 1, comm, stream)
                           : nccl_.recv(move.at, bytes, kNcclInt8, 0, comm, stream);
    if (status = check(result, "ncclSend or ncclRecv", comm); !status.ok()) break;
  }
  const Status ended = check(nccl_.group_end(), "ncclGroupEnd", comm);
  return status.ok() ? ended : status;
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<NcclFunctions> load_nccl_functions() {
  // Two ranks gain nothing by multicast, and shared hosts suffer from it. NCCL reads this when the
  // first communicator is made; an operator's own value stays.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unavailable(std::string("nccl: ") + dlerror());
  NcclFunctions nccl{};
  const bool found = find(library, "ncclGetVersion", nccl.get_version) &&
                     find(library, "ncclGetUniqueId", nccl.get_unique_id) &&
                     find(library, "ncclCommInitRankConfig", nccl.comm_init_rank_config) &&
                     find(library, "ncclCommGetAsyncError", nccl.comm_get_async_error) &&
                     find(library, "ncclCommAbort", nccl.comm_abort) &&
                     find(library, "ncclGroupStart", nccl.group_start) &&
                     find(library, "ncclGroupEnd", nccl.group_end) &&
                     find(library, "ncclSend", nccl.send) && find(library, "ncclRecv", nccl.recv) &&
                     find(library, "ncclGetErrorString", nccl.get_error_string) &&
                     find(library, "ncclGetLastError", nccl.get_last_error);
  if (!found) return unavailable(std::string("nccl: ") + dlerror());
  int version = 0;
  (void)nccl.get_version(&version);
  if (version < kNcclVersion) {
    return unavailable("nccl: got version " + std::to_string(version) + ", want at least " +
                       std::to_string(kNcclVersion));
  }
  log_info("nccl_loaded", {{"version", version}});
  return nccl;
}

Result<std::shared_ptr<const NcclApi>> load_nccl() {
  const Result<NcclFunctions> nccl = load_nccl_functions();
  if (!nccl.ok()) return nccl.status();
  return std::shared_ptr<const NcclApi>(std::make_shared<NcclLibrary>(*nccl));
}

}  // namespace baton
