#include "model/gguf.h"

#include <cstring>
#include <functional>

#include "base/status.h"
#include "model/gguf_writer.h"
#include "model/json_file.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

// The one-line reason for which the bytes are refused; "" if they are not.
std::string refusal(const std::string& bytes) {
  try {
    open_gguf(write_test_file("malformed.gguf", bytes));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
}

GgufWriter good_file() {
  GgufWriter out;
  out.header(3, 2, 4);
  out.value_string("general.architecture", "llama");
  out.value_u32("llama.block_count", 7);
  out.value_f32("llama.rope.freq_base", 10000.0F);
  out.put_string("names");
  out.put<uint32_t>(9);
  out.put<uint32_t>(8);
  out.put<uint64_t>(2);
  out.put_string("a");
  out.put_string("bc");
  out.tensor_info("first", {3}, 0, 0);
  out.tensor_info("second", {32, 2}, 8, 32);
  out.pad();
  for (int i = 0; i < 3; ++i) out.put(static_cast<float>(i));
  out.pad();
  out.put_bytes(std::string(68, '\1'));
  out.pad();
  return out;
}

// A file of one tensor whose info is as given, followed by `data_bytes` of data.
std::string one_tensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type,
                       uint64_t offset, size_t data_bytes = 4096) {
  GgufWriter out;
  out.header(3, 1, 0);
  out.tensor_info(name, dims, type, offset);
  out.pad();
  out.put_bytes(std::string(data_bytes, '\0'));
  return out.bytes();
}

std::string one_value(const std::function<void(GgufWriter&)>& put_value, int64_t num_values = 1) {
  GgufWriter out;
  out.header(3, 0, num_values);
  put_value(out);
  out.put_bytes(std::string(64, '\0'));
  return out.bytes();
}

}  // namespace

TEST_CASE("a GGUF file's metadata and tensors are read") {
  const GgufFile file = open_gguf(write_test_file("good.gguf", good_file().bytes()));
  CHECK(file.metadata.string("general.architecture") == "llama");
  CHECK(file.metadata.integer("llama.block_count") == 7);
  CHECK(file.metadata.number("llama.rope.freq_base") == 10000.0);
  CHECK(file.metadata.strings("names") == std::vector<std::string>{"a", "bc"});
  const StoredTensor* first = file.tensors.find("first");
  REQUIRE(first != nullptr);
  CHECK(first->shape == std::vector<int64_t>{3});
  float value = 0;
  std::memcpy(&value, first->data + 8, 4);
  CHECK(value == 2.0F);
  const StoredTensor* second = file.tensors.find("second");
  REQUIRE(second != nullptr);
  CHECK(second->shape == std::vector<int64_t>{2, 32});
  CHECK(second->bytes == 68);
}

TEST_CASE("metadata of another type is refused by name") {
  const GgufFile file = open_gguf(write_test_file("good.gguf", good_file().bytes()));
  CHECK_THROWS_AS(file.metadata.integer("general.architecture"), ConfigError);
  CHECK_THROWS_AS(file.metadata.integer("names"), ConfigError);
  CHECK_THROWS_AS(file.metadata.string("llama.block_count"), ConfigError);
  CHECK_THROWS_AS(file.metadata.strings("llama.block_count"), ConfigError);
  CHECK_THROWS_AS(file.metadata.integers("names"), ConfigError);
  CHECK_THROWS_AS(file.metadata.integer("missing"), ConfigError);
  CHECK(file.metadata.integer("missing", 5) == 5);
}

TEST_CASE("a file cut short anywhere is refused") {
  const std::string bytes = good_file().bytes();
  for (size_t length = 0; length < bytes.size() - 28; ++length) {  // the last 28 are padding
    CAPTURE(length);
    CHECK(refusal(bytes.substr(0, length)) != "");
  }
  CHECK(refusal(bytes) == "");
}

TEST_CASE("malformed headers are refused") {
  const std::string good = good_file().bytes();
  std::string bad = good;
  bad[0] = 'g';
  CHECK(contains(refusal(bad), "not a GGUF file"));
  for (const uint32_t version : {0U, 1U, 4U, 0x03000000U}) {
    bad = good;
    std::memcpy(bad.data() + 4, &version, 4);
    CHECK(contains(refusal(bad), "GGUF version " + std::to_string(version)));
  }
  for (const int64_t count : {int64_t{-1}, int64_t{1} << 40, int64_t{1000}}) {
    bad = good;
    std::memcpy(bad.data() + 8, &count, 8);
    CHECK(contains(refusal(bad), "number of tensors"));
    bad = good;
    std::memcpy(bad.data() + 16, &count, 8);
    CHECK(contains(refusal(bad), "number of metadata values"));
  }
}

