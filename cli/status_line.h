// The live line under `baton up`: what the router's /metrics say, and what has changed since the
// last look.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace baton {

// One scrape: series ("name{labels}") to value.
using Scrape = std::map<std::string, double>;
Scrape parse_metrics(const std::string& text);

double sum_series(const Scrape& scrape, const std::string& name,
                  const std::string& label = "");  // over all label sets that contain `label`

// The q-quantile of what a histogram has counted between two scrapes, in the histogram's unit,
// interpolated inside its bucket; 0 if nothing.
double histogram_quantile(const Scrape& before, const Scrape& after, const std::string& name,
                          double q);

// "running 3  waiting 0  TTFT 21/40 ms  TPOT 7.1/9.8 ms  412 tokens/s  pages 120 used, 40 cached of
// 4096"
std::string status_line(const Scrape& before, const Scrape& after, double seconds);

}  // namespace baton
