#include "model/batch.h"

#include "base/check.h"

namespace baton {

void Batch::clear(size_t num_groups) {
  tokens.clear();
  positions.clear();
  groups.resize(num_groups);
  for (GroupBatch& group : groups) {
    group.slot_mapping.clear();
    group.sequences.clear();
  }
}

void Batch::view(BatchView* view) const {
  view->tokens = tokens.data();
  view->positions = positions.data();
  view->num_tokens = num_tokens();
  view->groups.resize(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const GroupBatch& group = groups[g];
    view->groups[g] = {
        .slot_mapping = group.slot_mapping.data(),
        .attention = {.sequences = group.sequences.data(),
                      .num_sequences = static_cast<int32_t>(group.sequences.size())}};
  }
}

void Batch::add(const Chunk& chunk, const TokenId* ids, int32_t count, const KvLayout& layout) {
  const int32_t row = num_tokens();
  tokens.insert(tokens.end(), ids, ids + count);
  for (int32_t i = 0; i < count; ++i) positions.push_back(chunk.first_pos + i);

  CHECK_EQ(chunk.block_tables.size(), layout.groups.size()) << "block tables of seq " << chunk.seq;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int32_t page_tokens = layout.groups[g].page_tokens;
    const std::vector<int32_t>& table = chunk.block_tables[g];
    CHECK_GE(static_cast<int32_t>(table.size()),
             layout.groups[g].pages_for(chunk.first_pos + count))
        << "pages of seq " << chunk.seq << " in group " << g;
    groups[g].sequences.push_back({.row = row,
                                   .num_tokens = count,
                                   .first_pos = chunk.first_pos,
                                   .block_table = table.data()});
    for (int32_t position = chunk.first_pos; position < chunk.first_pos + count; ++position) {
      const int32_t page = table[static_cast<size_t>(position / page_tokens)];
      CHECK_GE(page, 0) << "seq " << chunk.seq << " writes position " << position << " of group "
                        << g;
      groups[g].slot_mapping.push_back(page * page_tokens + position % page_tokens);
    }
  }
}

}  // namespace baton
