#include "cli/bench_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/build_info.h"

namespace baton {

namespace {

nlohmann::json to_json(const Percentiles& p) {
  return {{"mean", p.mean}, {"p50", p.p50}, {"p95", p.p95}, {"p99", p.p99}};
}

std::string row(const char* name, const Percentiles& p) {
  char line[128];
  std::snprintf(line, sizeof line, "  %-8s %10.2f %10.2f %10.2f %10.2f\n", name, p.mean, p.p50,
                p.p95, p.p99);
  return line;
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {sum / static_cast<double>(values.size()), at(0.50), at(0.95), at(0.99)};
}

BenchReport summarize(const BenchOptions& options, const std::vector<RequestRecord>& records) {
  BenchReport report;
  std::vector<double> ttft, tpot, itl, e2e;
  int64_t begin = INT64_MAX;
  int64_t end = 0;
  int32_t good = 0;
  for (const RequestRecord& record : records) {
    begin = std::min(begin, record.start_us);
    end = std::max(end, record.end_us);
    report.retries += record.retries;
    if (!record.error.empty() && record.refused()) {
      ++report.refused;
      continue;
    }
    if (!record.error.empty()) {
      ++report.failed;
      const auto& seen = report.errors;
      const bool known = std::find(seen.begin(), seen.end(), record.error) != seen.end();
      if (!known && seen.size() < 5) report.errors.push_back(record.error);
      continue;
    }
    ++report.completed;
    report.prompt_tokens += record.prompt_tokens;
    report.cached_tokens += record.cached_tokens;
    report.output_tokens += record.output_tokens;
    const auto ms = [&](int64_t later, int64_t earlier) {
      return static_cast<double>(later - earlier) / 1000;
    };
    ttft.push_back(ms(record.first_us, record.start_us));
    e2e.push_back(ms(record.end_us, record.start_us));
    for (size_t i = 1; i < record.chunk_us.size(); ++i)
      itl.push_back(ms(record.chunk_us[i], record.chunk_us[i - 1]));
    double own_tpot = 0;
    if (record.output_tokens > 1 && !record.chunk_us.empty()) {
      own_tpot = ms(record.chunk_us.back(), record.first_us) / (record.output_tokens - 1);
      tpot.push_back(own_tpot);
    }
    if (ttft.back() <= options.slo_ttft_ms && own_tpot <= options.slo_tpot_ms) ++good;
  }
  report.duration_s = records.empty() ? 0 : static_cast<double>(end - begin) / 1e6;
  if (report.duration_s > 0) report.goodput_rps = good / report.duration_s;
  report.ttft_ms = percentiles(std::move(ttft));
  report.tpot_ms = percentiles(std::move(tpot));
  report.itl_ms = percentiles(std::move(itl));
  report.e2e_ms = percentiles(std::move(e2e));
  return report;
}

std::string report_text(const BenchOptions& options, const BenchReport& report) {
  char line[256];
  std::string text;
  std::snprintf(line, sizeof line,
                "%d completed, %d refused (429 or 503), %d failed, %d retries in %.2f s: "
                "%.2f requests/s\n",
                report.completed, report.refused, report.failed, report.retries, report.duration_s,
                report.completed / std::max(report.duration_s, 1e-9));
  text += line;
  std::snprintf(line, sizeof line, "prompt %.1f tokens/s (%.0f %% cached), output %.1f tokens/s\n",
                static_cast<double>(report.prompt_tokens) / std::max(report.duration_s, 1e-9),
                100.0 * static_cast<double>(report.cached_tokens) /
                    std::max<double>(static_cast<double>(report.prompt_tokens), 1),
                static_cast<double>(report.output_tokens) / std::max(report.duration_s, 1e-9));
  text += line;
  text += "  ms             mean        p50        p95        p99\n";
  text += row("TTFT", report.ttft_ms) + row("TPOT", report.tpot_ms) + row("ITL", report.itl_ms) +
          row("E2E", report.e2e_ms);
  std::snprintf(line, sizeof line,
                "goodput %.2f requests/s inside TTFT <= %.0f ms and TPOT <= %.0f ms\n",
                report.goodput_rps, options.slo_ttft_ms, options.slo_tpot_ms);
  text += line;
  for (const std::string& error : report.errors) text += "error: " + error + "\n";
  return text;
}

std::string report_json(const BenchOptions& options, const BenchReport& report,
                        const std::string& model) {
  const BuildInfo build = build_info();
  const nlohmann::json json = {
      {"machine", machine_name()},
      {"commit", build.commit},
      {"build_type", build.build_type},
      {"model", model},
      {"url", options.url},
      {"endpoint", options.endpoint},
      {"prompts", options.prompts},
      {"prompt_lengths", options.prompt_lengths},
      {"output_lengths", options.output_lengths},
      {"requests", options.requests},
      {"rate", options.rate},
      {"concurrency", options.concurrency},
      {"seed", options.seed},
      {"completed", report.completed},
      {"failed", report.failed},
      {"refused", report.refused},
      {"retries", report.retries},
      {"retry", options.retry},
      {"duration_s", report.duration_s},
      {"prompt_tokens", report.prompt_tokens},
      {"cached_tokens", report.cached_tokens},
      {"output_tokens", report.output_tokens},
      {"output_tokens_per_s",
       static_cast<double>(report.output_tokens) / std::max(report.duration_s, 1e-9)},
      {"ttft_ms", to_json(report.ttft_ms)},
      {"tpot_ms", to_json(report.tpot_ms)},
      {"itl_ms", to_json(report.itl_ms)},
      {"e2e_ms", to_json(report.e2e_ms)},
      {"slo", {{"ttft_ms", options.slo_ttft_ms}, {"tpot_ms", options.slo_tpot_ms}}},
      {"goodput_rps", report.goodput_rps},
      {"errors", report.errors}};
  return json.dump(2);
}

}  // namespace baton
