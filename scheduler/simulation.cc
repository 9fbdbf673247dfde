// Two workers under random load. The action loop is run(), the handoff simulation_handoff.cc.
#include "scheduler/simulation.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace baton {
namespace {

constexpr FakeCell kForeign{77, 777, 0x7777};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error(what);
}

}  // namespace

SimulatedWorker::SimulatedWorker(const SchedulerConfig& config, const KvLayout& layout,
                                 const std::vector<int32_t>& pages, int32_t context_len,
                                 const Clock& clock)
    : ledger(pages),
      cache(layout, ledger, 99, config.prefix_cache),
      engine(layout, pages, context_len),
      scheduler(config, layout, context_len, ledger, cache, clock) {}

Simulation::Simulation(const SimulationOptions& options)
    : random_(options.seed), options_(options), context_len_(96 + below(160)) {
  layout_ = random_layout();
  std::vector<int32_t> pages;
  for (const KvGroup& group : layout_.groups) {
    pages.push_back(group.pages_for(context_len_) + below(2 * group.pages_for(context_len_)));
  }
  prefill_ =
      std::make_unique<SimulatedWorker>(random_config(), layout_, pages, context_len_, clock_);
  decode_ =
      std::make_unique<SimulatedWorker>(random_config(), layout_, pages, context_len_, clock_);
}

Simulation::~Simulation() = default;

KvLayout Simulation::random_layout() {
  KvLayout layout;
  const int32_t groups = 1 + below(3);
  for (int32_t g = 0; g < groups; ++g) {
    KvGroup group;
    group.layers = {g};
    group.num_kv_heads = group.head_dim = 1;
    group.page_tokens = 16 << below(3);
    if (g > 0 || below(4) == 0) group.window = below(2) == 0 ? 0 : 2 + below(60);
    layout.groups.push_back(group);
  }
  return layout;
}

SchedulerConfig Simulation::random_config() {
  SchedulerConfig config;
  config.step_tokens = 16 + below(80);
  config.chunk_tokens = 8 + below(64);
  config.mixed_tokens = below(3) * 8;
  config.running_max = 4 + below(10);
  config.waiting_max = 1000;
  config.steps_ahead = below(3);
  config.prefix_cache = below(5) != 0;
  config.chunk_ms = below(3);
  config.priority_tokens = 1 + below(1000);
  return config;
}

// Prompts share beginnings with each other and with earlier answers.
SequenceSpec Simulation::random_sequence() {
  SequenceSpec sequence;
  const auto index = static_cast<uint64_t>(requests_.size());
  sequence.id = {{1 + random_() % 2, index}, 0};
  SamplingSpec& spec = sequence.spec;
  spec.seed = random_();
  spec.n = below(3) == 0 ? 1 + below(4) : 1;
  spec.first_choice = spec.n == 1 ? below(3) : 0;
  spec.max_tokens = below(10) == 0 ? below(2) : 1 + below(70);
  spec.priority = below(8) == 0 ? below(3) - 1 : 0;
  spec.ignore_eos = below(2) == 0;
  spec.prompt_logprobs = below(8) == 0 ? 0 : -1;
  spec.cache_salt = below(10) == 0 ? "other" : "";
  const int32_t length = 1 + below(below(3) == 0 ? context_len_ - 2 : context_len_ / 3);
  if (!requests_.empty() && below(3) == 0) {
    const Request& earlier = requests_[static_cast<size_t>(below(static_cast<int32_t>(index)))];
    sequence.tokens = earlier.sequence.tokens;
    sequence.tokens.insert(sequence.tokens.end(), earlier.got[0].begin(), earlier.got[0].end());
    if (static_cast<int32_t>(sequence.tokens.size()) > context_len_ - 8) sequence.tokens.clear();
  }
  const TokenId base = below(3);
  while (static_cast<int32_t>(sequence.tokens.size()) < length) {
    const auto position = static_cast<int32_t>(sequence.tokens.size());
    sequence.tokens.push_back(position < 40 + 20 * base ? base * 7 + position % 5
                                                        : below(kFakeVocab));
  }
  sequence.prompt_len = static_cast<int32_t>(sequence.tokens.size());
  return sequence;
}

// What the model says, without any scheduler.
void Simulation::expect(Request& request) {
  const SequenceSpec& sequence = request.sequence;
  const SamplingSpec& spec = sequence.spec;
  uint64_t prompt = 0;
  for (TokenId token : sequence.tokens) prompt = fake_hash(prompt, token);
  const int32_t end = std::min(sequence.prompt_len + spec.max_tokens, context_len_);
  for (int32_t i = 0; i < spec.n; ++i) {
    std::vector<TokenId> tokens;
    uint64_t hash = prompt;
    for (auto at = static_cast<int32_t>(sequence.tokens.size()); at < end; ++at) {
      tokens.push_back(fake_sample(spec, spec.first_choice + i, at, hash));
      hash = fake_hash(hash, tokens.back());
      if (tokens.back() == kFakeEos && !spec.ignore_eos) break;
    }
    request.expected.push_back(std::move(tokens));
  }
}

