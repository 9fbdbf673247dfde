#include "kernels/linear/gemm_table.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <sstream>

#include "base/status.h"
#include "kernels/linear/gemm_tables.h"

namespace baton {
namespace {

GemmEpilogue parse_epilogue(const std::string& name) {
  for (const auto epilogue : {GemmEpilogue::kStore, GemmEpilogue::kAdd, GemmEpilogue::kFloat}) {
    if (name == gemm_epilogue_name(epilogue)) return epilogue;
  }
  throw ConfigError("GEMM table: got epilogue '" + name + "', want store, add or float");
}

}  // namespace

const char* gemm_epilogue_name(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::kStore:
      return "store";
    case GemmEpilogue::kAdd:
      return "add";
    case GemmEpilogue::kFloat:
      return "float";
  }
  return "";
}

int32_t gemm_token_bucket(int32_t num_tokens) {
  const auto bounded = static_cast<uint32_t>(std::clamp(num_tokens, kSmallTokens, kLargeTokens));
  return static_cast<int32_t>(std::bit_ceil(bounded));
}

GemmTable parse_gemm_table(std::string_view text) {
  GemmTable table;
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line)) throw ConfigError("GEMM table: it is empty");
  std::istringstream head(line);
  head >> table.library_version >> std::ws;
  std::getline(head, table.gpu_name);
  if (table.library_version == 0 || table.gpu_name.empty()) {
    throw ConfigError("GEMM table: got first line '" + line + "', want '<version> <GPU name>'");
  }
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    GemmKey key;
    std::string epilogue;
    GemmAlgorithm algorithm{};
    fields >> key.rows >> key.cols >> key.bucket >> epilogue >> std::hex;
    for (uint64_t& word : algorithm) fields >> word;
    if (!fields) throw ConfigError("GEMM table: cannot read the line '" + line + "'");
    key.epilogue = parse_epilogue(epilogue);
    table.algorithms[key] = algorithm;
  }
  return table;
}

std::string gemm_table_line(const GemmKey& key, const GemmAlgorithm& algorithm, double time_us) {
  std::ostringstream line;
  line << key.rows << ' ' << key.cols << ' ' << key.bucket << ' '
       << gemm_epilogue_name(key.epilogue) << std::hex;
  for (const uint64_t word : algorithm) line << ' ' << word;
  char time[32];
  std::snprintf(time, sizeof(time), " %.1f", time_us);
  return line.str() + time;
}

GemmTable shipped_gemm_table(const std::string& gpu_name) {
  for (const std::string_view text : shipped_gemm_tables()) {
    GemmTable table = parse_gemm_table(text);
    if (table.gpu_name == gpu_name) return table;
  }
  return {};
}

}  // namespace baton
