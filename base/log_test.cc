#include "base/log.h"

#include "tests/doctest.h"

namespace baton {
namespace {

TEST_CASE("a line is time, level, event and its fields") {
  CHECK(format_log_line(1'700'000'000'042, LogLevel::kInfo, "link_up",
                        {{"peer", "10.0.0.2:7100"}, {"n", 3}, {"share", 0.5}, {"ok", true}}) ==
        "2023-11-14T22:13:20.042Z info link_up peer=10.0.0.2:7100 n=3 share=0.5 ok=true");
}

TEST_CASE("what a stranger sent stays on one line") {
  CHECK(
      format_log_line(0, LogLevel::kWarn, "refused", {{"why", "a\"b\n\x01 c=d"}, {"empty", ""}}) ==
      "1970-01-01T00:00:00.000Z warn refused why=\"a\\\"b\\n\\u0001 c=d\" empty=\"\"");
}

}  // namespace
}  // namespace baton
