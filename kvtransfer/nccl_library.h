// NCCL's binary interface as far as nccl_library.cc uses it, declared here so that Baton builds
// where NCCL is not installed. Names and order as in nccl.h of NCCL 2.18; later versions read a
// shorter configuration by its size and version.
#pragma once

#include <climits>
#include <cstddef>

#include "base/status.h"

namespace baton {

inline constexpr int kNcclSuccess = 0;     // ncclSuccess
inline constexpr int kNcclInProgress = 7;  // ncclInProgress
inline constexpr int kNcclInt8 = 0;        // ncclInt8
inline constexpr int kNcclVersion = 21801;

struct NcclUniqueId {  // ncclUniqueId
  char internal[128];
};

struct NcclConfig {  // ncclConfig_t
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = kNcclVersion;
  int blocking = INT_MIN;  // INT_MIN: NCCL's default
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct NcclFunctions {
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclUniqueId* id);
  int (*comm_init_rank_config)(void** comm, int ranks, NcclUniqueId id, int rank,
                               NcclConfig* config);
  int (*comm_get_async_error)(void* comm, int* state);
  int (*comm_abort)(void* comm);
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void* from, size_t count, int type, int peer, void* comm, void* stream);
  int (*recv)(void* to, size_t count, int type, int peer, void* comm, void* stream);
  const char* (*get_error_string)(int result);
  const char* (*get_last_error)(void* comm);
};

// As load_nccl() (nccl_api.h), which wraps them.
Result<NcclFunctions> load_nccl_functions();

}  // namespace baton
