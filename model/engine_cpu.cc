#include "model/engine_cpu.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace baton {
namespace {

// The token after the chunk's token at `offset`, as far as the prompt's log-probabilities need it;
// -1 if there is none.
TokenId next_prompt_token(const Chunk& chunk, int32_t offset) {
  const auto next = static_cast<size_t>(offset) + 1;
  return next < chunk.tokens.size() ? chunk.tokens[next] : chunk.next_token;
}

}  // namespace

CpuEngine::CpuEngine(EngineParts parts)
    : parts_(std::move(parts)),
      forward_(parts_.config, parts_.weights, parts_.layout, parts_.pools, *parts_.backend,
               parts_.sink, parts_.step_tokens_max, kLogitRowsMax, parts_.context_len),
      sampler_(parts_.config.vocab_size) {}

StepOutput CpuEngine::execute(const StepInput& input) {
  const auto start = std::chrono::steady_clock::now();
  StepOutput output{.step = input.step};
  update_slots(input);
  copy_pages(input);
  build_batch(input);
  if (batch_.num_tokens() > 0) {
    batch_.view(&view_);
    forward_.hidden_states(view_, input);
    collect(&output);
  } else if (parts_.sink != nullptr) {
    // Nothing to compute, but there may be pages to push.
    for (int32_t layer = 0; layer < parts_.config.num_layers; ++layer) {
      parts_.sink->layer_written(input, layer);
    }
  }
  output.compute_us = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::steady_clock::now() - start)
                          .count();
  return output;
}

void CpuEngine::update_slots(const StepInput& input) {
  for (const int32_t number : input.closed_slots) {
    CHECK_EQ(slots_.erase(number), 1U) << "closing slot " << number << ", which is not open";
  }
  for (const SlotOpen& open : input.opened_slots) {
    const bool opened = slots_.try_emplace(open.slot, open, parts_.context_len).second;
    CHECK(opened) << "slot " << open.slot << " is open already";
  }
}

void CpuEngine::copy_pages(const StepInput& input) {
  for (const PageCopy& copy : input.page_copies) {
    const PagePool& pool = *parts_.pools[static_cast<size_t>(copy.group)];
    std::memcpy(pool.page(copy.dst_page), pool.page(copy.src_page),
                static_cast<size_t>(pool.page_bytes()));
  }
}

void CpuEngine::build_batch(const StepInput& input) {
  batch_.clear(parts_.layout.groups.size());
  logit_rows_.clear();
  for (const Chunk& chunk : input.chunks) {
    const int32_t first_row = batch_.num_tokens();
    auto num_tokens = static_cast<int32_t>(chunk.tokens.size());
    const TokenId* ids = chunk.tokens.data();
    TokenId last = -1;
    if (chunk.use_last) {
      CHECK_EQ(chunk.sample_slots.size(), 1U) << "use_last of seq " << chunk.seq;
      const ChoiceState& state = slot(chunk.sample_slots[0]);
      if (state.ended()) continue;
      last = state.last_token();
      ids = &last;
      num_tokens = 1;
    }
    CHECK_GT(num_tokens, 0) << "empty chunk of seq " << chunk.seq;
    CHECK_LE(chunk.first_pos + num_tokens, parts_.context_len) << "seq " << chunk.seq;
    for (int32_t i = 0; i < num_tokens; ++i) {
      CHECK(ids[i] >= 0 && ids[i] < parts_.config.vocab_size)
          << "seq " << chunk.seq << ": token " << ids[i] << " is not in the vocabulary";
    }
    batch_.add(chunk, ids, num_tokens, parts_.layout);
    add_logit_rows(chunk, first_row, num_tokens);
  }
}

