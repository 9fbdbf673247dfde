#include "base/message_codec.h"

#include <cstring>
#include <limits>
#include <numeric>

#include "base/message_fields.h"
#include "base/msgpack.h"

namespace baton {
namespace {

template <typename T>
concept Number = std::is_arithmetic_v<T> && !std::same_as<T, bool>;
template <typename T>
concept Struct = requires(T& value) {
  fields(value);
};

// The columns of a list of events; one that is all default is left empty. `top` lies flat with one
// count an event.
struct EventColumns {
  std::vector<uint64_t> router_epoch, sequence;
  std::vector<uint32_t> attempt;
  std::vector<int32_t> choice, position, token;
  std::vector<uint8_t> finish, has_stop_id;
  std::vector<int32_t> stop_id;
  std::vector<float> logprob;
  std::vector<uint32_t> top_count;
  std::vector<int32_t> top_token;
  std::vector<float> top_logprob;
};
auto columns(auto& c) {
  return std::tie(c.router_epoch, c.sequence, c.attempt, c.choice, c.position, c.token, c.finish,
                  c.has_stop_id, c.stop_id, c.logprob, c.top_count, c.top_token, c.top_logprob);
}

template <typename T>
void clear_if_default(std::vector<T>& column) {
  for (const T& value : column)
    if (value != T{}) return;
  column.clear();
}

EventColumns to_columns(const std::vector<TokenEvent>& events) {
  EventColumns c;
  for (const TokenEvent& e : events) {
    c.router_epoch.push_back(e.id.id.router_epoch);
    c.sequence.push_back(e.id.id.sequence);
    c.attempt.push_back(e.id.attempt);
    c.choice.push_back(e.choice);
    c.position.push_back(e.position);
    c.token.push_back(e.token);
    c.finish.push_back(static_cast<uint8_t>(e.finish));
    c.has_stop_id.push_back(e.stop_id.has_value());
    c.stop_id.push_back(e.stop_id.value_or(0));
    c.logprob.push_back(e.logprob);
    c.top_count.push_back(static_cast<uint32_t>(e.top.size()));
    for (const TokenLogprob& t : e.top) {
      c.top_token.push_back(t.token);
      c.top_logprob.push_back(t.logprob);
    }
  }
  // `sequence` stays: its length is the number of events.
  clear_if_default(c.attempt);
  clear_if_default(c.choice);
  clear_if_default(c.finish);
  clear_if_default(c.has_stop_id);
  clear_if_default(c.stop_id);
  clear_if_default(c.logprob);
  clear_if_default(c.top_count);
  return c;
}

// ---- writing ----

class Writer {
 public:
  explicit Writer(std::string& out) : pack_(out) {}

  void put(bool value) { pack_.boolean(value); }
  void put(float value) { pack_.float32(value); }
  void put(double value) { pack_.float64(value); }
  template <std::signed_integral T>
  void put(T value) {
    pack_.sint(value);
  }
  template <std::unsigned_integral T>
  void put(T value) {
    pack_.uint(value);
  }
  template <typename E>
  requires std::is_enum_v<E>
  void put(E value) { pack_.uint(static_cast<uint64_t>(value)); }
  void put(const std::string& value) { pack_.bin(value); }

  template <typename T>
  void put(const std::optional<T>& value) {
    if (value) {
      put(*value);
    } else {
      pack_.nil();
    }
  }
  template <Number T>
  void put(const std::vector<T>& list) {
    pack_.bin({reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)});
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    pack_.array(static_cast<uint32_t>(list.size()));
    for (const T& element : list) put(element);
  }
  void put(const std::vector<TokenLogprob>& list) {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    for (const TokenLogprob& t : list) {
      tokens.push_back(t.token);
      logprobs.push_back(t.logprob);
    }
    put_all(std::tie(tokens, logprobs));
  }
  void put(const std::vector<std::pair<TokenId, float>>& list) {
    std::vector<int32_t> tokens;
    std::vector<float> values;
    for (const auto& [token, value] : list) {
      tokens.push_back(token);
      values.push_back(value);
    }
    put_all(std::tie(tokens, values));
  }
  void put(const std::vector<std::vector<TokenLogprob>>& lists) {
    std::vector<uint32_t> counts;
    std::vector<TokenLogprob> flat;
    for (const auto& list : lists) {
      counts.push_back(static_cast<uint32_t>(list.size()));
      flat.insert(flat.end(), list.begin(), list.end());
    }
    put_all(std::tie(counts, flat));
  }
  void put(const std::vector<TokenEvent>& events) {
    const EventColumns c = to_columns(events);
    put_all(columns(c));
  }
  template <Struct T>
  void put(const T& value) {
    put_all(fields(value));
  }

