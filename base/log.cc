#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <ctime>
#include <mutex>

namespace baton {
namespace {

std::atomic<LogLevel> log_level{LogLevel::kInfo};
std::mutex write_mutex;  // one line at a time
int64_t lines_lost = 0;  // guarded by write_mutex

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

bool is_plain(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f)
      return false;
  return !text.empty();
}

void append_quoted(std::string_view text, std::string& line) {
  line += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      line += escaped;
    } else {
      line += c;
    }
  }
  line += '"';
}

// A pipe that is writable takes PIPE_BUF bytes without waiting; what is longer is cut.
bool write_at_once(std::string line) {
  line.resize(std::min<size_t>(line.size(), PIPE_BUF - 1));
  line += '\n';
  pollfd wait{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (::poll(&wait, 1, 0) != 1 || (wait.revents & POLLOUT) == 0) return false;
  return ::write(STDERR_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

void write_line(LogLevel level, std::string_view event, LogFields fields) {
  if (level < log_level.load(std::memory_order_relaxed)) return;
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const int64_t unix_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  const std::string line = format_log_line(unix_ms, level, event, fields);
  const std::lock_guard lock(write_mutex);
  if (lines_lost > 0 && write_at_once(format_log_line(unix_ms, LogLevel::kWarn, "log_lines_lost",
                                                      {{"count", lines_lost}}))) {
    lines_lost = 0;
  }
  if (!write_at_once(line)) ++lines_lost;
}

}  // namespace

LogValue::LogValue(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  text_ = text;
}

void set_log_level(LogLevel level) {
  log_level = level;
}

void log_debug(std::string_view event, LogFields fields) {
  write_line(LogLevel::kDebug, event, fields);
}
void log_info(std::string_view event, LogFields fields) {
  write_line(LogLevel::kInfo, event, fields);
}
void log_warn(std::string_view event, LogFields fields) {
  write_line(LogLevel::kWarn, event, fields);
}
void log_error(std::string_view event, LogFields fields) {
  write_line(LogLevel::kError, event, fields);
}

std::string format_log_line(int64_t unix_ms, LogLevel level, std::string_view event,
                            LogFields fields) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char day_and_time[32];
  std::strftime(day_and_time, sizeof day_and_time, "%Y-%m-%dT%H:%M:%S", &utc);
  char time[40];
  std::snprintf(time, sizeof time, "%s.%03dZ", day_and_time, static_cast<int>(unix_ms % 1000));

  std::string line = time;
  line += ' ';
  line += level_name(level);
  line += ' ';
  line += event;
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    if (is_plain(field.value.text())) {
      line += field.value.text();
    } else {
      append_quoted(field.value.text(), line);
    }
  }
  return line;
}

}  // namespace baton
