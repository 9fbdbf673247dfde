#include "router/request.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "router/openai_error.h"

namespace baton {

ClientRequest::ClientRequest(const RequestContext& context, ApiRequest api, RequestOrigin origin,
                             std::shared_ptr<HttpReply> reply)
    : context_(context),
      api_(std::move(api)),
      origin_(std::move(origin)),
      reply_(std::move(reply)),
      writer_(api_.kind, origin_.id, unix_time_s(), origin_.model_name),
      prompts_(api_.prompts.size()) {
  const Tokenizer& tokenizer = *context_.model.tokenizer;
  const auto options = std::make_shared<const TextOutputOptions>(
      TextOutputOptions{.stop = api_.stop,
                        .include_stop = api_.include_stop,
                        .skip_special_tokens = api_.skip_special_tokens,
                        .min_tokens = api_.spec.min_tokens});
  choices_.reserve(api_.prompts.size() * static_cast<size_t>(api_.spec.n));
  for (const std::vector<TokenId>& prompt : api_.prompts) {
    usage_.prompt_tokens += std::ssize(prompt);
    for (int32_t i = 0; i < api_.spec.n; ++i) {
      choices_.push_back({
          .output = TextOutput(tokenizer, options),
          .logprobs = ChoiceLogprobs(tokenizer, api_.kind, api_.tokens_as_ids),
      });
    }
  }
}

void ClientRequest::start() {
  const Admission admission = submit_all();
  if (!admission.status.ok()) {
    done_ = true;
    count("error");
    context_.refusals.add(origin_.id, origin_.traceparent, admission.status);
    reply_->send(error_response(admission.status, admission.retry_after_s));
    return;
  }
  reply_->on_gone([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr || self->done_) return;
    self->cancel_all();
    self->report("abort");
  });
}

Admission ClientRequest::submit_all() {
  const Admission room = context_.dispatcher.admit(api_.prompts.size());
  if (!room.status.ok()) return room;
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < api_.prompts.size(); ++i) {
    const GenerationRequest& request = requests.emplace_back(generation_request(i));
    const int64_t prompt_tokens = std::ssize(request.prompt);
    const Status fits =
        context_.placement.fits(prompt_tokens, prompt_tokens + request.spec.max_tokens);
    if (!fits.ok()) return {fits};
    const Status sendable = Dispatcher::sendable(request.spec, request.prompt.size());
    if (!sendable.ok()) return {sendable};
  }
  // The answer's first token is the first prompt's.
  const Admission in_time =
      context_.dispatcher.admit_in_time(requests.front(), origin_.received_us);
  if (!in_time.status.ok()) return in_time;
  for (GenerationRequest& request : requests) {
    generations_.push_back(context_.dispatcher.submit(std::move(request), shared_from_this()));
  }
  return {};
}

GenerationRequest ClientRequest::generation_request(size_t prompt_index) const {
  return {.spec = spec_of(prompt_index),
          .prompt = api_.prompts[prompt_index],
          .prompt_index = static_cast<int32_t>(prompt_index),
          .prompt_only = api_.no_output};
}

SamplingSpec ClientRequest::spec_of(size_t prompt_index) const {
  SamplingSpec spec = api_.spec;
  spec.max_tokens = api_.max_tokens(prompt_index, origin_.context_len);
  if (!api_.max_tokens_set) {
    // "As much as there is room for" is also bounded by the pools.
    const int64_t largest = context_.placement.largest_total();
    const int64_t room = largest - std::ssize(api_.prompts[prompt_index]);
    if (largest > 0 && room > 0) spec.max_tokens = std::min<int64_t>(spec.max_tokens, room);
  }
  if (!api_.seed_set) spec.seed = origin_.seed + prompt_index;
  return spec;
}

