// Encoding and decoding speed on one core.
//   tokenizer-bench FOLDER TEXT_FILE [SECONDS]    FOLDER holds a tokenizer.json
// Prints MB/s of text (10^6 bytes) in CPU time of the one thread, so that other load matters
// little: the best of the passes that fit into SECONDS (default 3).
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "model/text/tokenizer.h"

namespace baton {
namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Pass>
double best_seconds(double budget_s, Pass pass) {
  const double start_s = cpu_seconds();
  double best_s = 1e9;
  do {
    const double pass_start_s = cpu_seconds();
    pass();
    best_s = std::min(best_s, cpu_seconds() - pass_start_s);
  } while (cpu_seconds() - start_s < budget_s);
  return best_s;
}

int run(const char* folder, const char* text_path, double budget_s) {
#ifndef NDEBUG
  std::printf("warning: not an optimised build\n");
#endif
  const double load_start_s = cpu_seconds();
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer_json(folder);
  const double load_s = cpu_seconds() - load_start_s;
  std::ifstream file(text_path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<int32_t> ids;
  const double encode_s =
      best_seconds(budget_s, [&] { ids = tokenizer->encode(text, {}).value(); });
  size_t decoded_bytes = 0;
  const double decode_s =
      best_seconds(budget_s, [&] { decoded_bytes = decode(*tokenizer, ids, false).size(); });
  std::printf("load %.2f s, vocabulary %d\n", load_s, tokenizer->vocab_size());
  std::printf("encode %.1f MB/s, %.1f M tokens/s: %zu bytes, %zu tokens\n",
              static_cast<double>(text.size()) / encode_s / 1e6,
              static_cast<double>(ids.size()) / encode_s / 1e6, text.size(), ids.size());
  std::printf("decode %.1f MB/s\n", static_cast<double>(decoded_bytes) / decode_s / 1e6);
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: tokenizer-bench FOLDER TEXT_FILE [SECONDS]\n");
    return 2;
  }
  try {
    return baton::run(argv[1], argv[2], argc == 4 ? std::atof(argv[3]) : 3);
  } catch (const baton::ConfigError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
