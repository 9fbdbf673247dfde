#include "router/placement.h"

#include <numeric>

#include "tests/doctest.h"

namespace baton {
namespace {

std::vector<TokenId> prompt_of(int32_t length, TokenId first = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(length));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

struct Fleet {
  explicit Fleet(const std::string& zone_policy = "prefer")
      : placement(RouteConfig{.zone_policy = zone_policy}, 3) {}

  void add(LinkId link, Role role, const std::string& compat = "m", Epoch epoch = 1) {
    placement.add(link, {.worker_id = "w" + std::to_string(link),
                         .epoch = epoch,
                         .role = role,
                         .kv_compat_id = compat});
  }
  void add_at(LinkId link, Role role, const std::string& clique, const std::string& zone) {
    placement.add(link, {.worker_id = "w" + std::to_string(link),
                         .epoch = 1,
                         .role = role,
                         .kv_compat_id = "m",
                         .clique = clique,
                         .zone = zone});
  }
  std::optional<Plan> choose(const std::vector<TokenId>& tokens, const std::string& compat = "") {
    const auto chain = placement.chain(tokens, "");
    return placement.choose({.tokens = tokens, .chain = chain, .kv_compat_id = compat});
  }

  Placement placement;
};

TEST_CASE("the history finds the longest prefix each worker has seen") {
  PrefixHistory history(5, 1000);
  const auto tokens = prompt_of(100);
  const auto chain = history.chain(tokens, "");
  CHECK(chain.size() == 6);
  history.remember(history.chain(prompt_of(40), ""), 1);
  history.remember(chain, 2);
  CHECK(history.seen_tokens(chain, 1) == 32);
  CHECK(history.seen_tokens(chain, 2) == 96);
  CHECK(history.seen_tokens(chain, 3) == 0);
  CHECK(history.seen_tokens(history.chain(tokens, "salt"), 2) == 0);
}

TEST_CASE("the history is bounded and forgets the oldest") {
  PrefixHistory history(5, 8);
  const auto old_chain = history.chain(prompt_of(64), "");
  history.remember(old_chain, 1);
  for (TokenId i = 1; i < 5; ++i) history.remember(history.chain(prompt_of(64, i * 1000), ""), 1);
  CHECK(history.size() == 8);
  CHECK(history.seen_tokens(old_chain, 1) == 0);
}

TEST_CASE("the least loaded workers are chosen") {
  Fleet fleet;
  fleet.add(1, Role::kPrefill);
  fleet.add(2, Role::kPrefill);
  fleet.add(3, Role::kDecode);
  fleet.add(4, Role::kDecode);
  fleet.placement.add_load(1, 5000, 0);
  fleet.placement.add_load(3, 0, 10);
  const auto plan = fleet.choose(prompt_of(200));
  REQUIRE(plan);
  CHECK(plan->prefill == 2);
  CHECK(plan->decode == std::vector<LinkId>{4, 3});
}

TEST_CASE("a decode worker that has seen the prompt comes first and prefills a short rest itself") {
  Fleet fleet;
  fleet.add(1, Role::kPrefill);
  fleet.add(2, Role::kDecode);
  fleet.add(3, Role::kDecode);
  const auto tokens = prompt_of(320);
  fleet.placement.remember(fleet.placement.chain(tokens, ""), 3);
  auto plan = fleet.choose(prompt_of(320 + 16));
  REQUIRE(plan);
  CHECK(plan->decode == std::vector<LinkId>{3});
  CHECK_FALSE(plan->prefill);
  plan = fleet.choose(prompt_of(320 + 200));
  REQUIRE(plan);
  CHECK(plan->prefill == 1);
  CHECK(plan->decode.front() == 3);
}

TEST_CASE("a restarted worker has an empty cache") {
  Fleet fleet;
  fleet.add(3, Role::kDecode);
  fleet.add(4, Role::kDecode);
  const auto tokens = prompt_of(320);
  fleet.placement.remember(fleet.placement.chain(tokens, ""), 4);
  CHECK(fleet.choose(tokens)->decode.front() == 4);
  fleet.placement.remove(4);
  fleet.add(4, Role::kDecode, "m", 2);
  CHECK(fleet.choose(tokens)->decode.front() == 3);
}

TEST_CASE("pairs share a kv_compat_id; without a mate the decode worker is on its own") {
  Fleet fleet;
  fleet.add(1, Role::kPrefill, "new");
  fleet.add(2, Role::kDecode, "old");
  auto plan = fleet.choose(prompt_of(200));
  REQUIRE(plan);
  CHECK_FALSE(plan->prefill);
  CHECK(plan->decode == std::vector<LinkId>{2});
  fleet.add(3, Role::kDecode, "new");
  fleet.placement.add_load(3, 0, 100);
  plan = fleet.choose(prompt_of(200));
  CHECK(plan->prefill == 1);
  CHECK(plan->decode == std::vector<LinkId>{3});
  CHECK(fleet.choose(prompt_of(200), "old")->decode == std::vector<LinkId>{2});
  CHECK_FALSE(fleet.choose(prompt_of(200), "gone"));
}

TEST_CASE("workers that drain, and workers of role both") {
  Fleet fleet;
  fleet.add(1, Role::kBoth);
  fleet.add(2, Role::kBoth);
  auto plan = fleet.choose(prompt_of(200));
  REQUIRE(plan);
  CHECK_FALSE(plan->prefill);
  CHECK(plan->decode == std::vector<LinkId>{1});
  fleet.placement.set_draining(1);
  CHECK(fleet.choose(prompt_of(200))->decode == std::vector<LinkId>{2});
  fleet.placement.set_draining(2);
  CHECK_FALSE(fleet.choose(prompt_of(200)));
  CHECK_FALSE(fleet.placement.ready());
}

TEST_CASE("a request larger than any decode worker is refused, once all have told their size") {
  Fleet fleet;
  fleet.add(1, Role::kDecode);
  CHECK(fleet.placement.fits(10, 1 << 20).ok());
  fleet.placement.update(1, {.largest_prompt = 500}, 1);
  CHECK(fleet.placement.fits(400, 500).ok());
  CHECK(fleet.placement.fits(400, 501).code() == Code::kInvalidArgument);
}

TEST_CASE("pages stay in the NVLink clique until it is a good deal busier than another") {
  Fleet fleet;
  fleet.add_at(1, Role::kPrefill, "a", "z");
  fleet.add_at(2, Role::kDecode, "b", "z");
  fleet.add_at(3, Role::kDecode, "a", "z");
  fleet.placement.add_load(3, 0, 20);
  CHECK(fleet.choose(prompt_of(200))->decode == std::vector<LinkId>{3, 2});
  fleet.placement.add_load(3, 0, 200);
  CHECK(fleet.choose(prompt_of(200))->decode == std::vector<LinkId>{2, 3});
}

TEST_CASE("a prefill worker with a mate in its clique goes before one without") {
  Fleet fleet;
  fleet.add_at(1, Role::kPrefill, "a", "");
  fleet.add_at(2, Role::kPrefill, "b", "");
  fleet.add_at(3, Role::kDecode, "b", "");
  fleet.placement.add_load(2, 1000, 0);
  CHECK(fleet.choose(prompt_of(200))->prefill == 2);
  fleet.placement.add_load(2, 2000, 0);
  CHECK(fleet.choose(prompt_of(200))->prefill == 1);
}

TEST_CASE("zones are kept to: when there is a choice, always, or not at all") {
  const auto plan = [](const std::string& policy, bool own_zone_has_one) {
    Fleet fleet(policy);
    fleet.add_at(1, Role::kPrefill, "", "here");
    fleet.add_at(2, Role::kDecode, "", "there");
    if (own_zone_has_one) fleet.add_at(3, Role::kDecode, "", "here");
    fleet.placement.add_load(3, 0, 100);
    return *fleet.choose(prompt_of(200));
  };
  CHECK(plan("prefer", true).decode == std::vector<LinkId>{3, 2});
  CHECK(plan("prefer", false).decode == std::vector<LinkId>{2});
  CHECK(plan("require", true).decode == std::vector<LinkId>{3});
  CHECK_FALSE(plan("require", false).prefill);  // the other zone serves it by itself
  CHECK(plan("ignore", true).decode == std::vector<LinkId>{2, 3});
}

TEST_CASE("a worker that does not know its zone has the one that discovery tells") {
  Fleet fleet("require");
  fleet.placement.set_hint("10.0.0.2:1", {.zone = "there"});
  fleet.add_at(1, Role::kPrefill, "", "here");
  fleet.placement.add(2, {.worker_id = "w2", .role = Role::kDecode, .kv_compat_id = "m"},
                      "10.0.0.2:1");
  CHECK_FALSE(fleet.choose(prompt_of(200))->prefill);
}

TEST_CASE("an address that discovery withholds gets nothing, before and after its worker is up") {
  Fleet fleet;
  const PeerInfo peer{.worker_id = "d", .role = Role::kDecode, .kv_compat_id = "m"};
  fleet.placement.set_hint("a:1", {.withheld = "not ready"});
  fleet.placement.add(1, peer, "a:1");
  CHECK_FALSE(fleet.choose(prompt_of(8)));
  CHECK(Placement::unusable_reason(*fleet.placement.find(1)) == "not ready");
  fleet.placement.set_hint("a:1", {});
  CHECK(fleet.choose(prompt_of(8)));
  fleet.placement.set_hint("a:1", {.withheld = "gone"});
  CHECK_FALSE(fleet.placement.ready());
  // Whoever has that address later is somebody else.
  fleet.placement.remove(1);
  fleet.placement.add(2, peer, "a:1");
  CHECK(fleet.placement.ready());
}

TEST_CASE("any_usable knows whether there is a plan") {
  Placement placement(RouteConfig{}, 1);
  placement.add(1, {.worker_id = "p", .role = Role::kPrefill, .kv_compat_id = "m"});
  CHECK(placement.any_usable("", true));
  CHECK_FALSE(placement.any_usable("", false));
  placement.add(2, {.worker_id = "d", .role = Role::kDecode, .kv_compat_id = "m"});
  CHECK(placement.any_usable("m", false));
  CHECK_FALSE(placement.any_usable("other", false));
  placement.set_draining(2);
  CHECK_FALSE(placement.any_usable("m", false));
}

}  // namespace
}  // namespace baton
