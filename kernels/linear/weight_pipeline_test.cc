#include "kernels/linear/weight_pipeline.h"

#include <atomic>
#include <cstring>
#include <future>
#include <map>

#include "base/status.h"

#include "tests/doctest.h"

namespace baton {
namespace {

constexpr int64_t kPieceBytes = 4096;
// Of 8 columns; reading them all takes hours, so a test ends only if that is given up.
constexpr int64_t kEndlessRows = int64_t{1} << 37;

// Byte i is i modulo 251. Fails where a test says so.
class FakeSource final : public WeightSource {
 public:
  explicit FakeSource(int64_t fails_at = -1) : fails_at_(fails_at) {}
  void read(const std::string& tensor, int64_t offset, std::span<std::byte> to) const override {
    ++reads;
    reads.notify_all();
    if (hold.valid()) hold.wait();
    const auto end = offset + static_cast<int64_t>(to.size());
    if (fails_at_ >= offset && fails_at_ < end)
      throw ConfigError("m.gguf: tensor '" + tensor + "': cannot read");
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::byte>((offset + static_cast<int64_t>(i)) % 251);
  }
  mutable std::atomic<int> reads{0};
  std::shared_future<void> hold;  // reads wait for it

 private:
  const int64_t fails_at_;
};

// What all lanes have sent, by where it goes.
struct Arrived {
  std::mutex mutex;
  std::map<Bf16*, std::vector<std::byte>> pieces;
  int64_t elems = 0;
  int begun = 0, finished = 0;
};

class FakeLane final : public WeightLane {
 public:
  explicit FakeLane(Arrived* arrived) : arrived_(arrived), buffer_(kPieceBytes) {}
  void begin() override {
    const std::lock_guard lock(arrived_->mutex);
    ++arrived_->begun;
  }
  std::byte* free_buffer() override {
    std::fill(buffer_.begin(), buffer_.end(), std::byte{0xEE});
    return buffer_.data();
  }
  void send(const WeightPiece& piece) override {
    const std::lock_guard lock(arrived_->mutex);
    arrived_->pieces[piece.to] = {buffer_.begin(), buffer_.begin() + piece.bytes};
    arrived_->elems += piece.elems;
  }
  void finish() override {
    const std::lock_guard lock(arrived_->mutex);
    ++arrived_->finished;
  }

 private:
  Arrived* const arrived_;
  std::vector<std::byte> buffer_;
};

std::unique_ptr<WeightPipeline> make_pipeline(Arrived* arrived, int num_lanes) {
  std::vector<std::unique_ptr<WeightLane>> lanes;
  for (int i = 0; i < num_lanes; ++i) lanes.push_back(std::make_unique<FakeLane>(arrived));
  return std::make_unique<WeightPipeline>(std::move(lanes), kPieceBytes);
}

std::string error_of_finish(WeightPipeline& pipeline) {
  try {
    pipeline.finish({});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("every block of every tensor arrives once, where it belongs") {
  for (const int num_lanes : {1, 5}) {
    CAPTURE(num_lanes);
    const auto source = std::make_shared<FakeSource>();
    Arrived arrived;
    const auto pipeline = make_pipeline(&arrived, num_lanes);
    // Q6_K blocks of 210 bytes do not fill a piece; the second tensor fits one, the third is empty.
    const TensorView views[] = {
        {.dtype = Dtype::kQ6_K, .rows = 77, .cols = 512, .source = source.get()},
        {.dtype = Dtype::kF16, .rows = 3, .cols = 8, .source = source.get(), .source_offset = 7},
        {.dtype = Dtype::kF32, .rows = 0, .cols = 8, .source = source.get()}};
    std::vector<Bf16> to(77 * 512 + 24);
    pipeline->add(views[0], to.data(), nullptr);
    pipeline->add(views[1], to.data() + 77 * 512, nullptr);
    pipeline->add(views[2], nullptr, nullptr);
    double last = 0;
    pipeline->finish([&](double fraction) {
      CHECK(fraction >= last);
      last = fraction;
    });
    CHECK(last == 1);
    CHECK(arrived.begun == num_lanes);
    CHECK(arrived.finished == num_lanes);
    CHECK(arrived.elems == 77 * 512 + 24);
    int64_t offset = 0, wrong = 0;
    for (const auto& [at, bytes] : arrived.pieces) {
      const bool second = at == to.data() + 77 * 512;
      CHECK(static_cast<int64_t>(bytes.size()) <= kPieceBytes);
      if (second) offset = 7;
      if (!second) CHECK(at - to.data() == offset / 210 * 256);
      for (const std::byte byte : bytes) wrong += byte != static_cast<std::byte>(offset++ % 251);
    }
    CHECK(wrong == 0);
    CHECK(offset == 7 + 48);
  }
}

TEST_CASE("a tensor in memory is read from there") {
  Arrived arrived;
  const auto pipeline = make_pipeline(&arrived, 2);
  const std::vector<float> values(3000, 2.5F);
  std::vector<Bf16> to(values.size());
  pipeline->add({Dtype::kF32, 3, 1000, values.data()}, to.data(), nullptr);
  pipeline->finish({});
  CHECK(arrived.pieces.size() == 3);
  for (const auto& [at, bytes] : arrived.pieces)
    CHECK(std::memcmp(bytes.data(), values.data(), bytes.size()) == 0);
}

TEST_CASE("a read that fails ends the load with its reason, and nothing more is begun") {
  const auto broken = std::make_shared<FakeSource>(3 * kPieceBytes + 1);
  std::vector<Bf16> room(8);
  Arrived arrived;
  const auto pipeline = make_pipeline(&arrived, 2);
  pipeline->add({.dtype = Dtype::kBF16,
                 .rows = kEndlessRows,
                 .cols = 8,
                 .name = "blk.0.attn_q.weight",
                 .source = broken.get()},
                room.data(), nullptr);
  CHECK(error_of_finish(*pipeline) == "m.gguf: tensor 'blk.0.attn_q.weight': cannot read");
}

TEST_CASE(
    "a pipeline that is dropped gives up what it has not begun and keeps what it reads from") {
  std::promise<void> go_on;
  auto source = std::make_shared<FakeSource>();
  source->hold = go_on.get_future().share();
  const std::weak_ptr<FakeSource> watched = source;
  auto room = std::make_shared<std::vector<Bf16>>(8);
  const std::weak_ptr<std::vector<Bf16>> watched_room = room;
  Arrived arrived;
  auto pipeline = make_pipeline(&arrived, 3);
  pipeline->add({.dtype = Dtype::kBF16, .rows = kEndlessRows, .cols = 8, .source = source.get()},
                room->data(), room);
  const FakeSource& reading = *source;
  source.reset();
  room.reset();
  for (int reads = reading.reads; reads < 3; reads = reading.reads) reading.reads.wait(reads);
  CHECK(!watched.expired());
  CHECK(!watched_room.expired());
  go_on.set_value();
  pipeline.reset();
  CHECK(watched.expired());
  CHECK(watched_room.expired());
}

}  // namespace baton
