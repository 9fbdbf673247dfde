#include "cli/bench.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>

#include "base/build_info.h"
#include "base/status.h"
#include "cli/bench_client.h"
#include "cli/bench_report.h"

namespace baton {

namespace {

void show_progress(const LoadProgress& progress) {
  const double seconds = static_cast<double>(progress.elapsed_us) / 1e6;
  std::fprintf(stderr, "\r%6.1f s  %d running  %d done  %d refused  %d failed  %.0f tokens/s   ",
               seconds, progress.running, progress.done, progress.refused, progress.failed,
               seconds > 0 ? static_cast<double>(progress.tokens) / seconds : 0);
}

void run_bench(BenchOptions options) {
  if (options.seed == 0) options.seed = std::random_device()();
  if (options.rate <= 0 && options.concurrency == 0) options.concurrency = 8;
  const std::string model = options.model.empty() ? first_model(options.url) : options.model;
  const BuildInfo build = build_info();
  std::printf("baton bench: %s, commit %s, %s\n", machine_name().c_str(), build.commit.c_str(),
              build.build_type.c_str());
  if (build.build_type != "Release") std::printf("warning: this is no Release build\n");
  std::printf("%d requests, %s, prompts %s (%s), outputs %s, seed %llu\n", options.requests,
              options.rate > 0
                  ? ("open loop, " + std::to_string(options.rate) + " requests/s Poisson").c_str()
                  : ("closed loop, " + std::to_string(options.concurrency) + " at once").c_str(),
              options.prompt_lengths.c_str(), options.prompts.c_str(),
              options.output_lengths.c_str(), static_cast<unsigned long long>(options.seed));

  const std::vector<PlannedRequest> plan = plan_workload(options, model);
  const bool progress = !options.quiet && isatty(STDERR_FILENO) != 0;
  const auto records = run_load(
      options, plan, progress ? show_progress : std::function<void(const LoadProgress&)>());
  if (progress) std::fprintf(stderr, "\r\033[K");

  const BenchReport report = summarize(options, records);
  std::fputs(report_text(options, report).c_str(), stdout);
  if (!options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << report_json(options, report, model) << "\n";
    if (!file) throw ConfigError("--json: cannot write " + options.json_file);
  }
  if (report.failed > 0) throw CLI::RuntimeError(1);
}

}  // namespace

void add_bench_command(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* bench =
      app.add_subcommand("bench", "Load a server and report TTFT, TPOT, ITL, E2E and goodput");
  bench->add_option("--url", options->url, "Server")->capture_default_str();
  bench->add_option("--model", options->model, "Model name; default: the first one served");
  bench->add_option("--endpoint", options->endpoint, "completions or chat")
      ->check(CLI::IsMember({"completions", "chat"}));
  bench->add_option("--prompts", options->prompts, "tokens (random ids) or text")
      ->check(CLI::IsMember({"tokens", "text"}));
  bench
      ->add_option("--prompt-lengths", options->prompt_lengths,
                   "fixed:N, uniform:A,B, lognormal:MEAN,SIGMA")
      ->capture_default_str();
  bench->add_option("--output-lengths", options->output_lengths, "likewise")->capture_default_str();
  bench->add_option("--prompt-max", options->prompt_max, "Clip prompt lengths here");
  bench->add_option("--output-max", options->output_max, "Clip output lengths here");
  bench->add_option("--token-id-min", options->token_id_min, "Smallest random token id")
      ->capture_default_str();
  bench->add_option("--token-id-max", options->token_id_max, "Largest random token id")
      ->capture_default_str();
  bench->add_option("--shared-prefix", options->shared_prefix,
                    "Share of each prompt that all have in common, 0..1");
  bench->add_option("--requests", options->requests, "How many")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000'000));
  bench->add_option("--rate", options->rate,
                    "Requests a second, Poisson, open loop; 0 = closed loop");
  bench->add_option("--concurrency", options->concurrency,
                    "Requests at once; default 8 in a closed loop, no cap in an open one");
  bench->add_option("--temperature", options->temperature, "Sampling temperature")
      ->capture_default_str();
  bench->add_option("--seed", options->seed, "Of the load; 0 = random, printed");
  bench->add_option("--slo-ttft-ms", options->slo_ttft_ms, "Goodput: TTFT at most")
      ->capture_default_str();
  bench->add_option("--slo-tpot-ms", options->slo_tpot_ms, "Goodput: TPOT at most")
      ->capture_default_str();
  bench->add_option("--timeout-s", options->timeout_s, "Of one request")->capture_default_str();
  bench->add_flag("--retry", options->retry,
                  "Send refused requests (429, 503) again when their Retry-After says so");
  bench->add_option("--json", options->json_file, "Write the report here, too");
  bench->add_flag("--quiet", options->quiet, "No progress line");
  bench->callback([options] {
    if (options->prompts == "tokens" && options->endpoint == "chat") options->prompts = "text";
    run_bench(*options);
  });
}

}  // namespace baton
