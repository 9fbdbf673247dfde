#include "kvtransfer/ucx_environment.h"

#include "tests/doctest.h"

namespace baton {
namespace {

std::string refusal(const char* variable) {
  const char* const environment[] = {"HOME=/root", variable, nullptr};
  return check_ucx_environment(environment).status.message();
}

}  // namespace

TEST_CASE("UCX variables that break the transport are refused by name") {
  CHECK(refusal("UCX_KEEPALIVE_INTERVAL=300s").starts_with("UCX_KEEPALIVE_INTERVAL=300s: "));
  CHECK(refusal("UCX_KEEPALIVE_INTERVAL=5m").starts_with("UCX_KEEPALIVE_INTERVAL"));
  CHECK(refusal("UCX_KEEPALIVE_INTERVAL=inf").starts_with("UCX_KEEPALIVE_INTERVAL"));
  CHECK(refusal("UCX_UNIFIED_MODE=y").starts_with("UCX_UNIFIED_MODE=y: "));
  CHECK(refusal("UCX_CUDA_IPC_CACHE=n").starts_with("UCX_CUDA_IPC_CACHE=n: "));
  CHECK(refusal("UCX_CUDA_IPC_CACHE=y").empty());
  CHECK(refusal("UCX_KEEPALIVE_INTERVAL=20s").empty());
  CHECK(refusal("UCX_KEEPALIVE_INTERVAL=500ms").empty());
  CHECK(refusal("UCX_NET_DEVICES=mlx5_0:1").empty());
  CHECK(refusal("NOT_UCX_UNIFIED_MODE=y").empty());
}

TEST_CASE("UCX variables that we set ourselves are told to have no effect") {
  const char* const environment[] = {"UCX_TLS=^cuda_ipc", "UCX_RNDV_THRESH=0", "PATH=/bin",
                                     nullptr};
  const UcxVariables found = check_ucx_environment(environment);
  CHECK(found.status.ok());
  CHECK(found.no_effect == std::vector<std::string>{"UCX_TLS", "UCX_RNDV_THRESH"});
  CHECK(check_ucx_environment(nullptr).no_effect.empty());
}

}  // namespace baton