void Simulation::add_request() {
  Request request;
  request.sequence = random_sequence();
  SamplingSpec& spec = request.sequence.spec;
  if (spec.n > 4) spec.n = 4;
  expect(request);
  const bool replays =
      spec.n == 1 && spec.max_tokens > 2 && request.expected[0].size() > 2 && below(4) == 0;
  if (replays) {  // from some accepted tokens on
    const int32_t accepted = 1 + below(static_cast<int32_t>(request.expected[0].size()) - 1);
    const auto begin = request.expected[0].begin();
    request.sequence.tokens.insert(request.sequence.tokens.end(), begin, begin + accepted);
    request.expected[0].erase(begin, begin + accepted);
    ++counts_.replays;
  }
  request.got.resize(static_cast<size_t>(spec.n));
  request.ended.assign(static_cast<size_t>(spec.n), false);
  request.cancelled = request.ended;
  request.pushed = spec.max_tokens > 1 && below(2) == 0;
  const size_t index = requests_.size();
  requests_.push_back(request);
  if (request.pushed) {
    waiting_for_grant_.push_back(index);
    return;
  }
  Result<SeqId> seq = decode_->scheduler.add_prompt(request.sequence, std::nullopt);
  require(seq.ok(), seq.status().to_string());
  requests_[index].at_decode = *seq;
}

void Simulation::step(SimulatedWorker& worker) {
  std::optional<PreparedStep> prepared = worker.scheduler.next_step();
  if (!prepared) return;
  ++counts_.steps;
  require(!prepared->input.chunks.empty(), "an empty step");
  counts_.page_copies += static_cast<int64_t>(prepared->input.page_copies.size());
  for (PromptStarted& started : prepared->started) {
    counts_.hit_tokens += started.cached_tokens;
    counts_.ready_pushes += static_cast<int64_t>(started.ready.size());
    for (Transfer& transfer : transfers_) {
      if (requests_[transfer.request].at_prefill != started.seq || &worker != prefill_.get())
        continue;
      transfer.ready = started.ready;
    }
  }
  worker.in_flight.push_back(std::move(prepared->input));
}

void Simulation::complete(SimulatedWorker& worker) {
  check_foreign_grant();
  const StepInput input = std::move(worker.in_flight.front());
  worker.in_flight.pop_front();
  worker.engine.set_us_per_token(below(300));
  StepOutput output = worker.engine.execute(input);
  size_t asked = 0;
  for (const Chunk& chunk : input.chunks) asked += chunk.sample_slots.size();
  counts_.skipped += static_cast<int64_t>(asked - output.sampled.size());
  if (&worker == prefill_.get()) copy_pages(input.pushes);
  check_foreign_grant();
  StepResult result = worker.scheduler.complete(output);
  for (const TokenEvent& event : result.events) accept_event(event);
  for (const PromptLogprobs& logprobs : result.prompt_logprobs) {
    Request& request = requests_[logprobs.id.id.sequence];
    require(!request.logprobs_seen, "prompt logprobs twice");
    request.logprobs_seen = true;
    require(static_cast<int32_t>(logprobs.tokens.size()) == request.sequence.prompt_len - 1,
            "prompt logprobs of another length");
    for (size_t i = 0; i < logprobs.tokens.size(); ++i) {
      require(logprobs.tokens[i].token == request.sequence.tokens[i + 1],
              "logprobs of another token");
    }
  }
  for (PromptDone& done : result.prompts_done) prompt_done(std::move(done));
  if (&worker == prefill_.get()) drop_cancelled(output.step);
  for (SeqId seq : result.ended) {
    for (Request& request : requests_) {
      if (request.at_decode != seq || &worker != decode_.get()) continue;
      if (request.sequence.spec.max_tokens == 0) request.ended.assign(request.ended.size(), true);
      require(std::find(request.ended.begin(), request.ended.end(), false) == request.ended.end(),
              "a sequence ended before its choices");
    }
  }
}

