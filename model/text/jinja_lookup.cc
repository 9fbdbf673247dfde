// Items, attributes, slices and iteration, the way jinja2 looks them up in Python objects.
#include <algorithm>

#include "model/text/jinja_methods.h"
#include "model/text/jinja_operators.h"
#include "model/text/jinja_repr.h"

namespace baton::jinja {
namespace {

Value nothing_at(const Value& object, std::string_view name) {
  const std::string owner = object.is<None>() ? "'None'" : "'" + type_name(object) + " object'";
  return make_undefined(owner + " has no attribute '" + std::string(name) + "'");
}

bool is_indexable(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kList || sequence.kind == SequenceKind::kTuple ||
         sequence.kind == SequenceKind::kRange;
}

// Index of Python: negative counts from the end. Size of the sequence when out of range.
size_t position(Integer index, size_t size) {
  if (index < 0) index += static_cast<Integer>(size);
  if (index < 0 || index >= static_cast<Integer>(size)) return size;
  return static_cast<size_t>(index);
}

Value character_at(RenderContext& context, const Text& text, Integer index) {
  const std::string& bytes = text.text.bytes;
  context.work(static_cast<int64_t>(bytes.size()));
  const size_t count = code_point_count(bytes);
  const size_t at = position(index, count);
  if (at == count) return make_undefined("str object has no element " + integer_to_string(index));
  const size_t begin = code_point_offset(bytes, at);
  return make_text(context, text.text.slice(begin, begin + code_point_at(bytes, begin).size));
}

Value item_at(const Sequence& sequence, Integer index) {
  const size_t at = position(index, sequence.items.size());
  if (at == sequence.items.size()) {
    return make_undefined("list object has no element " + integer_to_string(index));
  }
  return sequence.items[at];
}

struct SliceRange {
  Integer start = 0, stop = 0, step = 1;
};

Integer slice_bound(const Value& value, Integer fallback, Integer size, bool is_backward) {
  if (value.is<None>()) return fallback;
  const auto given = as_integer(value);
  if (!given) throw RenderError("slice indices must be integers or None");
  const Integer index = *given < 0 ? *given + size : *given;
  return is_backward ? std::clamp<Integer>(index, -1, size - 1)
                     : std::clamp<Integer>(index, 0, size);
}

SliceRange slice_range(size_t item_count, const Value& start, const Value& stop,
                       const Value& step) {
  const Integer size = static_cast<Integer>(item_count);
  SliceRange range;
  if (!step.is<None>()) {
    const auto given = as_integer(step);
    if (!given || *given == 0) throw RenderError("slice step must be an integer that is not zero");
    range.step = *given;
  }
  const bool is_backward = range.step < 0;
  range.start = slice_bound(start, is_backward ? size - 1 : 0, size, is_backward);
  range.stop = slice_bound(stop, is_backward ? -1 : size, size, is_backward);
  return range;
}

template <typename Visit>
void for_each_index(const SliceRange& range, Visit visit) {
  for (Integer i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    visit(static_cast<size_t>(i));
    // A step beyond the end must not overflow.
    if (range.step > 0 ? range.step >= range.stop - i : range.step <= range.stop - i) break;
  }
}

Value slice_text(RenderContext& context, const Text& text, const Value& start, const Value& stop,
                 const Value& step) {
  const std::string& bytes = text.text.bytes;
  context.work(static_cast<int64_t>(bytes.size()));
  const SliceRange range = slice_range(code_point_count(bytes), start, stop, step);
  if (range.step == 1) {
    if (range.start >= range.stop) return make_text(context, MarkedText{}, text.is_markup);
    const size_t begin = code_point_offset(bytes, static_cast<size_t>(range.start));
    const auto length = static_cast<size_t>(range.stop - range.start);
    const size_t end = begin + code_point_offset(std::string_view(bytes).substr(begin), length);
    return make_text(context, text.text.slice(begin, end), text.is_markup);
  }
  const Charge charge = context.charge(static_cast<int64_t>(bytes.size() * sizeof(size_t)));
  std::vector<size_t> offsets;
  for (size_t at = 0; at < bytes.size(); at += code_point_at(bytes, at).size) offsets.push_back(at);
  offsets.push_back(bytes.size());
  TextBuilder out(context);
  for_each_index(range, [&](size_t i) { out.append(text.text, offsets[i], offsets[i + 1]); });
  return out.finish(text.is_markup);
}

}  // namespace

Value subscript(RenderContext& context, const Value& object, const Value& key) {
  if (object.undefined()) throw_undefined(*object.undefined());
  const auto index = as_integer(key);
  if (const Dict* dict = object.dict()) {
    const bool is_hashable =
        !key.dict() && (!key.sequence() || key.sequence()->kind == SequenceKind::kTuple);
    if (const Value* found = is_hashable ? dict->find(key) : nullptr) return *found;
  } else if (index && object.text()) {
    return character_at(context, *object.text(), *index);
  } else if (index && object.sequence() && is_indexable(*object.sequence())) {
    return item_at(*object.sequence(), *index);
  }
  // jinja2 tries the attribute of that name next.
  const Text* name = key.text();
  if (!name) return nothing_at(object, to_text(context, key).bytes);
  Value method = find_method(object, name->text.bytes);
  return method.undefined() ? nothing_at(object, name->text.bytes) : method;
}

Value attribute(const Value& object, std::string_view name) {
  if (object.undefined()) throw_undefined(*object.undefined());
  Value method = find_method(object, name);
  if (!method.undefined() || method.undefined()->reason) return method;
  if (const Dict* dict = object.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  if (const auto* ns = object.get<NamespacePtr>()) {
    const auto found = (*ns)->attributes.find(std::string(name));
    if (found != (*ns)->attributes.end()) return found->second;
  }
  if (object.is<LoopPtr>()) return loop_attribute(object, name);
  return nothing_at(object, name);
}

Value slice(RenderContext& context, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.undefined()) throw_undefined(*object.undefined());
  if (const Text* text = object.text()) return slice_text(context, *text, start, stop, step);
  const Sequence* sequence = object.sequence();
  if (!sequence || !is_indexable(*sequence)) {
    throw RenderError("'" + type_name(object) + "' object is not subscriptable");
  }
  const SliceRange range = slice_range(sequence->items.size(), start, stop, step);
  std::vector<Value> items;
  for_each_index(range, [&](size_t i) { items.push_back(sequence->items[i]); });
  return make_sequence(context, sequence->kind, std::move(items));
}

SequencePtr iterate(RenderContext& context, const Value& value) {
  if (const auto* sequence = value.get<SequencePtr>()) return *sequence;
  std::vector<Value> items;
  if (const Text* text = value.text()) {
    const std::string& bytes = text->text.bytes;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = code_point_at(bytes, at).size;
      items.push_back(make_text(context, text->text.slice(at, at + size)));
      at += size;
    }
  } else if (const Dict* dict = value.dict()) {
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (!value.undefined()) {
    throw RenderError("'" + type_name(value) + "' object is not iterable");
  }
  const Value list = make_sequence(context, SequenceKind::kList, std::move(items));
  return *list.get<SequencePtr>();
}

}  // namespace baton::jinja