void ClientRequest::measure(Choice& choice) {
  const int64_t now_us = context_.clock.now_us();
  if (usage_.completion_tokens == 0) {
    context_.metrics.first_token(split_ttft(origin_.received_us, first_token_times_, now_us));
  } else if (choice.last_token_us != 0) {
    context_.metrics.next_token(static_cast<double>(now_us - choice.last_token_us) * 1e-6);
  }
  if (choice.first_token_us == 0) choice.first_token_us = now_us;
  choice.last_token_us = now_us;
  ++usage_.completion_tokens;
}

void ClientRequest::measure_end(const Choice& choice) {
  const int64_t gaps = choice.output.tokens() - 1;
  if (gaps < 1) return;
  const int64_t took_us = choice.last_token_us - choice.first_token_us;
  context_.metrics.choice_done(static_cast<double>(took_us) * 1e-6 / static_cast<double>(gaps));
}

bool ClientRequest::on_token(int32_t prompt_index, const TokenEvent& event) {
  const int32_t index = prompt_index * api_.spec.n + event.choice;
  Choice& choice = choices_[static_cast<size_t>(index)];
  measure(choice);
  const bool more = choice.output.push(event);
  if (!api_.no_output) {
    if (api_.logprobs) {
      if (choice.output.tokens() == 1) add_echo(index, choice);
      choice.logprobs.add(event);
    }
    if (api_.return_token_ids) choice.token_ids.push_back(event.token);
  }
  if (api_.stream) {
    stream(index, choice);
  } else {
    choice.text += choice.output.take_text();
  }
  if (choice.output.finish() != FinishReason::kNone) {
    measure_end(choice);
    if (++ended_ == choices_.size()) complete();
  }
  return more;
}

void ClientRequest::stream(int32_t index, Choice& choice) {
  if (!streaming_) reply_->start_events();
  streaming_ = true;
  const UsageCounts* usage = api_.usage_in_every_chunk ? &usage_ : nullptr;
  std::string echo;
  if (!choice.started && api_.kind == ApiKind::kChat) {
    reply_->write(writer_.role_chunk(index, usage));
  } else if (!choice.started && api_.echo) {
    echo = api_.echoed[static_cast<size_t>(index / api_.spec.n)];
  }
  choice.started = true;
  // A token that shows nothing yet makes no chunk: clients count chunks as tokens.
  const bool ended = choice.output.finish() != FinishReason::kNone;
  if (!choice.output.has_text() && echo.empty() && !ended) return;
  ChoicePart part = part_of(index, choice);
  if (!echo.empty()) part.text.insert(0, echo);
  if (api_.return_workers && !std::exchange(workers_told_, true)) part.workers = &workers_;
  reply_->write(writer_.chunk(part, usage));
}

ChoicePart ClientRequest::part_of(int32_t index, Choice& choice) {
  const FinishReason finish = choice.output.finish();
  ChoicePart part{.index = index, .finish = finish};
  if (!api_.no_output) {
    part.text = choice.text + choice.output.take_text();
    part.stop_reason = choice.output.stop_reason();
  } else if (finish != FinishReason::kNone) {
    part.finish = FinishReason::kLength;
  }
  if (api_.logprobs) {
    if (api_.no_output) add_echo(index, choice);
    part.logprobs = choice.logprobs.take();
  }
  if (api_.return_token_ids) part.token_ids = std::exchange(choice.token_ids, {});
  return part;
}

// Puts an echoed prompt's tokens before the choice's own.
void ClientRequest::add_echo(int32_t index, Choice& choice) {
  if (!api_.echo) return;
  const auto prompt_index = static_cast<size_t>(index / api_.spec.n);
  const Prompt& scored = prompts_[prompt_index];
  const std::vector<TokenId>& ids = api_.prompts[prompt_index];
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool known = i > 0 && i < scored.logprobs.size();
    static const std::vector<TokenLogprob> kNone;
    const auto* top = i < scored.top.size() ? &scored.top[i] : &kNone;
    choice.logprobs.add({ids[i], known ? scored.logprobs[i].logprob : 0.0F}, known ? top : nullptr);
  }
}

