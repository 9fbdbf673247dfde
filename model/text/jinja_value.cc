#include "model/text/jinja_value.h"

#include <algorithm>
#include <cmath>

#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

constexpr int64_t kObjectBytes = 64;  // what an allocation costs beside its contents
constexpr size_t kTupleKeyBytesMax = 1 << 16;

struct TypeName {
  std::string operator()(const Undefined&) const { return "Undefined"; }
  std::string operator()(const None&) const { return "NoneType"; }
  std::string operator()(bool) const { return "bool"; }
  std::string operator()(const Integer&) const { return "int"; }
  std::string operator()(double) const { return "float"; }
  std::string operator()(const TextPtr&) const { return "str"; }
  std::string operator()(const SequencePtr& sequence) const {
    switch (sequence->kind) {
      case SequenceKind::kList:
        return "list";
      case SequenceKind::kTuple:
        return "tuple";
      case SequenceKind::kRange:
        return "range";
      case SequenceKind::kItems:
        return "dict_items";
      case SequenceKind::kKeys:
        return "dict_keys";
      case SequenceKind::kValues:
        return "dict_values";
      case SequenceKind::kGenerator:
        return "generator";
    }
    return "list";
  }
  std::string operator()(const DictPtr&) const { return "dict"; }
  std::string operator()(const NamespacePtr&) const { return "Namespace"; }
  std::string operator()(const LoopPtr&) const { return "LoopContext"; }
  std::string operator()(const CallablePtr& callable) const {
    return callable->macro ? "Macro" : "builtin_function_or_method";
  }
};

}  // namespace

const Text* Value::text() const {
  const auto* pointer = get<TextPtr>();
  return pointer ? pointer->get() : nullptr;
}

const Sequence* Value::sequence() const {
  const auto* pointer = get<SequencePtr>();
  return pointer ? pointer->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* pointer = get<DictPtr>();
  return pointer ? pointer->get() : nullptr;
}

const Value* Dict::find(const Value& key) const {
  const auto found = index.find(hash_key(key));
  return found == index.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = index.find("s" + std::string(key));
  return found == index.end() ? nullptr : &entries[found->second].second;
}

std::vector<const Value*> Call::bind(std::initializer_list<std::string_view> parameters) const {
  if (args.size() > parameters.size()) {
    throw RenderError(std::string(name) + "(): takes at most " + std::to_string(parameters.size()) +
                      " arguments, got " + std::to_string(args.size()));
  }
  std::vector<const Value*> bound(parameters.size(), nullptr);
  for (size_t i = 0; i < args.size(); ++i) bound[i] = &args[i];
  for (const auto& [key, value] : kwargs) {
    const auto* parameter = std::find(parameters.begin(), parameters.end(), key);
    const auto position = static_cast<size_t>(parameter - parameters.begin());
    if (parameter == parameters.end() || bound[position]) {
      throw RenderError(std::string(name) + "(): unexpected keyword argument '" + key + "'");
    }
    bound[position] = &value;
  }
  return bound;
}

Value make_text(RenderContext& context, MarkedText text, bool is_markup) {
  auto value = std::make_shared<Text>();
  value->charge = context.charge(kObjectBytes + static_cast<int64_t>(text.bytes.size()) +
                                 static_cast<int64_t>(text.user.size() * sizeof(ByteRange)));
  value->text = std::move(text);
  value->is_markup = is_markup;
  return TextPtr(std::move(value));
}

Value make_text(RenderContext& context, std::string_view bytes) {
  MarkedText text;
  text.append(bytes, false);
  return make_text(context, std::move(text));
}

Value make_constant_text(std::string bytes) {
  auto value = std::make_shared<Text>();
  value->text.bytes = std::move(bytes);
  return TextPtr(std::move(value));
}

Value make_sequence(RenderContext& context, SequenceKind kind, std::vector<Value> items) {
  auto value = std::make_shared<Sequence>();
  value->charge = context.charge(kObjectBytes + static_cast<int64_t>(items.size() * sizeof(Value)));
  value->kind = kind;
  for (const Value& item : items) value->depth = std::max(value->depth, value_depth(item) + 1);
  context.check_value_depth(value->depth);
  value->items = std::move(items);
  return SequencePtr(std::move(value));
}

Value make_undefined(std::string reason) {
  return Undefined{std::make_shared<const std::string>(std::move(reason))};
}

DictBuilder::DictBuilder(RenderContext& context)
    : context_(context), dict_(std::make_shared<Dict>()) {
  dict_->charge = context.charge(kObjectBytes);
}

void DictBuilder::put(const Value& key, Value value, bool replaces) {
  dict_->depth = std::max({dict_->depth, value_depth(value) + 1, value_depth(key) + 1});
  context_.check_value_depth(dict_->depth);
  std::string hashed = hash_key(key);
  dict_->charge.grow(kObjectBytes + static_cast<int64_t>(hashed.size() + 2 * sizeof(Value)));
  const auto [place, added] = dict_->index.try_emplace(std::move(hashed), dict_->entries.size());
  if (added) {
    dict_->entries.emplace_back(key, std::move(value));
  } else if (replaces) {
    dict_->entries[place->second].second = std::move(value);
  }
}

Value DictBuilder::finish() {
  return DictPtr(std::move(dict_));
}

void TextBuilder::append(std::string_view piece, bool from_user) {
  charge_.grow(static_cast<int64_t>(piece.size()));
  text_.append(piece, from_user);
}

void TextBuilder::append(const MarkedText& piece, size_t begin, size_t end) {
  if (begin >= end) return;
  charge_.grow(static_cast<int64_t>(end - begin));
  text_.append(piece, begin, end);
}

MarkedText TextBuilder::take() {
  charge_ = context_.charge(0);
  return std::exchange(text_, {});
}

int32_t value_depth(const Value& value) {
  if (const auto* sequence = value.sequence()) return sequence->depth;
  if (const auto* dict = value.dict()) return dict->depth;
  if (const auto* loop = value.get<LoopPtr>()) return (*loop)->items->depth + 1;
  if (const auto* callable = value.get<CallablePtr>()) return value_depth((*callable)->self) + 1;
  return 0;
}

std::string type_name(const Value& value) {
  return std::visit(TypeName{}, value.variant());
}

std::string hash_key(const Value& key) {
  if (const Text* text = key.text()) return "s" + text->text.bytes;
  if (key.is<None>()) return "none";
  if (const bool* flag = key.get<bool>()) return *flag ? "n1" : "n0";
  if (const auto* integer = key.get<Integer>()) return "n" + integer_to_string(*integer);
  if (const double* number = key.get<double>()) {
    // 1.0 and 1 are one key.
    if (std::nearbyint(*number) == *number && std::fabs(*number) < 1e15) {
      return "n" + integer_to_string(static_cast<Integer>(*number));
    }
    return "n" + float_to_string(*number);
  }
  const Sequence* sequence = key.sequence();
  if (sequence && sequence->kind == SequenceKind::kTuple) {
    std::string hashed = "t";
    for (const Value& item : sequence->items) {
      const std::string part = hash_key(item);
      hashed += std::to_string(part.size()) + ":" + part;
      if (hashed.size() > kTupleKeyBytesMax) throw RenderError("a tuple is too large for a key");
    }
    return hashed;
  }
  if (key.undefined()) return "undefined";
  throw RenderError("unhashable type: '" + type_name(key) + "'");
}

}  // namespace baton::jinja
