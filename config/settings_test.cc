#include "config/settings.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "base/scoped_fd.h"
#include "base/status.h"

#include "tests/doctest.h"

namespace baton {
namespace {

WorkerConfig worker(const std::vector<std::string>& arguments) {
  WorkerConfig config;
  REQUIRE_FALSE(read_settings("baton-worker", arguments, settings_of(config)).has_value());
  return config;
}

std::string error_of(const std::vector<std::string>& arguments) {
  WorkerConfig config;
  try {
    (void)read_settings("baton-worker", arguments, settings_of(config));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

// A file that goes away with the test.
struct File {
  explicit File(const std::string& text) {
    const ScopedFd file(mkstemp(path.data()));
    REQUIRE(file.valid());
    std::ofstream(path) << text;
  }
  ~File() { std::remove(path.c_str()); }
  std::string path = "/tmp/baton_settings_XXXXXX";
};

TEST_CASE("flags set values of every type") {
  const WorkerConfig config =
      worker({"--model", "m.gguf", "--role=decode", "--scheduler.step-tokens", "77",
              "--kv.pool-mib", "4096", "--decode.max-granted-share", "0.25",
              "--scheduler.prefix-cache", "false", "--token-file", "t"});
  CHECK(config.model == "m.gguf");
  CHECK(config.role == "decode");
  CHECK(config.scheduler.step_tokens == 77);
  CHECK(config.kv.pool_mib == 4096);
  CHECK(config.decode.max_granted_share == 0.25);
  CHECK_FALSE(config.scheduler.prefix_cache);
  CHECK(config.link.token_file == "t");
  CHECK(config.kvtransfer.require.empty());
}

TEST_CASE("a file takes nested and dotted names, and flags go before it") {
  const File file(R"({"scheduler": {"step_tokens": 11, "chunk_tokens": 5}, "kv.dtype": "f16",
                      "role": "prefill", "decode": {"max_landing_share": 1}})");
  const WorkerConfig config = worker({"--config", file.path, "--scheduler.step-tokens", "12"});
  CHECK(config.scheduler.step_tokens == 12);
  CHECK(config.scheduler.chunk_tokens == 5);
  CHECK(config.kv.dtype == "f16");
  CHECK(config.role == "prefill");
  CHECK(config.decode.max_landing_share == 1.0);
}

TEST_CASE("errors say field, got and want") {
  CHECK(error_of({"--scheduler.step-tokens", "-1"}) ==
        "scheduler.step_tokens: got \"-1\", want an integer from 0 to 1048576 (tokens)");
  CHECK(error_of({"--scheduler.step-tokens", "12x"}).find("got \"12x\"") != std::string::npos);
  CHECK(error_of({"--decode.max-granted-share", "1.5"}).find("from 0 to 1") != std::string::npos);
  CHECK(error_of({"--role", "cook"}) == "role: got \"cook\", want one of prefill, decode, both");
  CHECK(error_of({"--scheduler.prefix-cache", "maybe"}).find("true or false") != std::string::npos);
  CHECK(error_of({"--no-such-flag", "1"}).find("--no-such-flag") != std::string::npos);
  CHECK(error_of({"--config", "/nonexistent"}) == "config: cannot read /nonexistent");

  const auto file_error = [](const std::string& text) {
    const File file(text);
    const std::string error = error_of({"--config", file.path});
    return error.substr(error.find(": ") + 2);
  };
  CHECK(file_error(R"({"scheduler": {"step_token": 1}})") ==
        "got \"scheduler.step_token\", want a setting that --help lists");
  CHECK(file_error(R"({"scheduler": {"step_tokens": 1.5}})").find("got 1.5") == 0);
  CHECK(file_error(R"({"scheduler": {"step_tokens": 99999999999999999999}})").find("want") !=
        std::string::npos);
  CHECK(file_error(R"({"scheduler": {"step_tokens": "5"}})").find("got \"5\"") == 0);
  CHECK(file_error("[1]").find("want {...}") != std::string::npos);
  CHECK(file_error("{\"a\": ").find("not JSON") == 0);
}

TEST_CASE(
    "defaults are inside their ranges, names and flags are unique, and print-config comes back") {
  const auto check = [](auto config) {
    const auto settings = settings_of(config);
    std::set<std::string> names;
    for (const Setting& setting : settings) {
      CHECK(names.insert(setting.name).second);
      CHECK_FALSE(setting.help.empty());
    }
    const File file(settings_json(settings));
    auto copy = config;
    REQUIRE_FALSE(read_settings("p", {"--config", file.path}, settings_of(copy)).has_value());
    CHECK(settings_json(settings_of(copy)) == settings_json(settings));
  };
  check(WorkerConfig());
  check(RouterConfig());
}

TEST_CASE("help, print-config and the page of settings are texts") {
  RouterConfig config;
  const auto text = [&](const std::string& flag) {
    return read_settings("baton-router", {flag}, settings_of(config)).value_or("");
  };
  CHECK(text("--help").find("--http.port,--port") != std::string::npos);
  CHECK(text("--print-config").find("\"queue_max\": 1024") != std::string::npos);
  CHECK(text("--settings-markdown").find("| `kv.page_tokens` |") != std::string::npos);
}

TEST_CASE("a page of the program's own is printed instead of running") {
  RouterConfig config;
  const std::vector<Page> pages = {
      {"--metrics-markdown", "Print it.", [] { return std::string("p"); }}};
  CHECK(read_settings("p", {"--metrics-markdown"}, settings_of(config), pages) == "p");
  const auto help = read_settings("p", {"--help"}, settings_of(config), pages);
  CHECK(help.value_or("").find("--metrics-markdown") != std::string::npos);
  CHECK_FALSE(read_settings("p", {}, settings_of(config), pages).has_value());
}

TEST_CASE("a worker without a name takes its address; a model is needed") {
  std::string program = "baton-worker", flag = "--model", value = "m", listen = "--listen",
              address = "127.0.0.1:7", id = "w";
  char* argv[] = {program.data(), flag.data(), value.data(), listen.data(), address.data()};
  CHECK(parse_worker_config(5, argv).worker_id == "127.0.0.1:7");
  CHECK_THROWS_AS(parse_worker_config(1, argv), ConfigError);
}

// Seen on an H200: prompts went in chunks of 256 tokens, the CPU's, and took 1.4 times as long.
TEST_CASE("the tokens of a step are the device's unless they are set") {
  const auto tokens = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"baton-worker", "--model", "m"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    const SchedulerConfig config =
        parse_worker_config(static_cast<int>(argv.size()), argv.data()).scheduler;
    return std::vector<int32_t>{config.step_tokens, config.chunk_tokens, config.mixed_tokens};
  };
  CHECK(tokens({}) == std::vector<int32_t>{512, 256, 0});
  CHECK(tokens({"--device", "cuda:1"}) == std::vector<int32_t>{8192, 8192, 256});
  CHECK(tokens({"--device", "cuda", "--scheduler.step-tokens", "4096"}) ==
        std::vector<int32_t>{4096, 4096, 256});
  CHECK(tokens({"--device", "cuda", "--scheduler.chunk-tokens", "64", "--scheduler.mixed-tokens",
                "32"}) == std::vector<int32_t>{8192, 64, 32});
}

TEST_CASE(
    "threads linger on a GPU where processors are to spare, not on a CPU, unless it is said") {
  const auto linger_us = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"baton-worker", "--model", "m"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return parse_worker_config(static_cast<int>(argv.size()), argv.data()).loop_linger_us;
  };
  CHECK(linger_us({}) == 0);
  CHECK(linger_us({"--device", "cuda"}) == (std::thread::hardware_concurrency() >= 8 ? 1000 : 0));
  CHECK(linger_us({"--device", "cuda", "--loop-linger-us", "1000"}) == 1000);
  CHECK(linger_us({"--device", "cuda", "--loop-linger-us", "0"}) == 0);
}

TEST_CASE("deterministic on a GPU takes the clock out of the chunks") {
  const auto chunk_ms = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"baton-worker", "--model", "m"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    return parse_worker_config(static_cast<int>(argv.size()), argv.data()).scheduler.chunk_ms;
  };
  CHECK(chunk_ms({"--deterministic", "true", "--device", "cuda:1"}) == 0);
  CHECK(chunk_ms({"--deterministic", "true"}) == SchedulerConfig().chunk_ms);
  CHECK(chunk_ms({"--device", "cuda"}) == SchedulerConfig().chunk_ms);
}

}  // namespace
}  // namespace baton
