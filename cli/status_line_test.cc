#include "cli/status_line.h"

#include "tests/doctest.h"

using namespace baton;

TEST_CASE("metrics text becomes series, sums look at whole names and labels") {
  const Scrape scrape = parse_metrics("# HELP a b\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4\nab 5\n");
  CHECK(sum_series(scrape, "a") == 7);
  CHECK(sum_series(scrape, "a", "x=\"1\"") == 3);
  CHECK(sum_series(scrape, "ab") == 5);
}

TEST_CASE("a quantile looks at what came between two scrapes only") {
  const Scrape before = parse_metrics(
      "t_bucket{le=\"0.1\"} 100\nt_bucket{le=\"0.2\"} 100\nt_bucket{le=\"+Inf\"} 100\n");
  const Scrape after = parse_metrics(
      "t_bucket{le=\"0.1\"} 100\nt_bucket{le=\"0.2\"} 110\nt_bucket{le=\"+Inf\"} 110\n");
  CHECK(histogram_quantile(before, after, "t", 0.5) == doctest::Approx(0.15));
  CHECK(histogram_quantile(before, before, "t", 0.5) == 0);
}
