#include "cli/bench_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "cli/http_get.h"

namespace baton {

namespace {

using Easy = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

// One request in flight: its connection and what has arrived of its event stream.
struct Stream {
  const Clock* clock = nullptr;
  size_t index = 0;  // of the plan
  RequestRecord* record = nullptr;
  int64_t* tokens = nullptr;  // of the whole run
  Easy easy{nullptr, &curl_easy_cleanup};
  std::string pending;  // bytes of an unfinished line
  std::string other;    // a body that is no event stream: the error
  bool done = false;    // [DONE] was seen

  void on_event(std::string_view data) {
    if (data == "[DONE]") {
      done = true;
      return;
    }
    const auto event = nlohmann::json::parse(data, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) {
      record->error = "event is no JSON object: " + std::string(data.substr(0, 80));
      return;
    }
    if (event.contains("error")) record->error = event["error"].value("message", "error event");
    if (auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
      record->prompt_tokens = usage->value("prompt_tokens", 0);
      record->output_tokens = usage->value("completion_tokens", 0);
      const auto details = usage->find("prompt_tokens_details");
      if (details != usage->end() && details->is_object())
        record->cached_tokens = details->value("cached_tokens", 0);
    }
    const auto choices = event.find("choices");
    if (choices == event.end() || choices->empty()) return;
    if (!carries_token((*choices)[0])) return;
    const int64_t now = clock->now_us();
    if (record->first_us == 0) record->first_us = now;
    record->chunk_us.push_back(now);
    ++*tokens;
  }

  // The role chunk of a chat comes with the first token's and is none itself.
  static bool carries_token(const nlohmann::json& choice) {
    if (const auto delta = choice.find("delta"); delta != choice.end()) {
      return delta->contains("content") && (*delta)["content"].is_string() &&
             !(*delta)["content"].empty() &&
             !(*delta)["content"].get_ref<const std::string&>().empty();
    }
    return true;
  }

  void on_bytes(std::string_view bytes) {
    pending.append(bytes);
    size_t end = 0;
    while ((end = pending.find('\n')) != std::string::npos) {
      std::string_view line(pending.data(), end);
      if (line.starts_with("data: ")) {
        on_event(line.substr(6));
      } else if (!line.empty()) {
        other.append(line);
      }
      pending.erase(0, end + 1);
    }
  }

  static size_t write(char* data, size_t size, size_t count, void* user) {
    auto* stream = static_cast<Stream*>(user);
    try {
      stream->on_bytes({data, size * count});
    } catch (const nlohmann::json::exception& error) {
      stream->record->error = std::string("unexpected event: ") + error.what();
      return 0;  // ends this transfer; an exception must not cross libcurl
    }
    return size * count;
  }

  void finish(CURLcode code) {
    record->end_us = clock->now_us();
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &record->http_status);
    if (!record->error.empty()) return;
    if (code != CURLE_OK) {
      record->error = curl_easy_strerror(code);
    } else if (record->http_status != 200) {
      record->error =
          "HTTP " + std::to_string(record->http_status) + ": " + (other + pending).substr(0, 200);
    } else if (!done && record->error.empty()) {
      record->error = "the stream ended without [DONE]";
    }
  }
};

class Load {
 public:
  Load(const BenchOptions& options, const std::vector<PlannedRequest>& plan)
      : options_(options), plan_(plan), records_(plan.size()), multi_(curl_multi_init()) {
    headers_ = curl_slist_append(nullptr, "Content-Type: application/json");
    url_ = options.url + (options.endpoint == "chat" ? "/v1/chat/completions" : "/v1/completions");
  }
  ~Load() {
    streams_.clear();
    curl_slist_free_all(headers_);
    curl_multi_cleanup(multi_);
  }

  std::vector<RequestRecord> run(const std::function<void(const LoadProgress&)>& on_progress) {
    begin_us_ = clock_.now_us();
    int64_t next_progress_us = begin_us_;
    while (next_ < plan_.size() || !streams_.empty() || !retries_.empty()) {
      const int64_t now = clock_.now_us();
      const int64_t wait_us = start_due(now);
      if (now >= next_progress_us) {
        progress_.elapsed_us = now - begin_us_;
        progress_.running = static_cast<int32_t>(streams_.size());
        if (on_progress) on_progress(progress_);
        next_progress_us = now + 500'000;
      }
      int running = 0;
      curl_multi_perform(multi_, &running);
      // What has ended makes room for the next: no waiting then.
      const bool ended = collect();
      const auto wait_ms = static_cast<int>(wait_us / 1000);
      curl_multi_poll(multi_, nullptr, 0, ended ? 0 : std::max(wait_ms, 1), nullptr);
    }
    return std::move(records_);
  }

