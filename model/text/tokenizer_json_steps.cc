#include "model/text/tokenizer_json_steps.h"

#include <algorithm>

#include "base/status.h"

namespace baton {
namespace {

constexpr std::string_view kByteLevel = "ByteLevel";

std::string type_of(const JsonNode& node) {
  return node.at("type").string();
}

// The components of a Sequence, or the component itself; Sequences inside are flattened.
void flatten(const JsonNode& node, const std::string& list_key, std::vector<JsonNode>* components) {
  if (type_of(node) != "Sequence") {
    components->push_back(node);
    return;
  }
  const JsonNode list = node.at(list_key);
  for (size_t i = 0; i < list.array_size(); ++i) flatten(list.at(i), list_key, components);
}

std::vector<JsonNode> components_of(const JsonNode& root, const std::string& key,
                                    const std::string& list_key) {
  std::vector<JsonNode> components;
  const std::optional<JsonNode> node = root.find(key);
  if (node) flatten(*node, list_key, &components);
  return components;
}

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.string();
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.fail("Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

std::string escape_literal(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void add_split(const JsonNode& node, PreTokenizer* pre_tokenizer) {
  const JsonNode pattern = node.at("pattern");
  const std::optional<JsonNode> regex = pattern.find("Regex");
  const std::optional<JsonNode> literal = pattern.find("String");
  if (!regex && !literal) pattern.fail("{\"Regex\": ...} or {\"String\": ...}");
  pre_tokenizer->add_split(regex ? regex->string() : escape_literal(literal->string()),
                           read_behavior(node.at("behavior")), node.at("invert").boolean(),
                           pattern.place());
}

void add_byte_level(const JsonNode& node, PreTokenizer* pre_tokenizer) {
  if (node.at("add_prefix_space").boolean()) pre_tokenizer->add_prefix_space();
  if (!node.boolean_or("use_regex", true)) return;
  pre_tokenizer->add_split(kGpt2Pattern, SplitBehavior::kIsolated, false, node.place());
}

// Words in the sense of Rust's \w (UTS #18), which is not Oniguruma's.
std::string whitespace_pattern() {
  const std::string word =
      R"(\p{L}\p{M}\p{Nl}\p{Nd}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
      R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
  return "[" + word + "]+|[^" + word + R"(\s]+)";
}

// `tokenizers` knows the punctuation of Unicode 8: what came later is none, and the two that have
// left the category since still are.
std::string punctuation_pattern() {
  const std::string later =
      R"(\x{61D}\x{9FD}\x{A76}\x{C77}\x{C84}\x{1B7D}-\x{1B7E}\x{2E43}-\x{2E4F})"
      R"(\x{2E52}-\x{2E5D}\x{10EAD}\x{10F55}-\x{10F59}\x{10F86}-\x{10F89})"
      R"(\x{1144B}-\x{1144F}\x{1145A}-\x{1145B}\x{1145D}\x{11660}-\x{1166C}\x{116B9})"
      R"(\x{1183B}\x{11944}-\x{11946}\x{119E2}\x{11A3F}-\x{11A46}\x{11A9A}-\x{11A9C})"
      R"(\x{11A9E}-\x{11AA2}\x{11C41}-\x{11C45}\x{11C70}-\x{11C71}\x{11EF7}-\x{11EF8})"
      R"(\x{11FFF}\x{12FF1}-\x{12FF2}\x{16E97}-\x{16E9A}\x{16FE2}\x{1E95E}-\x{1E95F})";
  return "(?![" + later + R"(])[!-\/:-@\[-`\{-~\p{P}\x{166D}\x{111C9}])";
}

void add_pre_tokenizer(const JsonNode& node, PreTokenizer* pre_tokenizer) {
  const std::string type = type_of(node);
  if (type == "Split") {
    add_split(node, pre_tokenizer);
  } else if (type == kByteLevel) {
    add_byte_level(node, pre_tokenizer);
  } else if (type == "Digits") {
    const bool individual = node.boolean_or("individual_digits", false);
    pre_tokenizer->add_split(R"(\p{N})",
                             individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                             false, node.place());
  } else if (type == "Punctuation") {
    const std::optional<JsonNode> behavior = node.find("behavior");
    pre_tokenizer->add_split(punctuation_pattern(),
                             behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated, false,
                             node.place());
  } else if (type == "Whitespace") {
    pre_tokenizer->add_split(whitespace_pattern(), SplitBehavior::kRemoved, /*invert=*/true,
                             node.place());
  } else if (type == "WhitespaceSplit") {
    pre_tokenizer->add_split(R"(\s)", SplitBehavior::kRemoved, false, node.place());
  } else {
    node.at("type").fail(
        "Split, ByteLevel, Digits, Punctuation, Whitespace, WhitespaceSplit or Sequence");
  }
}

void add_template(const JsonNode& node, TokenizerParts* parts) {
  std::vector<int32_t> before, after;
  bool text_seen = false;
  const JsonNode pieces = node.at("single");
  for (size_t i = 0; i < pieces.array_size(); ++i) {
    const JsonNode piece = pieces.at(i);
    if (const auto sequence = piece.find("Sequence")) {
      if (text_seen || sequence->at("id").string() != "A") piece.fail("the text (A) exactly once");
      text_seen = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").string();
    const JsonNode ids = node.at("special_tokens").at(name).at("ids");
    for (size_t k = 0; k < ids.array_size(); ++k) {
      (text_seen ? after : before).push_back(static_cast<int32_t>(ids.at(k).integer(0, INT32_MAX)));
    }
  }
  if (!text_seen) pieces.fail("the text (A) exactly once");
  // Each processor of a Sequence wraps what the one before has made.
  parts->prefix.insert(parts->prefix.begin(), before.begin(), before.end());
  parts->suffix.insert(parts->suffix.end(), after.begin(), after.end());
}

}  // namespace

void read_normalizer(const JsonNode& root, TokenizerParts* parts) {
  for (const JsonNode& node : components_of(root, "normalizer", "normalizers")) {
    if (type_of(node) != "NFC") node.at("type").fail("NFC or a Sequence of it");
    parts->nfc = true;
  }
}

void read_pre_tokenizer(const JsonNode& root, TokenizerParts* parts) {
  const std::vector<JsonNode> nodes = components_of(root, "pre_tokenizer", "pretokenizers");
  for (const JsonNode& node : nodes) {
    const bool is_last = &node == &nodes.back();
    // After ByteLevel a step would see the byte-level alphabet instead of text.
    if ((type_of(node) == kByteLevel) != is_last) {
      node.at("type").fail("ByteLevel as the last pre-tokeniser and nowhere else");
    }
    add_pre_tokenizer(node, &parts->pre_tokenizer);
  }
  if (nodes.empty()) {
    throw ConfigError(root.place() +
                      " pre_tokenizer: got nothing, want ByteLevel, alone or last in a Sequence");
  }
}

void read_post_processor(const JsonNode& root, TokenizerParts* parts) {
  for (const JsonNode& node : components_of(root, "post_processor", "processors")) {
    const std::string type = type_of(node);
    if (type == "TemplateProcessing") {
      add_template(node, parts);
    } else if (type != kByteLevel) {  // ByteLevel trims offsets, which we do not give out
      node.at("type").fail("TemplateProcessing, ByteLevel or a Sequence of them");
    }
  }
}

void check_decoder(const JsonNode& root) {
  const std::vector<JsonNode> nodes = components_of(root, "decoder", "decoders");
  if (nodes.empty()) throw ConfigError(root.place() + " decoder: got nothing, want ByteLevel");
  for (size_t i = 0; i < nodes.size(); ++i) {
    // Fuse joins the tokens, which the byte-level decoder has done.
    const bool known = type_of(nodes[i]) == (i == 0 ? kByteLevel : "Fuse");
    if (!known) nodes[i].at("type").fail("ByteLevel, perhaps with Fuse after it");
  }
}

}  // namespace baton