  void put_message(const Message& message) {
    std::visit(
        [&](const auto& m) {
          const auto list = fields(m);
          pack_.array(1 + std::tuple_size_v<decltype(fields(m))>);
          pack_.uint(message.index());
          std::apply([&](const auto&... field) { (put(field), ...); }, list);
        },
        message);
  }

 private:
  template <typename... T>
  void put_all(const std::tuple<T...>& list) {
    pack_.array(sizeof...(T));
    std::apply([&](const auto&... field) { (put(field), ...); }, list);
  }

  MsgpackWriter pack_;
};

// ---- reading ----

class Reader {
 public:
  explicit Reader(std::string_view bytes) : pack_(bytes) {}
  MsgpackReader& pack() { return pack_; }

  void get(bool& value) { value = pack_.boolean(); }
  void get(float& value) { value = pack_.float32(); }
  void get(double& value) { value = pack_.number(); }
  template <std::signed_integral T>
  void get(T& value) {
    const int64_t wide = pack_.sint();
    if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max())
      return pack_.fail("an integer is out of range");
    value = static_cast<T>(wide);
  }
  template <std::unsigned_integral T>
  void get(T& value) {
    const uint64_t wide = pack_.uint();
    if (wide > std::numeric_limits<T>::max()) return pack_.fail("an integer is out of range");
    value = static_cast<T>(wide);
  }
  template <typename E>
  requires std::is_enum_v<E>
  void get(E& value) {
    const uint64_t wide = pack_.uint();
    if (wide > static_cast<uint64_t>(kLastValue<E>)) return pack_.fail("an unknown kind");
    value = static_cast<E>(wide);
  }
  void get(std::string& value) { value = pack_.bin(); }

  template <typename T>
  void get(std::optional<T>& value) {
    if (pack_.next_is_nil()) {
      value.reset();
    } else {
      get(value.emplace());
    }
  }
  template <Number T>
  void get(std::vector<T>& list) {
    const std::string_view bytes = pack_.bin();
    if (bytes.size() % sizeof(T) != 0) return pack_.fail("a list of numbers ends in mid-number");
    list.resize(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(list.data(), bytes.data(), bytes.size());
  }
  template <typename T>
  void get(std::vector<T>& list) {
    const uint32_t count = pack_.array();
    if (count > kListLengthMax) return pack_.fail("a list is too long");
    for (uint32_t i = 0; i < count && !pack_.failed(); ++i) get(list.emplace_back());
  }
  void get(std::vector<TokenLogprob>& list) {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    get_all(std::tie(tokens, logprobs));
    if (tokens.size() != logprobs.size()) return pack_.fail("columns differ in length");
    for (size_t i = 0; i < tokens.size(); ++i) list.push_back({tokens[i], logprobs[i]});
  }
  void get(std::vector<std::pair<TokenId, float>>& list) {
    std::vector<int32_t> tokens;
    std::vector<float> values;
    get_all(std::tie(tokens, values));
    if (tokens.size() != values.size()) return pack_.fail("columns differ in length");
    for (size_t i = 0; i < tokens.size(); ++i) list.emplace_back(tokens[i], values[i]);
  }
  void get(std::vector<std::vector<TokenLogprob>>& lists) {
    std::vector<uint32_t> counts;
    std::vector<TokenLogprob> flat;
    get_all(std::tie(counts, flat));
    if (!sums_to(counts, flat.size())) return pack_.fail("counts do not sum to the list");
    auto at = flat.begin();
    for (const uint32_t count : counts) {
      lists.emplace_back(at, at + count);
      at += count;
    }
  }
  void get(std::vector<TokenEvent>& events) {
    EventColumns c;
    get_all(columns(c));
    if (!complete(c)) return pack_.fail("columns of events differ in length");
    size_t top = 0;
    for (size_t i = 0; i < c.sequence.size() && !pack_.failed(); ++i)
      events.push_back(event_at(c, i, &top));
  }
  template <Struct T>
  void get(T& value) {
    get_all(fields(value));
  }

  // As many of `list` as there are of `count` values on the wire; what is more there is passed
  // over.
  template <typename... T>
  void get_fields(uint32_t count, std::tuple<T&...> list) {
    uint32_t taken = 0;
    std::apply([&](T&... field) { ((taken < count ? (get(field), ++taken) : taken), ...); }, list);
    for (; taken < count && !pack_.failed(); ++taken) pack_.skip();
  }

 private:
  template <typename... T>
  void get_all(std::tuple<T&...> list) {
    get_fields(pack_.array(), list);
  }

  static bool sums_to(const std::vector<uint32_t>& counts, size_t size) {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0}) == size;
  }

  // Every column is as long as `sequence`, those that may be left out also empty (then filled here
  // with defaults).
  static bool complete(EventColumns& c) {
    const size_t n = c.sequence.size();
    const auto optional = [n](auto& column) {
      if (column.empty()) column.resize(n);
      return column.size() == n;
    };
    return c.router_epoch.size() == n && c.position.size() == n && c.token.size() == n &&
           optional(c.attempt) && optional(c.choice) && optional(c.finish) &&
           optional(c.has_stop_id) && optional(c.stop_id) && optional(c.logprob) &&
           optional(c.top_count) && c.top_token.size() == c.top_logprob.size() &&
           sums_to(c.top_count, c.top_token.size());
  }

  TokenEvent event_at(const EventColumns& c, size_t i, size_t* top) {
    TokenEvent e;
    e.id = {{c.router_epoch[i], c.sequence[i]}, c.attempt[i]};
    e.choice = c.choice[i];
    e.position = c.position[i];
    e.token = c.token[i];
    if (c.finish[i] > static_cast<uint8_t>(kLastValue<FinishReason>)) pack_.fail("an unknown kind");
    e.finish = static_cast<FinishReason>(c.finish[i]);
    if (c.has_stop_id[i] != 0) e.stop_id = c.stop_id[i];
    e.logprob = c.logprob[i];
    for (uint32_t k = 0; k < c.top_count[i]; ++k, ++*top)
      e.top.push_back({c.top_token[*top], c.top_logprob[*top]});
    return e;
  }

  MsgpackReader pack_;
};

