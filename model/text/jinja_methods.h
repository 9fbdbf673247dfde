// Methods of Python's str, list and dict, the attributes of `loop`, and the global functions.
#pragma once

#include <string_view>

#include "model/text/jinja_value.h"

namespace baton::jinja {

// The method of this name, bound to the object; undefined if there is none. Its reason is set for a
// method that would change the object: those are closed in the sandbox.
Value find_method(const Value& object, std::string_view name);

// Null if there is none.
NativeFunction find_text_method(std::string_view name);
NativeFunction find_text_query(
    std::string_view name);  // methods of str that answer with a number or a bool
NativeFunction find_global(std::string_view name);

Value loop_attribute(const Value& loop, std::string_view name);

// Argument readers; errors name the callee. `value` as from Call::bind, null where none was given.
const MarkedText& text_argument(const Call& call, const Value* value);
Integer integer_argument(const Call& call, const Value* value, Integer fallback);
bool is_given(const Value* value);  // neither missing nor None

}  // namespace baton::jinja