TEST_CASE("malformed metadata is refused") {
  CHECK(contains(refusal(one_value([](GgufWriter& out) { out.value_u32("", 1); })), "empty"));
  CHECK(contains(refusal(one_value(
                     [](GgufWriter& out) {
                       out.value_u32("k", 1);
                       out.value_u32("k", 2);
                     },
                     2)),
                 "appears twice"));
  CHECK(contains(refusal(one_value([](GgufWriter& out) { out.put<uint64_t>(1ULL << 62); })),
                 "string of"));
  CHECK(
      contains(refusal(one_value([](GgufWriter& out) { out.put<uint64_t>(1000); })), "cut short"));
  for (const uint32_t type : {13U, 255U, 0xFFFFFFFFU}) {
    CHECK(contains(refusal(one_value([type](GgufWriter& out) {
                     out.put_string("k");
                     out.put(type);
                   })),
                   "unknown type"));
  }
  CHECK(contains(refusal(one_value([](GgufWriter& out) {
                   out.put_string("k");
                   out.put<uint32_t>(9);
                   out.put<uint32_t>(9);
                 })),
                 "nested array"));
  CHECK(contains(refusal(one_value([](GgufWriter& out) {
                   out.put_string("k");
                   out.put<uint32_t>(9);
                   out.put<uint32_t>(4);
                   out.put<uint64_t>(1ULL << 61);
                 })),
                 "array's length"));
  CHECK(contains(refusal(one_value([](GgufWriter& out) {
                   out.put_string("k");
                   out.put<uint32_t>(7);
                   out.put<uint8_t>(2);
                 })),
                 "boolean"));
  for (const uint32_t alignment : {0U, 3U, 48U, 1U << 31}) {
    CHECK(contains(refusal(one_value([alignment](GgufWriter& out) {
                     out.value_u32("general.alignment", alignment);
                   })),
                   "general.alignment"));
  }
}

TEST_CASE("malformed tensors are refused") {
  CHECK(refusal(one_tensor("t", {32}, 0, 0)) == "");
  CHECK(contains(refusal(one_tensor(std::string(64, 'n'), {1}, 0, 0)), "name of 64 bytes"));
  CHECK(contains(refusal(one_tensor("", {1}, 0, 0)), "name of 0 bytes"));
  CHECK(contains(refusal(one_tensor("t", {1, 1, 1, 1, 1}, 0, 0)), "5 dimensions"));
  CHECK(contains(refusal(one_tensor("t", {0, 4}, 0, 0)), "want at least 1"));
  CHECK(contains(refusal(one_tensor("t", {-4}, 0, 0)), "want at least 1"));
  CHECK(contains(refusal(one_tensor("t", {int64_t{1} << 40, int64_t{1} << 40}, 0, 0)),
                 "too many elements"));
  CHECK(contains(refusal(one_tensor("t", {int64_t{1} << 55}, 0, 0)), "cut short"));
  for (const uint32_t type : {4U, 5U, 31U, 9U, 39U, 1000U}) {  // removed, unsupported, unknown
    CHECK(contains(refusal(one_tensor("t", {256}, type, 0)), "is not supported"));
  }
  CHECK(contains(refusal(one_tensor("t", {33}, 3, 0)), "want a multiple of 32"));
  CHECK(contains(refusal(one_tensor("t", {32, 8}, 12, 0)), "want a multiple of 256"));
  CHECK(contains(refusal(one_tensor("t", {32}, 0, 32)), "offset 32"));
  CHECK(contains(refusal(one_tensor("t", {2048}, 0, 0)), "cut short"));
  GgufWriter twice;
  twice.header(3, 2, 0);
  twice.tensor_info("t", {8}, 0, 0);
  twice.tensor_info("t", {8}, 0, 32);
  twice.pad();
  twice.put_bytes(std::string(64, '\0'));
  CHECK(contains(refusal(twice.bytes()), "appears twice"));
}

TEST_CASE("JSON that nests too deeply, repeats a key or breaks off is refused in one line") {
  const auto json_refusal = [](const std::string& text) -> std::string {
    try {
      parse_json(text, "file");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(json_refusal(std::string(64, '[') + std::string(64, ']')) == "");
  CHECK(contains(json_refusal(std::string(65, '[') + std::string(65, ']')), "nests deeper"));
  CHECK(contains(json_refusal(std::string(1'000'000, '[')), "nests deeper"));
  CHECK(contains(json_refusal(R"({"a":1,"a":2})"), "appears twice"));
  CHECK(contains(json_refusal(R"({"a":)"), "not valid JSON"));
  CHECK(contains(json_refusal("{\"\xff\":1}"), "not valid JSON"));
  CHECK(json_refusal(R"({"a":{"x":1},"b":{"x":1}})") == "");
}
