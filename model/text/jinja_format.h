// Python's two ways of formatting text, and the escaping of HTML.
#pragma once

#include <string>

#include "model/text/jinja_value.h"

namespace baton::jinja {

// "..." % values: a tuple gives several, a dict serves %(name)s, all else is one value.
Value format_percent(RenderContext& context, const Text& format, const Value& values);

// "...{}...{name:>8}".format(*args, **kwargs), fields with attributes and items included.
Value format_braces(Call& call);

// & < > ' " as entities, as markupsafe writes them.
MarkedText escape_html(RenderContext& context, const MarkedText& text);

// Without sign. `letter`: d, x, X, o or b.
std::string integer_digits(Integer value, char letter);
// REQUIRES: value >= 0. `letter`: e, f or g, or upper case.
std::string float_digits(double value, char letter, int64_t precision, bool is_alternate);

}  // namespace baton::jinja
