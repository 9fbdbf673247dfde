// Tokens to a syntax tree, with jinja2's grammar. Left out: inheritance, include, import, recursive
// loops (a chat template is one file); each is refused by name.
#pragma once

#include <string>

#include "model/text/jinja_ast.h"

namespace baton::jinja {

// Throws SyntaxError.
Block parse_template(std::string source);

}  // namespace baton::jinja
