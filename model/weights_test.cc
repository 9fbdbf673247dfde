// Weights on their way from files to a backend that reads them in the background, as a GPU's does;
// here the "GPU" is a list of the pieces that have arrived.
#include "model/weights.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/status.h"
#include "kernels/linear/weight_pipeline.h"
#include "model/model_source.h"
#include "model/tiny_gguf.h"

#include "tests/doctest.h"

using namespace baton;

namespace {

constexpr int64_t kPieceBytes = 4096;

struct Arrived {
  std::mutex mutex;
  std::map<const Bf16*, std::string> pieces;
};

class ListLane final : public WeightLane {
 public:
  explicit ListLane(Arrived* arrived) : arrived_(arrived), buffer_(kPieceBytes) {}
  std::byte* free_buffer() override { return buffer_.data(); }
  void send(const WeightPiece& piece) override {
    const std::lock_guard lock(arrived_->mutex);
    arrived_->pieces[piece.to].assign(reinterpret_cast<const char*>(buffer_.data()),
                                      static_cast<size_t>(piece.bytes));
  }

 private:
  Arrived* const arrived_;
  std::vector<std::byte> buffer_;
};

class HostMemory final : public BackendMemory {
 public:
  explicit HostMemory(std::vector<std::byte> bytes)
      : BackendMemory(bytes.data()), bytes_(std::move(bytes)) {}

 private:
  const std::vector<std::byte> bytes_;
};

class ListBackend final : public Backend {
 public:
  ListBackend() {
    std::vector<std::unique_ptr<WeightLane>> lanes;
    for (int i = 0; i < 3; ++i) lanes.push_back(std::make_unique<ListLane>(&arrived_));
    pipeline_ = std::make_unique<WeightPipeline>(std::move(lanes), kPieceBytes);
  }
  std::unique_ptr<LinearWeight> prepare_stacked(std::span<const TensorView> stacked,
                                                MatrixInput) override {
    for (const TensorView& view : stacked) add(view);
    return nullptr;
  }
  std::unique_ptr<EmbeddingTable> prepare_table(const TensorView& table) override {
    add(table);
    return nullptr;
  }
  std::unique_ptr<BackendMemory> allocate(int64_t) override { return nullptr; }
  std::unique_ptr<BackendMemory> upload(const void* data, int64_t bytes) override {
    const auto* from = static_cast<const std::byte*>(data);
    return std::make_unique<HostMemory>(std::vector<std::byte>(from, from + bytes));
  }
  const char* isa() const override { return "list"; }

  void finish() { pipeline_->finish({}); }
  // By name; only after finish().
  std::map<std::string, std::string> bytes_of_tensors() {
    std::map<std::string, std::string> tensors;
    for (const auto& [name, room] : rooms_) {
      const Bf16* end = room->data() + room->size();
      for (auto it = arrived_.pieces.lower_bound(room->data());
           it != arrived_.pieces.end() && it->first < end; ++it)
        tensors[name] += it->second;
    }
    return tensors;
  }

 private:
  void add(const TensorView& view) {
    auto room = std::make_shared<std::vector<Bf16>>(static_cast<size_t>(view.rows * view.cols));
    rooms_[view.name] = room;
    pipeline_->add(view, room->data(), room);
  }
  Arrived arrived_;
  std::map<std::string, std::shared_ptr<std::vector<Bf16>>> rooms_;
  std::unique_ptr<WeightPipeline> pipeline_;  // last: its lanes use the list
};

TinyGgufModel some_model() {
  return random_tiny_gguf(
      [](const std::string& name) { return name == "ffn_up" ? Dtype::kQ6_K : Dtype::kQ4_0; }, 5);
}

}  // namespace

TEST_CASE("every matrix of a file arrives whole and under its name, also after the model is gone") {
  const TinyGgufModel model = some_model();
  ListBackend backend;
  {
    ModelSource source = open_model(write_tiny_gguf("whole.gguf", model));
    load_weights(source.config, std::move(source.store), source.names, backend, {});
  }
  backend.finish();
  const std::map<std::string, std::string> got = backend.bytes_of_tensors();
  size_t num_matrices = 0;
  for (const auto& [name, matrix] : model.tensors) {
    if (matrix.dims.size() != 2) continue;
    CAPTURE(name);
    ++num_matrices;
    REQUIRE(got.contains(name));
    CHECK(got.at(name) == matrix.bytes);
  }
  CHECK(got.size() == num_matrices);
}

TEST_CASE("a file that is cut short while it is being read is named with the tensor") {
  const std::string path = write_tiny_gguf("cut.gguf", some_model());
  ModelSource source = open_model(path);
  // The file's last tensor loses its end.
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  ListBackend backend;
  load_weights(source.config, std::move(source.store), source.names, backend, {});
  std::string error;
  try {
    backend.finish();
  } catch (const ConfigError& caught) {
    error = caught.what();
  }
  CHECK(error.starts_with(path + ": tensor 'token_embd.weight': cannot read"));
  CHECK(error.ends_with("the file ends there; it was cut short while in use"));
}
