// The log: one line an event on stderr, `2026-05-01T12:00:00.123Z info link_up peer=10.0.0.2:7100
// role=decode`. Thread-safe; a line is one write(). Never waits and never fails: a line that stderr
// does not take at once (a pipe that nobody reads, a full disk) is lost, and the next one that goes
// out says how many were. The level and that count are the state that a whole process shares.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace baton {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError };

// A value as text; numbers and booleans are turned into it on the spot.
class LogValue {
 public:
  LogValue(std::string_view text) : text_(text) {}
  LogValue(const std::string& text) : text_(text) {}
  LogValue(const char* text) : text_(text) {}
  LogValue(bool value) : text_(value ? "true" : "false") {}
  template <typename T>
  requires std::is_integral_v<T> LogValue(T value) : text_(std::to_string(value)) {}
  LogValue(double value);  // six significant digits
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct LogField {
  std::string_view key;
  LogValue value;
};
using LogFields = std::initializer_list<LogField>;

// What is below is not written. At start: kInfo.
void set_log_level(LogLevel level);

void log_debug(std::string_view event, LogFields fields = {});
void log_info(std::string_view event, LogFields fields = {});
void log_warn(std::string_view event, LogFields fields = {});
void log_error(std::string_view event, LogFields fields = {});

// The line without its end. A value with blanks, quotes, '=' or control characters is quoted and
// escaped as in JSON, so that whatever a client sent stays on one line.
std::string format_log_line(int64_t unix_ms, LogLevel level, std::string_view event,
                            LogFields fields);

}  // namespace baton
