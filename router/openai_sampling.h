// The sampling fields of a request -> SamplingSpec. Text threads.
#pragma once

#include "router/json_fields.h"
#include "router/openai_request.h"

namespace baton {

// Fields that the chat and the completions endpoint share: sampling, stops, streaming, and those
// that are not supported yet.
void read_shared_fields(FieldReader& fields, const TextModel& model, const ModelFacts& facts,
                        const HttpConfig& limits, ApiRequest& request);

}  // namespace baton