void CpuEngine::add_logit_rows(const Chunk& chunk, int32_t first_row, int32_t num_tokens) {
  for (int32_t i = 0; i < num_tokens; ++i) {
    const bool scored = chunk.prompt_logprobs >= 0 && next_prompt_token(chunk, i) >= 0;
    const bool sampled = i == num_tokens - 1 && !chunk.sample_slots.empty();
    if (chunk.all_logits || scored || sampled) {
      logit_rows_.push_back(
          {.row = first_row + i, .offset = i, .chunk = &chunk, .num_tokens = num_tokens});
    }
  }
}

void CpuEngine::collect(StepOutput* output) {
  std::vector<int32_t> rows;
  for (size_t begin = 0; begin < logit_rows_.size(); begin += kLogitRowsMax) {
    const size_t end = std::min(logit_rows_.size(), begin + kLogitRowsMax);
    rows.clear();
    for (size_t i = begin; i < end; ++i) rows.push_back(logit_rows_[i].row);
    const float* logits = forward_.logits(rows.data(), static_cast<int32_t>(rows.size()));
    for (size_t i = begin; i < end && output->error.empty(); ++i) {
      use_row(logit_rows_[i], logits + (i - begin) * static_cast<size_t>(parts_.config.vocab_size),
              output);
    }
  }
}

void CpuEngine::use_row(const LogitRow& row, const float* logits, StepOutput* output) {
  const Chunk& chunk = *row.chunk;
  if (chunk.all_logits) {
    output->logits.insert(output->logits.end(), logits, logits + parts_.config.vocab_size);
  }
  if (chunk.prompt_logprobs >= 0 && next_prompt_token(chunk, row.offset) >= 0) {
    score_prompt(row, logits, output);
  }
  if (row.offset == row.num_tokens - 1) sample(row, logits, output);
}

void CpuEngine::score_prompt(const LogitRow& row, const float* logits, StepOutput* output) {
  const Chunk& chunk = *row.chunk;
  std::vector<ChunkLogprobs>& all = output->prompt_logprobs;
  if (row.offset == 0) {
    all.push_back({.seq = chunk.seq, .first_position = chunk.first_pos + 1});
  }
  const LogSoftmax softmax(logits, parts_.config.vocab_size);
  if (!softmax.valid()) {
    output->error = "logits are not finite: the model or its file is broken";
    return;
  }
  const TokenId token = next_prompt_token(chunk, row.offset);
  all.back().tokens.push_back({.token = token, .logprob = softmax.logprob(token)});
  all.back().top.push_back(softmax.top(chunk.prompt_logprobs));
}

void CpuEngine::sample(const LogitRow& row, const float* logits, StepOutput* output) {
  for (const int32_t number : row.chunk->sample_slots) {
    ChoiceState& state = slot(number);
    if (state.ended()) continue;
    const int32_t position = row.chunk->first_pos + row.num_tokens;
    CHECK_EQ(state.next_position(), position) << "seq " << row.chunk->seq << ", slot " << number;
    Sampled sampled{.seq = row.chunk->seq,
                    .slot = number,
                    .choice = state.choice(),
                    .position = position,
                    .token = sampler_.choose(logits, state)};
    const int32_t num_top = state.spec().logprobs;
    if (sampled.token >= 0 && num_top >= 0) {
      const LogSoftmax softmax(logits, parts_.config.vocab_size);
      if (!softmax.valid()) sampled.token = -1;
      sampled.logprob = softmax.logprob(std::max(sampled.token, 0));
      if (num_top > 0 && softmax.valid()) sampled.top = softmax.top(num_top);
    }
    if (sampled.token < 0) {
      output->error = "logits are not finite: the model or its file is broken";
      return;
    }
    const ChoiceState::Ending ending = state.accept(sampled.token);
    sampled.finish = ending.finish;
    sampled.stop_id = ending.stop_id;
    output->sampled.push_back(std::move(sampled));
  }
}

ChoiceState& CpuEngine::slot(int32_t number) {
  const auto it = slots_.find(number);
  CHECK(it != slots_.end()) << "slot " << number << " is not open";
  return it->second;
}

}  // namespace baton
