#include "model/safetensors.h"

#include <cstring>
#include <filesystem>

#include "base/status.h"
#include "model/gguf_writer.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

std::string with_header(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header +
         std::string(data_bytes, '\1');
}

std::string refusal(const std::string& bytes) {
  try {
    open_safetensors(write_test_file("malformed.safetensors", bytes));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

}  // namespace

TEST_CASE("what is written is read back") {
  const std::string path = write_test_file("back.safetensors", "");
  write_safetensors(path, {{"a", {.shape = {2, 3}, .data = {1, 2, 3, 4, 5, 6}}},
                           {"b", {.shape = {}, .data = {7}}}});
  const TensorStore store = open_safetensors(path);
  REQUIRE(store.find("a") != nullptr);
  CHECK(store.find("a")->shape == std::vector<int64_t>{2, 3});
  CHECK(store.find("a")->dtype == Dtype::kF32);
  float value = 0;
  std::memcpy(&value, store.find("a")->data + 20, 4);
  CHECK(value == 6.0F);
  CHECK(store.find("b")->shape.empty());
  CHECK(store.find("c") == nullptr);
}

TEST_CASE("good corner cases are taken") {
  CHECK(refusal(with_header("{}", 0)) == "");
  CHECK(refusal(with_header("{}      ", 0)) == "");
  CHECK(refusal(with_header(R"({"__metadata__":{"format":"pt"}})", 0)) == "");
  CHECK(refusal(with_header(entry("F32", "[0,5]", "[0,0]"), 0)) == "");
  CHECK(refusal(with_header(entry("I64", "[]", "[0,8]"), 8)) == "");
  CHECK(refusal(with_header(entry("F8_E4M3", "[3]", "[0,3]"), 3)) == "");
}

TEST_CASE("malformed headers are refused") {
  CHECK(contains(refusal(""), "want at least the 8"));
  CHECK(contains(refusal(std::string(7, '\0')), "want at least the 8"));
  CHECK(contains(refusal(std::string(8, '\0')), "does not start with '{'"));
  CHECK(contains(refusal(std::string(8, '\xff') + "{}"), "want at most 100000000"));
  CHECK(contains(refusal(with_header("{}", 0).substr(0, 9)), "but the file has only 9"));
  CHECK(contains(refusal(with_header("[1]", 0)), "does not start with '{'"));
  CHECK(contains(refusal(with_header("{\"a\":}", 0)), "not valid JSON"));
  CHECK(contains(refusal(with_header("{\"\xff\":1}", 0)), "not valid JSON"));
  CHECK(contains(
      refusal(with_header("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", 0)),
      "nests deeper"));
  CHECK(contains(refusal(with_header(R"({"__metadata__":{"a":1}})", 0)), "not a string"));
  CHECK(contains(refusal(with_header(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                     R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                     1)),
                 "appears twice"));
  CHECK(contains(
      refusal(with_header(R"({"t\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)),
      "NUL"));
}

TEST_CASE("malformed tensors are refused") {
  CHECK(contains(refusal(with_header(R"({"t":7})", 0)), "want {dtype"));
  CHECK(contains(refusal(with_header(entry("F99", "[1]", "[0,4]"), 4)), "unknown dtype"));
  CHECK(contains(refusal(with_header(entry("F32", "[-1]", "[0,4]"), 4)), "non-negative integer"));
  CHECK(contains(refusal(with_header(entry("F32", "[1.5]", "[0,4]"), 4)), "non-negative integer"));
  CHECK(contains(refusal(with_header(entry("F32", "[9223372036854775808,2]", "[0,4]"), 4)),
                 "overflows"));
  CHECK(contains(refusal(with_header(entry("F32", "[4294967296,4294967296]", "[0,4]"), 4)),
                 "overflows"));
  CHECK(contains(refusal(with_header(entry("F32", "[1]", "[4,0]"), 4)), "data_offsets"));
  CHECK(contains(refusal(with_header(entry("F32", "[1]", "[0,8]"), 8)), "data_offsets"));
  CHECK(contains(refusal(with_header(entry("F32", "[1]", "[0]"), 4)), "want {dtype"));
  CHECK(contains(refusal(with_header(entry("F32", "[1]", "[4,8]"), 8)), "a gap or an overlap"));
  CHECK(contains(refusal(with_header(entry("F32", "[2]", "[0,8]"), 4)), "cut short"));
  CHECK(contains(refusal(with_header(entry("F32", "[1]", "[0,4]"), 5)), "after the last tensor"));
  CHECK(contains(refusal(with_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                                     6)),
                 "a gap or an overlap"));
}

TEST_CASE("shards are read through their index, and a wrong index is refused") {
  const std::string one = write_test_file("sharded/model-00001-of-00002.safetensors", "");
  const std::string folder = std::filesystem::path(one).parent_path().string();
  write_safetensors(one, {{"a", {.shape = {1}, .data = {1}}}});
  write_safetensors(folder + "/model-00002-of-00002.safetensors",
                    {{"b", {.shape = {1}, .data = {2}}}});
  const auto index_refusal = [&](const std::string& index) -> std::string {
    write_test_file("sharded/model.safetensors.index.json", index);
    try {
      const TensorStore store = open_safetensors(folder);
      CHECK(store.tensors.size() == 2);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const std::string first = R"({"weight_map":{"a":"model-00001-of-00002.safetensors",)";
  CHECK(index_refusal(first + R"("b":"model-00002-of-00002.safetensors"}})") == "");
  CHECK(contains(index_refusal(first + R"("b":"../b.safetensors"}})"), "in the same folder"));
  CHECK(contains(index_refusal(first + R"("b":"model-00003.safetensors"}})"), "cannot open"));
  CHECK(contains(index_refusal(first + R"("c":"model-00002-of-00002.safetensors"}})"),
                 "'c' is not in its shard"));
  CHECK(contains(index_refusal(R"({"weight_map":3})"), "no weight_map"));
  write_safetensors(folder + "/model-00002-of-00002.safetensors",
                    {{"a", {.shape = {1}, .data = {2}}}, {"b", {.shape = {1}, .data = {2}}}});
  CHECK(contains(index_refusal(first + R"("b":"model-00002-of-00002.safetensors"}})"),
                 "also in another shard"));
}