void ClientRequest::complete() {
  done_ = true;
  if (api_.no_output) usage_.completion_tokens = 0;
  if (api_.stream) {
    if (api_.include_usage) reply_->write(writer_.usage_chunk(usage_));
    reply_->write(ResponseWriter::kDone);
    reply_->end();
  } else {
    std::vector<ChoicePart> parts;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const size_t prompt_index = i / static_cast<size_t>(api_.spec.n);
      ChoicePart part = part_of(static_cast<int32_t>(i), choices_[i]);
      if (api_.echo) part.text.insert(0, api_.echoed[prompt_index]);
      if (api_.prompt_logprobs_asked) {
        const Prompt& prompt = prompts_[prompt_index];
        part.prompt_logprobs =
            prompt_logprobs_json(*context_.model.tokenizer, prompt.logprobs, prompt.top);
      }
      parts.push_back(std::move(part));
    }
    reply_->send({.body = writer_.body(parts, usage_, api_.return_workers ? &workers_ : nullptr)});
  }
  report(finish_name(choices_.front().output.finish()));
}

void ClientRequest::on_workers(int32_t, const std::string& prefill, const std::string& decode) {
  const auto add = [this](std::vector<std::string>& ids, const std::string& id) {
    if (id.empty() || std::find(ids.begin(), ids.end(), id) != ids.end()) return;
    ids.push_back(id);
    workers_told_ = false;
  };
  add(workers_.prefill, prefill);
  add(workers_.decode, decode);
}

void ClientRequest::on_prompt_logprobs(int32_t prompt_index, const PromptLogprobs& logprobs) {
  Prompt& prompt = prompts_[static_cast<size_t>(prompt_index)];
  const size_t end = static_cast<size_t>(logprobs.first_position) + logprobs.tokens.size();
  if (end > api_.prompts[static_cast<size_t>(prompt_index)].size()) return;
  if (prompt.logprobs.size() < end) prompt.logprobs.resize(end);
  if (prompt.top.size() < end) prompt.top.resize(end);
  for (size_t i = 0; i < logprobs.tokens.size(); ++i) {
    const size_t position = static_cast<size_t>(logprobs.first_position) + i;
    prompt.logprobs[position] = logprobs.tokens[i];
    if (i < logprobs.top.size()) prompt.top[position] = logprobs.top[i];
  }
}

void ClientRequest::on_cached_tokens(int32_t, int32_t cached_tokens) {
  usage_.cached_tokens += cached_tokens;
}

void ClientRequest::on_failed(int32_t, const Status& status) {
  if (done_) return;
  cancel_all();
  report("error", status);
  if (!streaming_) {
    reply_->send(error_response(status, context_.dispatcher.retry_after_s()));
    return;
  }
  reply_->write("data: " + error_json(status) + "\n\n");
  reply_->write(ResponseWriter::kDone);
  reply_->end();
}

void ClientRequest::cancel_all() {
  done_ = true;
  for (const GenerationId id : generations_) context_.dispatcher.cancel(id);
}

void ClientRequest::count(const std::string& finished_reason) {
  const int64_t now_us = context_.clock.now_us();
  context_.metrics.request_done(
      {.finished_reason = finished_reason,
       .prompt_tokens = usage_.prompt_tokens,
       .cached_tokens = usage_.cached_tokens,
       .generated_tokens = usage_.completion_tokens,
       .n = api_.spec.n,
       .e2e_s = static_cast<double>(now_us - origin_.received_us) * 1e-6});
}

void ClientRequest::report(const std::string& finished_reason, const Status& why) {
  count(finished_reason);
  if (!origin_.logged) return;
  log_info("request", {{"request_id", origin_.id},
                       {"traceparent", origin_.traceparent},
                       {"finished_reason", finished_reason},
                       {"reason", why.message()},
                       {"prompt_tokens", usage_.prompt_tokens},
                       {"cached_tokens", usage_.cached_tokens},
                       {"generated_tokens", usage_.completion_tokens},
                       {"ms", (context_.clock.now_us() - origin_.received_us) / 1000}});
}

}  // namespace baton