void Simulation::accept_event(const TokenEvent& event) {
  Request& request = requests_.at(event.id.id.sequence);
  const auto choice = static_cast<size_t>(event.choice - request.sequence.spec.first_choice);
  const std::vector<TokenId>& expected = request.expected.at(choice);
  std::vector<TokenId>& got = request.got[choice];
  const std::string name = "request " + std::to_string(event.id.id.sequence) + " choice " +
                           std::to_string(choice) + " position " + std::to_string(event.position);
  require(!request.ended[choice], name + ": a token after the end");
  require(event.position == static_cast<int32_t>(request.sequence.tokens.size() + got.size()),
          name + ": out of order");
  require(got.size() < expected.size() && event.token == expected[got.size()],
          name + ": another token than the model's");
  got.push_back(event.token);
  ++counts_.tokens;
  const bool last = got.size() == expected.size();
  require((event.finish != FinishReason::kNone) == last, name + ": ended too early or too late");
  request.ended[choice] = last;
}

// Somebody else's grant on D's pool: written at once, and nobody here may touch it.
void Simulation::toggle_foreign_grant() {
  if (!foreign_.empty()) {
    check_foreign_grant();
    foreign_.clear();
    return;
  }
  if (decode_->scheduler.preempted_waiting()) return;
  const int32_t group = below(static_cast<int32_t>(layout_.groups.size()));
  foreign_ = decode_->ledger.take(group, 1 + below(6), PageState::kGranted);
  for (const PageRef& page : foreign_) {
    FakePage& cells = decode_->engine.page(group, page.page_id());
    std::fill(cells.begin(), cells.end(), kForeign);
  }
}

void Simulation::check_foreign_grant() const {
  for (const PageRef& page : foreign_) {
    for (const FakeCell& cell : decode_->engine.page(page.group(), page.page_id())) {
      require(cell == kForeign, "a granted page was written to by a step");
    }
  }
}

void Simulation::check_counts() const {
  for (const SimulatedWorker* worker : {prefill_.get(), decode_.get()}) {
    for (int32_t g = 0; g < worker->ledger.num_groups(); ++g) {
      const PageCounts c = worker->ledger.counts(g);
      require(c.free + c.cached + c.used + c.granted + c.quarantined == c.total,
              "counts do not sum");
    }
  }
}

bool Simulation::all_ended() const {
  return std::all_of(requests_.begin(), requests_.end(), [](const Request& request) {
    return std::find(request.ended.begin(), request.ended.end(), false) == request.ended.end();
  });
}

void Simulation::run() {
  int32_t idle = 0;
  while (static_cast<int32_t>(requests_.size()) < options_.requests || !all_ended()) {
    idle = act() ? 0 : idle + 1;
    check_counts();
    require(idle < 200, "nothing moves, but requests have not ended");
  }
  while (!prefill_->in_flight.empty()) complete(*prefill_);
  while (!decode_->in_flight.empty()) complete(*decode_);
  foreign_.clear();
  // Those of requests that were cancelled after their prompt was done.
  while (!transfers_.empty() && transfers_.back().computed) land(transfers_.size() - 1);
  require(transfers_.empty(), "a transfer is left over");
  for (const SimulatedWorker* worker : {prefill_.get(), decode_.get()}) {
    require(worker->scheduler.running() == 0 && worker->scheduler.waiting() == 0 &&
                worker->scheduler.queued_tokens() == 0,
            "the scheduler is not empty at the end");
    for (int32_t g = 0; g < worker->ledger.num_groups(); ++g) {
      const PageCounts counts = worker->ledger.counts(g);
      require(counts.free + counts.cached == counts.total, "pages did not come home");
    }
  }
}

bool Simulation::act() {
  SimulatedWorker& worker = below(2) == 0 ? *prefill_ : *decode_;
  switch (below(12)) {
    case 0:
      if (static_cast<int32_t>(requests_.size()) >= options_.requests) return false;
      add_request();
      return true;
    case 1:
      if (below(3) != 0) return false;
      cancel_something();
      return true;
    case 2:
      toggle_foreign_grant();
      return false;
    case 3:
    case 4: {
      if (waiting_for_grant_.empty() || !reserve(waiting_for_grant_.front())) return false;
      waiting_for_grant_.erase(waiting_for_grant_.begin());
      return true;
    }
    case 5:
    case 6: {
      if (transfers_.empty()) return false;
      const size_t which = static_cast<size_t>(below(static_cast<int32_t>(transfers_.size())));
      if (!transfers_[which].computed) return false;
      land(which);
      return true;
    }
    case 7:
    case 8:
    case 9: {
      const size_t before = worker.in_flight.size();
      step(worker);
      return worker.in_flight.size() != before;
    }
    default:
      if (worker.in_flight.empty()) return false;
      counts_.preempted += worker.scheduler.preempted_waiting() ? 1 : 0;
      complete(worker);
      return true;
  }
}

}  // namespace baton
