// The values of a template: what Python's str, int, float, bool, None, list, tuple, dict are to
// jinja2, and what jinja2 adds (undefined, namespace, loop, callables). Shared and immutable, but
// for namespaces and the position of a loop. Used by the jinja_* files only; a value belongs to the
// thread of its render, constants of a template to all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "model/text/jinja_render_context.h"
#include "model/text/jinja_text.h"

namespace baton::jinja {

class Value;
struct Text;
struct Sequence;
struct Dict;
struct Loop;
struct Callable;
using TextPtr = std::shared_ptr<const Text>;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using NamespacePtr = std::shared_ptr<Namespace>;
using LoopPtr = std::shared_ptr<Loop>;
using CallablePtr = std::shared_ptr<const Callable>;

using Integer =
    __int128;  // holds every integer of a JSON document; Python's have no end, ours report overflow

struct Undefined {
  std::shared_ptr<const std::string>
      reason;  // "'x' is undefined": thrown when the value is used; may be null
};
struct None {};

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, Integer, double, TextPtr, SequencePtr,
                               DictPtr, NamespacePtr, LoopPtr, CallablePtr>;
  Value() = default;  // undefined
  template <typename T>
  requires std::is_constructible_v<Variant, T> Value(T value) : variant_(std::move(value)) {}
  explicit Value(int64_t value) : variant_(static_cast<Integer>(value)) {}
  explicit Value(size_t value) : variant_(static_cast<Integer>(value)) {}

  template <typename T>
  const T* get() const {
    return std::get_if<T>(&variant_);
  }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(variant_);
  }
  const Variant& variant() const { return variant_; }

  // Null when the value is of another kind.
  const Text* text() const;
  const Sequence* sequence() const;
  const Dict* dict() const;
  const Undefined* undefined() const { return get<Undefined>(); }

 private:
  Variant variant_;
};

struct Text {
  MarkedText text;
  bool is_markup =
      false;  // made by |safe or |escape: `+` escapes what it is joined to, as markupsafe does
  Charge charge;
};

enum class SequenceKind { kList, kTuple, kRange, kItems, kKeys, kValues, kGenerator };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int32_t depth = 1;
  Charge charge;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;   // in order of insertion
  std::unordered_map<std::string, size_t> index;  // hash_key(key) -> entry
  int32_t depth = 1;
  Charge charge;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::unordered_map<std::string, Value> attributes;
  Charge charge;
};

struct Loop {
  SequencePtr items;
  size_t index = 0;
};

// Arguments of a call of a filter, test, method or global function. The callee reads them through
// bind().
struct Call {
  RenderContext& context;
  std::string_view name;  // of the callee, for messages
  Value self;             // the filtered value, the method's object; undefined for global functions
  std::vector<Value> args;
  std::vector<std::pair<std::string, Value>> kwargs;

  // Arguments by parameter; null where none was given. Throws RenderError for too many or unknown
  // ones.
  std::vector<const Value*> bind(std::initializer_list<std::string_view> parameters) const;
};
using NativeFunction = Value (*)(Call& call);

struct MacroDefinition;
class Scope;

struct Callable {
  std::string name;
  NativeFunction native = nullptr;
  Value self;                              // of a bound method
  const MacroDefinition* macro = nullptr;  // where native is null; lives as long as the template
  Scope* scope = nullptr;                  // the macro's surroundings; lives as long as the render
};

Value make_text(RenderContext& context, MarkedText text, bool is_markup = false);
Value make_text(RenderContext& context, std::string_view bytes);  // not the user's
Value make_constant_text(std::string bytes);  // a template's own literal: not charged
Value make_sequence(RenderContext& context, SequenceKind kind, std::vector<Value> items);
Value make_undefined(std::string reason);

// Builds a dict; a repeated key keeps its place and takes the new value.
class DictBuilder {
 public:
  explicit DictBuilder(RenderContext& context);
  void set(const Value& key, Value value) { put(key, std::move(value), true); }
  void set_default(const Value& key, Value value) { put(key, std::move(value), false); }
  Value finish();

 private:
  void put(const Value& key, Value value, bool replaces);

  RenderContext& context_;
  std::shared_ptr<Dict> dict_;
};

// Text under construction, charged as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(RenderContext& context) : context_(context), charge_(context.charge(0)) {}
  void append(std::string_view piece, bool from_user = false);
  void append(const MarkedText& piece) { append(piece, 0, piece.bytes.size()); }
  void append(const MarkedText& piece, size_t begin, size_t end);
  size_t size() const { return text_.bytes.size(); }
  MarkedText take();  // leaves the builder empty
  Value finish(bool is_markup = false) { return make_text(context_, take(), is_markup); }

 private:
  RenderContext& context_;
  MarkedText text_;
  Charge charge_;
};

int32_t value_depth(const Value& value);
std::string type_name(const Value& value);  // Python's: "str", "NoneType", ...
std::string hash_key(
    const Value& key);  // equal for equal keys; throws RenderError for lists and dicts

}  // namespace baton::jinja
