// The filters and tests of jinja2, tojson as transformers has it. In all of them Call::self is the
// value to the left.
#pragma once

#include <string_view>

#include "model/text/jinja_value.h"

namespace baton::jinja {

// Null if there is none.
NativeFunction find_filter(std::string_view name);
NativeFunction find_test(std::string_view name);

// find_filter's parts, one a file.
NativeFunction find_text_filter(std::string_view name);
NativeFunction find_number_filter(std::string_view name);
NativeFunction find_sequence_filter(std::string_view name);
NativeFunction find_select_filter(std::string_view name);

// "a.b.0" of an item, as the `attribute` argument of filters means it. Where a step leads nowhere,
// the next goes on from `fallback`, or from undefined when that is null.
Value attribute_path(RenderContext& context, const Value& item, const Value& path,
                     const Value* fallback = nullptr);
// What strings are compared by where case does not count; all else is itself.
Value folded(RenderContext& context, const Value& value, bool case_sensitive);

}  // namespace baton::jinja
