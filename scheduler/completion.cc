// What a completed step means: progress, published pages, sampled tokens, ended choices.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler_impl.h"

namespace baton {

// Reads a step's samples in the order in which they were asked for; skipped ones are absent.
class SampledReader {
 public:
  explicit SampledReader(const std::vector<Sampled>& sampled) : sampled_(sampled) {}

  const Sampled* read(SeqId seq, const SampleRecord& record) {
    if (next_ == sampled_.size()) return nullptr;
    const Sampled& sampled = sampled_[next_];
    if (sampled.seq != seq || sampled.slot != record.slot) return nullptr;
    ++next_;
    return &sampled;
  }
  bool at_end() const { return next_ == sampled_.size(); }

 private:
  const std::vector<Sampled>& sampled_;
  size_t next_ = 0;
};

namespace {

TokenEvent to_event(const Sampled& sampled, const Request& request, int32_t choice) {
  TokenEvent event;
  event.id = request.id;
  event.choice = choice;
  event.position = sampled.position;
  event.token = sampled.token;
  event.finish = sampled.finish;
  event.stop_id = sampled.stop_id;
  event.logprob = sampled.logprob;
  event.top = sampled.top;
  if (event.finish == FinishReason::kNone && event.position >= request.last_position) {
    event.finish = FinishReason::kLength;
  }
  return event;
}

}  // namespace

StepResult Scheduler::Impl::complete(const StepOutput& output) {
  const StepRecord step = in_flight_.pop();
  CHECK_EQ(output.step, step.step) << "steps complete in order";
  CHECK(output.error.empty()) << "step " << output.step << " failed: " << output.error;
  if (step.prefill_tokens > 0) {
    prefill_rate_.measured(step.prefill_tokens, step.prefill_positions / step.prefill_tokens,
                           output.compute_us);
  }
  StepResult result;
  accept_logprobs(output);
  SampledReader reader(output.sampled);
  for (const ChunkRecord& chunk : step.chunks) complete_chunk(chunk, reader, result);
  CHECK(reader.at_end()) << "step " << output.step << " sampled what nobody asked for";
  result.ended = std::exchange(ended_, {});
  return result;
}

void Scheduler::Impl::complete_chunk(const ChunkRecord& chunk, SampledReader& reader,
                                     StepResult& result) {
  const auto found = requests_.find(chunk.seq);
  Request* request = found == requests_.end() ? nullptr : found->second.get();
  for (uint64_t id : chunk.branches) {
    Branch* branch = request == nullptr ? nullptr : request->find_branch(id);
    if (branch == nullptr) continue;
    --branch->steps_in_flight;
    // A preempted one has lost those pages; it resumes when no step of it is in flight any more.
    if (branch->stage != Stage::kPreempted) advance(*branch, chunk.end);
  }
  std::vector<TokenEvent> events;
  for (const SampleRecord& record : chunk.samples) {
    const Sampled* sampled = reader.read(chunk.seq, record);
    Branch* branch = request == nullptr ? nullptr : request->find_branch(record.branch);
    if (branch != nullptr) accept_sample(*branch, record, sampled, events);
  }
  if (request == nullptr) return;
  result.events.insert(result.events.end(), events.begin(), events.end());
  if (chunk.ends_prompt && !request->prompt_done) {
    finish_prompt(*request, events, result);
    if (request->push) {
      erase(*request);
      return;
    }
  }
  const bool samples_nothing = chunk.ends_prompt && chunk.samples.empty();
  end_finished(*request, samples_nothing, events);
}

void Scheduler::Impl::accept_sample(Branch& branch, const SampleRecord& record,
                                    const Sampled* sampled, std::vector<TokenEvent>& events) {
  const bool lives = std::any_of(branch.choices.begin(), branch.choices.end(),
                                 [&](const Choice& c) { return c.number == record.choice; });
  if (!lives) return;  // cancelled meanwhile
  CHECK(sampled != nullptr) << "sequence " << branch.request->seq << " choice " << record.choice
                            << ": the engine skipped a choice that has not ended";
  CHECK_EQ(sampled->position, static_cast<int32_t>(branch.tokens.size()));
  events.push_back(to_event(*sampled, *branch.request, record.choice));
  if (!branch.request->push) branch.tokens.push_back(sampled->token);
}

void Scheduler::Impl::advance(Branch& branch, int32_t end) {
  branch.computed = end;
  publish(branch);
  // Whatever is in flight or to come starts at `end` or later.
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    if (layout_.groups[g].window == 0) continue;
    int32_t needed_from = first_visible(layout_.groups[g], end);
    const auto& push = branch.request->push;
    if (push) needed_from = std::min(needed_from, push->groups[g].first_token);
    branch.pages.drop_before(static_cast<int32_t>(g), needed_from);
  }
}

void Scheduler::Impl::publish(Branch& branch) {
  for (size_t g = 0; g < layout_.groups.size(); ++g) {
    const int32_t page_tokens = layout_.groups[g].page_tokens;
    const int32_t whole = branch.computed / page_tokens * page_tokens;
    if (whole <= branch.published / page_tokens * page_tokens) continue;
    const auto group = static_cast<int32_t>(g);
    prefix_cache_.insert(std::span(branch.tokens).first(static_cast<size_t>(whole)),
                         branch.request->spec.cache_salt, group,
                         branch.pages.page_ids(group, whole), &branch.prefix[g]);
  }
  branch.published = branch.computed;
}

// Results are filled in by position: chunks that were computed twice say the same.
void Scheduler::Impl::accept_logprobs(const StepOutput& output) {
  for (const ChunkLogprobs& part : output.prompt_logprobs) {
    const auto found = requests_.find(part.seq);
    if (found == requests_.end()) continue;
    Request& request = *found->second;
    PromptLogprobs& all = request.logprobs;
    all.tokens.resize(static_cast<size_t>(request.prompt_len - 1));
    all.top.resize(all.tokens.size());
    for (size_t i = 0; i < part.tokens.size(); ++i) {
      const auto place = static_cast<size_t>(part.first_position - 1) + i;
      CHECK_LT(place, all.tokens.size()) << "log-probabilities beyond the prompt";
      all.tokens[place] = part.tokens[i];
      if (i < part.top.size()) all.top[place] = part.top[i];
    }
  }
}

void Scheduler::Impl::finish_prompt(Request& request, const std::vector<TokenEvent>& first_tokens,
                                    StepResult& result) {
  request.prompt_done = true;
  if (request.spec.prompt_logprobs >= 0) {
    request.logprobs.id = request.id;
    request.logprobs.first_position = 1;
    result.prompt_logprobs.push_back(std::move(request.logprobs));
  }
  PromptDone done;
  done.seq = request.seq;
  done.id = request.id;
  done.cached_tokens = request.cached_tokens;
  done.first_tokens = first_tokens;
  done.pushed = request.push.has_value();
  if (done.pushed) done.pages = request.branches.front()->pages.take_all();
  result.prompts_done.push_back(std::move(done));
}

void Scheduler::Impl::end_finished(Request& request, bool all,
                                   const std::vector<TokenEvent>& events) {
  std::vector<int32_t> finished;
  for (const TokenEvent& event : events) {
    if (event.finish != FinishReason::kNone) finished.push_back(event.choice);
  }
  if (all) {
    for (const auto& branch : request.branches) {
      for (const Choice& choice : branch->choices) finished.push_back(choice.number);
    }
  }
  const SeqId seq = request.seq;
  for (int32_t choice : finished) {
    if (requests_.contains(seq)) end_choice(request, choice);
  }
}

}  // namespace baton
