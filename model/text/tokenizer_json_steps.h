// The pipeline around the model in a tokenizer.json: normaliser, pre-tokeniser, post-processor,
// decoder. Each function throws ConfigError for a component that we do not know. Called by
// load_tokenizer_json; one thread.
#pragma once

#include "model/text/bpe_tokenizer.h"
#include "model/text/json_node.h"

namespace baton {

// `root`: the whole file.
void read_normalizer(const JsonNode& root, TokenizerParts* parts);
void read_pre_tokenizer(const JsonNode& root, TokenizerParts* parts);
void read_post_processor(const JsonNode& root, TokenizerParts* parts);
void check_decoder(const JsonNode& root);

}  // namespace baton
