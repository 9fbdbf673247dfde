#include "worker/nvlink_clique.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("a clique is named as the node's label names it") {
  std::array<uint8_t, 16> uuid{};
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<uint8_t>(0xf0 + i);
  CHECK(clique_name(uuid, 32766) == "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff.32766");
}

TEST_CASE("a cluster of zeros is no clique") {
  CHECK(clique_name({}, 1).empty());
}

TEST_CASE("a GPU that is not there is in no clique") {
  CHECK(nvlink_clique(4095, 0).empty());
}

}  // namespace
}  // namespace baton
