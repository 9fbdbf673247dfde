// Calls of functions, methods and macros.
#include <algorithm>

#include "model/text/jinja_evaluator.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {

void Evaluator::add_arguments(Call& call, const Arguments& arguments, Scope& scope) {
  for (const ExpressionPtr& argument : arguments.positional) {
    call.args.push_back(evaluate(*argument, scope));
  }
  for (const auto& [name, argument] : arguments.named) {
    call.kwargs.emplace_back(name, evaluate(*argument, scope));
  }
  if (arguments.rest) {
    const SequencePtr rest = iterate(context_, evaluate(*arguments.rest, scope));
    call.args.insert(call.args.end(), rest->items.begin(), rest->items.end());
  }
  if (arguments.named_rest) {
    const Value rest = evaluate(*arguments.named_rest, scope);
    if (!rest.dict())
      throw RenderError("argument after ** must be a mapping, not " + type_name(rest));
    for (const auto& [key, value] : rest.dict()->entries) {
      call.kwargs.emplace_back(to_text(context_, key).bytes, value);
    }
  }
}

Value Evaluator::call_value(const Value& callee, Call& call) {
  if (callee.undefined()) throw_undefined(*callee.undefined());
  const auto* pointer = callee.get<CallablePtr>();
  if (!pointer) throw RenderError("'" + type_name(callee) + "' object is not callable");
  const Callable& callable = **pointer;
  call.name = callable.name;
  if (!callable.native) return call_macro(callable, call);
  call.self = callable.self;
  return callable.native(call);
}

Value Evaluator::call_macro(const Callable& callable, Call& call) {
  const MacroDefinition& macro = *callable.macro;
  const DepthGuard guard(context_);
  TextBuilder out(context_);
  in_scope(*callable.scope, [&](Scope& scope) {
    bind_parameters(macro, call, scope);
    bind_special_names(macro, call, scope);
    return execute(macro.body, scope, out);
  });
  return out.finish();
}

// Positional arguments first, then those by keyword, then defaults, which may use the parameters
// before them.
void Evaluator::bind_parameters(const MacroDefinition& macro, Call& call, Scope& scope) {
  const size_t first_default = macro.parameters.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const std::string& parameter = macro.parameters[i];
    if (i < call.args.size()) {
      scope.set(parameter, call.args[i]);
      continue;
    }
    const auto named = std::find_if(call.kwargs.begin(), call.kwargs.end(),
                                    [&](const auto& entry) { return entry.first == parameter; });
    if (named != call.kwargs.end()) {
      scope.set(parameter, std::move(named->second));
      call.kwargs.erase(named);
    } else if (i >= first_default) {
      scope.set(parameter, evaluate(*macro.defaults[i - first_default], scope));
    } else {
      scope.set(parameter, make_undefined("parameter '" + parameter + "' was not provided"));
    }
  }
}

// caller, kwargs and varargs, for macros that read them; arguments that are left over are errors
// elsewhere.
void Evaluator::bind_special_names(const MacroDefinition& macro, Call& call, Scope& scope) {
  const auto caller = std::find_if(call.kwargs.begin(), call.kwargs.end(),
                                   [](const auto& entry) { return entry.first == "caller"; });
  const bool is_parameter = std::find(macro.parameters.begin(), macro.parameters.end(), "caller") !=
                            macro.parameters.end();
  if (macro.uses_caller && !is_parameter) {
    scope.set("caller", caller == call.kwargs.end() ? make_undefined("No caller defined")
                                                    : std::move(caller->second));
    if (caller != call.kwargs.end()) call.kwargs.erase(caller);
  }
  if (macro.uses_kwargs) {
    DictBuilder rest(context_);
    for (const auto& [name, value] : call.kwargs) rest.set(make_text(context_, name), value);
    scope.set("kwargs", rest.finish());
  } else if (!call.kwargs.empty()) {
    throw RenderError("macro '" + macro.name + "' takes no keyword argument '" +
                      call.kwargs.front().first + "'");
  }
  const size_t taken = std::min(macro.parameters.size(), call.args.size());
  if (macro.uses_varargs) {
    const auto first = call.args.begin() + static_cast<std::ptrdiff_t>(taken);
    scope.set("varargs", make_sequence(context_, SequenceKind::kTuple, {first, call.args.end()}));
  } else if (call.args.size() > taken) {
    throw RenderError("macro '" + macro.name + "' takes not more than " +
                      std::to_string(macro.parameters.size()) + " argument(s)");
  }
}

Value Evaluator::define_macro(const MacroDefinition& definition, Scope& scope) {
  constexpr int64_t kScopeBytes = 256;  // the scope stays until the render ends
  kept_charges_.push_back(context_.charge(kScopeBytes));
  scope.keep();
  auto callable = std::make_shared<Callable>();
  callable->name = definition.name;
  callable->macro = &definition;
  callable->scope = &scope;
  return CallablePtr(std::move(callable));
}

}  // namespace baton::jinja
