#include "kernels/linear/gemm_table.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
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

// FNV-1a.
uint32_t digest_of(std::string_view text) {
  uint32_t digest = 2166136261U;
  for (const char c : text) digest = (digest ^ static_cast<uint8_t>(c)) * 16777619U;
  return digest;
}

bool starts_choice(const std::string& word) {
  return word == "cublas" || word == "skinny" || word == "stream";
}

// `fields` stand behind the kernel's name.
SmallChoice parse_choice(const std::string& kernel, std::istringstream& fields) {
  if (kernel == "cublas") return {SmallKernel::kCublas, {}};
  if (kernel == "skinny") return {SmallKernel::kSkinny, {}};
  SmallChoice choice{SmallKernel::kStream, {}};
  fields >> choice.plan.slices >> choice.plan.tile_rows;
  if (!fields || !is_stream_plan(choice.plan)) fields.setstate(std::ios::failbit);
  return choice;
}

void parse_line(const std::string& line, GemmTable* table) {
  std::istringstream fields(line);
  GemmKey key;
  std::string epilogue, word;
  fields >> key.rows >> key.cols >> key.bucket >> epilogue >> word;
  SmallChoice choice;
  GemmAlgorithm algorithm{};
  if (starts_choice(word)) {
    choice = parse_choice(word, fields);
  } else {
    std::istringstream first(word);
    first >> std::hex >> algorithm[0];
    if (!first) fields.setstate(std::ios::failbit);
    fields >> std::hex;
    for (size_t i = 1; i < algorithm.size(); ++i) fields >> algorithm[i];
  }
  if (!fields) throw ConfigError("GEMM table: cannot read the line '" + line + "'");
  key.epilogue = parse_epilogue(epilogue);
  if (starts_choice(word)) {
    table->small[key] = choice;
  } else {
    table->algorithms[key] = algorithm;
  }
}

// "rows cols tokens_max epilogue words... microseconds"
std::string table_line(const GemmKey& key, const std::string& words, double time_us) {
  char time[32];
  std::snprintf(time, sizeof(time), " %.1f", time_us);
  return std::to_string(key.rows) + ' ' + std::to_string(key.cols) + ' ' +
         std::to_string(key.bucket) + ' ' + gemm_epilogue_name(key.epilogue) + words + time;
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

int32_t small_token_bucket(int32_t num_tokens) {
  return static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(std::max(num_tokens, 8))));
}

GemmTable parse_gemm_table(std::string_view text) {
  GemmTable table{.digest = digest_of(text)};
  std::istringstream lines{std::string(text)};
  std::string line;
  if (!std::getline(lines, line)) throw ConfigError("GEMM table: it is empty");
  std::istringstream head(line);
  head >> table.library_version >> std::ws;
  std::getline(head, table.gpu_name);
  if (table.library_version == 0 || table.gpu_name.empty()) {
    throw ConfigError("GEMM table: got first line '" + line + "', want '<version> <GPU name>'");
  }
  while (std::getline(lines, line)) parse_line(line, &table);
  return table;
}

std::string gemm_table_line(const GemmKey& key, const GemmAlgorithm& algorithm, double time_us) {
  std::ostringstream words;
  words << std::hex;
  for (const uint64_t word : algorithm) words << ' ' << word;
  return table_line(key, words.str(), time_us);
}

std::string gemm_table_line(const GemmKey& key, const SmallChoice& choice, double time_us) {
  return table_line(key, ' ' + small_choice_name(choice), time_us);
}

std::string small_choice_name(const SmallChoice& choice) {
  switch (choice.kernel) {
    case SmallKernel::kCublas:
      return "cublas";
    case SmallKernel::kSkinny:
      return "skinny";
    case SmallKernel::kStream:
      return "stream " + std::to_string(choice.plan.slices) + ' ' +
             std::to_string(choice.plan.tile_rows);
  }
  return "";
}

std::string_view shipped_gemm_table(const std::string& gpu_name) {
  for (const std::string_view text : shipped_gemm_tables()) {
    if (parse_gemm_table(text).gpu_name == gpu_name) return text;
  }
  return {};
}

GemmTable load_gemm_table(const std::string& path, const std::string& gpu_name) {
  if (path.empty()) {
    const std::string_view shipped = shipped_gemm_table(gpu_name);
    return shipped.empty() ? GemmTable{} : parse_gemm_table(shipped);
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw ConfigError("GEMM table: cannot read " + path);
  GemmTable table = parse_gemm_table(text.str());
  if (table.gpu_name != gpu_name) {
    throw ConfigError("GEMM table: " + path + " is of " + table.gpu_name + ", this is " + gpu_name);
  }
  return table;
}

}  // namespace baton
