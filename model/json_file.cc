#include "model/json_file.h"

#include <filesystem>
#include <fstream>
#include <unordered_set>
#include <vector>

#include "base/status.h"

namespace baton {
namespace {

using Json = nlohmann::json;

// Sees each event of the (iterative) parser before a value is built from it.
class ParseGuard {
 public:
  explicit ParseGuard(const std::string& subject) : subject_(subject) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= kJsonDepthMax) {
          throw ConfigError(subject_ + ": JSON nests deeper than " + std::to_string(kJsonDepthMax) +
                            " levels");
        }
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
          throw ConfigError(subject_ + ": JSON key '" +
                            parsed.get_ref<const std::string&>().substr(0, 100) +
                            "' appears twice in one object");
        }
        break;
      case Json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  const std::string& subject_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& subject) {
  try {
    ParseGuard guard(subject);
    return Json::parse(text.begin(), text.end(),
                       [&guard](int depth, Json::parse_event_t event, Json& parsed) {
                         return guard(depth, event, parsed);
                       });
  } catch (const Json::exception& error) {
    std::string reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, ..." -> without the tag.
    if (const size_t end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    throw ConfigError(subject + ": not valid JSON: " + reason.substr(0, 200));
  }
}

std::string read_text_file(const std::string& path, int64_t bytes_max) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) throw ConfigError(path + ": cannot read: " + error.message());
  if (static_cast<int64_t>(bytes) > bytes_max) {
    throw ConfigError(path + ": got " + std::to_string(bytes) + " bytes, want at most " +
                      std::to_string(bytes_max));
  }
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    throw ConfigError(path + ": cannot read " + std::to_string(bytes) + " bytes");
  }
  return text;
}

nlohmann::json parse_json_file(const std::string& path) {
  return parse_json(read_text_file(path), path);
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

}  // namespace baton
