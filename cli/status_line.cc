#include "cli/status_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace baton {

Scrape parse_metrics(const std::string& text) {
  Scrape scrape;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t space = line.rfind(' ');
    if (line.empty() || line[0] == '#' || space == std::string::npos) continue;
    scrape[line.substr(0, space)] = std::strtod(line.c_str() + space + 1, nullptr);
  }
  return scrape;
}

double sum_series(const Scrape& scrape, const std::string& name, const std::string& label) {
  double sum = 0;
  for (auto it = scrape.lower_bound(name);
       it != scrape.end() && it->first.compare(0, name.size(), name) == 0; ++it) {
    const bool whole = it->first.size() == name.size() || it->first[name.size()] == '{';
    if (whole && it->first.find(label) != std::string::npos) sum += it->second;
  }
  return sum;
}

double histogram_quantile(const Scrape& before, const Scrape& after, const std::string& name,
                          double q) {
  std::map<double, double> counts;  // cumulative, by upper edge
  const std::string series = name + "_bucket{";
  for (auto it = after.lower_bound(series);
       it != after.end() && it->first.compare(0, series.size(), series) == 0; ++it) {
    const size_t le = it->first.find("le=\"");
    if (le == std::string::npos) continue;
    const std::string edge = it->first.substr(le + 4, it->first.find('"', le + 4) - le - 4);
    const auto old = before.find(it->first);
    counts[edge == "+Inf" ? INFINITY : std::strtod(edge.c_str(), nullptr)] +=
        it->second - (old == before.end() ? 0 : old->second);
  }
  if (counts.empty() || counts.rbegin()->second <= 0) return 0;
  const double rank = q * counts.rbegin()->second;
  double low = 0;
  double below = 0;
  for (const auto& [edge, count] : counts) {
    if (count >= rank)
      return std::isinf(edge) ? low
                              : low + (edge - low) * (rank - below) / std::max(count - below, 1e-9);
    low = edge;
    below = count;
  }
  return low;
}

std::string status_line(const Scrape& before, const Scrape& after, double seconds) {
  const auto quantile_ms = [&](const char* name, double q) {
    return 1000 * histogram_quantile(before, after, name, q);
  };
  const double tokens = sum_series(after, "baton_generation_tokens_total") -
                        sum_series(before, "baton_generation_tokens_total");
  double total = 0;
  for (const char* state : {"free", "cached", "used", "granted", "quarantined"}) {
    total += sum_series(after, "baton_worker_pages", std::string("state=\"") + state + "\"");
  }
  const auto pages = [&](const char* state) {
    return sum_series(after, "baton_worker_pages", std::string("state=\"") + state + "\"");
  };
  char line[256];
  std::snprintf(line, sizeof line,
                "running %.0f  waiting %.0f  TTFT p50/p99 %.0f/%.0f ms  TPOT p50/p99 %.1f/%.1f ms  "
                "%.0f tokens/s  pages %.0f used, %.0f "
                "granted, %.0f cached of %.0f",
                sum_series(after, "baton_requests_running"),
                sum_series(after, "baton_requests_waiting"), quantile_ms("baton_ttft_seconds", 0.5),
                quantile_ms("baton_ttft_seconds", 0.99), quantile_ms("baton_itl_seconds", 0.5),
                quantile_ms("baton_itl_seconds", 0.99), tokens / std::max(seconds, 1e-3),
                pages("used"), pages("granted"), pages("cached"), total);
  return line;
}

}  // namespace baton