 private:
  // Sends what is due; returns how long nothing else will be (at most 100 ms).
  int64_t start_due(int64_t now) {
    const bool open_loop = options_.rate > 0;
    while (!retries_.empty() && retries_.begin()->first <= now) {
      const size_t index = retries_.begin()->second;
      retries_.erase(retries_.begin());
      ++records_[index].retries;
      send(index);
    }
    while (next_ < plan_.size()) {
      const int64_t due = begin_us_ + plan_[next_].start_us;
      if (open_loop && due > now) return std::min<int64_t>(due - now, 100'000);
      const auto cap = static_cast<size_t>(options_.concurrency);
      if (streams_.size() >= cap && (!open_loop || cap > 0)) return 100'000;
      records_[next_].start_us = open_loop ? due : now;
      send(next_++);
    }
    return 100'000;
  }

  void send(size_t index) {
    auto stream = std::make_unique<Stream>();
    stream->clock = &clock_;
    stream->index = index;
    stream->record = &records_[index];
    stream->tokens = &progress_.tokens;
    stream->easy.reset(curl_easy_init());
    CURL* easy = stream->easy.get();
    const std::string& body = plan_[index].body;
    curl_easy_setopt(easy, CURLOPT_URL, url_.c_str());
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers_);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.c_str());
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Stream::write);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, stream.get());
    curl_easy_setopt(easy, CURLOPT_PRIVATE, stream.get());
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(options_.timeout_s * 1000));
    curl_multi_add_handle(multi_, easy);
    streams_.push_back(std::move(stream));
    ++progress_.sent;
  }

  bool collect() {
    int left = 0;
    bool ended = false;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      ended = true;
      Stream* stream = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &stream);
      stream->finish(message->data.result);
      if (!retry_later(*stream)) count(*stream->record);
      curl_multi_remove_handle(multi_, message->easy_handle);
      std::erase_if(streams_, [&](const auto& entry) { return entry.get() == stream; });
    }
    return ended;
  }

  void count(const RequestRecord& record) {
    if (record.error.empty()) {
      ++progress_.done;
    } else {
      ++(record.refused() ? progress_.refused : progress_.failed);
    }
  }

  // Its latency goes on counting from its first try.
  bool retry_later(const Stream& stream) {
    RequestRecord& record = *stream.record;
    if (!options_.retry || !record.refused()) return false;
    curl_off_t after_s = 0;
    curl_easy_getinfo(stream.easy.get(), CURLINFO_RETRY_AFTER, &after_s);
    const int64_t due_us = record.end_us + std::max<int64_t>(after_s, 1) * 1'000'000;
    const auto timeout_us = static_cast<int64_t>(options_.timeout_s * 1e6);
    if (due_us - record.start_us > timeout_us) return false;
    record.error.clear();
    retries_.emplace(due_us, stream.index);
    return true;
  }

  const BenchOptions& options_;
  const std::vector<PlannedRequest>& plan_;
  std::vector<RequestRecord> records_;
  SystemClock clock_;
  CURLM* multi_;
  curl_slist* headers_ = nullptr;
  std::string url_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::multimap<int64_t, size_t> retries_;  // when -> which of the plan
  LoadProgress progress_;
  int64_t begin_us_ = 0;
  size_t next_ = 0;
};

}  // namespace

std::vector<RequestRecord> run_load(const BenchOptions& options,
                                    const std::vector<PlannedRequest>& plan,
                                    const std::function<void(const LoadProgress&)>& on_progress) {
  return Load(options, plan).run(on_progress);
}

std::string first_model(const std::string& url) {
  const std::string address = url + "/v1/models";
  const HttpText answer = http_get(address);
  if (answer.status == 0) throw ConfigError("--url: " + address + ": " + answer.error);
  const auto reply = nlohmann::json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json::json_pointer id("/data/0/id");
  if (!reply.is_object() || !reply.contains(id) || !reply[id].is_string()) {
    throw ConfigError("--url: " + address + " lists no model, got: " + answer.body.substr(0, 120));
  }
  return reply[id];
}

}  // namespace baton