template <size_t... kIndex>
bool get_message(Reader& reader, uint64_t type, uint32_t count, Message* message,
                 std::index_sequence<kIndex...>) {
  const auto get_if = [&]<size_t kType>() {
    if (type != kType) return false;
    reader.get_fields(count, fields(message->emplace<kType>()));
    return true;
  };
  return (get_if.template operator()<kIndex>() || ...);
}

}  // namespace

std::string encode_message(const Message& message) {
  std::string bytes;
  // Or what follows a long prompt would double the string, and copy it once more.
  std::visit(
      [&](const auto& m) {
        if constexpr (requires { m.spec; })
          bytes.reserve(encoded_bytes_max(m.spec) + m.tokens.size() * sizeof(TokenId));
      },
      message);
  Writer(bytes).put_message(message);
  return bytes;
}

Result<Message> decode_message(std::string_view bytes) {
  const auto invalid = [&](const std::string& reason) {
    return invalid_argument("message of " + std::to_string(bytes.size()) + " bytes: " + reason);
  };
  if (bytes.size() > kMessageBytesMax)
    return invalid("want at most " + std::to_string(kMessageBytesMax));
  Reader reader(bytes);
  const uint32_t count = reader.pack().array();
  const uint64_t type = reader.pack().uint();
  if (reader.pack().failed()) return invalid(reader.pack().reason());
  if (count == 0) return invalid("want its type first");
  Message message;
  if (!get_message(reader, type, count - 1, &message,
                   std::make_index_sequence<std::variant_size_v<Message>>()))
    return Status(Code::kNotFound, "message type: got " + std::to_string(type) +
                                       ", want one below " +
                                       std::to_string(std::variant_size_v<Message>));
  if (reader.pack().failed())
    return invalid(std::string(message_name(message)) + ": " + reader.pack().reason());
  if (reader.pack().bytes_left() > 0) return invalid("bytes follow its end");
  return message;
}

size_t encoded_bytes_max(const SamplingSpec& spec) {
  constexpr size_t kScalarsBytesMax = 1024;  // names, numbers and list heads
  constexpr size_t kListHeadBytesMax = 5;
  constexpr size_t kBiasBytesMax = 1 + kTokenIdBytesMax + 9;
  size_t ids = spec.allowed_token_ids.size() + spec.eos_ids.size() + spec.stop_ids.size();
  for (const std::vector<TokenId>& word : spec.bad_words) ids += word.size();
  return kScalarsBytesMax + spec.cache_salt.size() + ids * kTokenIdBytesMax +
         spec.bad_words.size() * kListHeadBytesMax + spec.logit_bias.size() * kBiasBytesMax;
}

}  // namespace baton
