#include "kvtransfer/page_hasher_cuda.h"

#include <array>
#include <utility>

#include "base/check.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kvtransfer/page_digest.h"

namespace baton {
namespace {

class CudaPageHasher final : public PageHasher {
 public:
  CudaPageHasher(int32_t device, std::vector<PagePool*> pools)
      : device_(device), pools_(std::move(pools)) {}

  void hash(uint64_t owner, int32_t group, int32_t page_id, Done done) override {
    CHECK(page_id >= 0 && page_id < pools_.at(group)->num_pages()) << "page " << page_id;
    jobs_.push_back({owner, group, page_id, std::move(done)});
  }
  void cancel(uint64_t owner) override {
    std::erase_if(jobs_, [owner](const Job& job) { return job.owner == owner; });
  }
  bool pump() override;

 private:
  struct Job {
    uint64_t owner = 0;
    int32_t group = 0;
    int32_t page_id = 0;
    Done done;
  };
  // Made at first use: most workers never hash.
  struct Gpu {
    CudaStream stream;
    DeviceBuffer sums{kDigestPagesMax * sizeof(WordSums)};
  };
  std::vector<Job> take_batch(DigestPages* pages);

  const int32_t device_;
  const std::vector<PagePool*> pools_;
  std::deque<Job> jobs_;
  std::unique_ptr<Gpu> gpu_;
};

// The oldest jobs of one group.
std::vector<CudaPageHasher::Job> CudaPageHasher::take_batch(DigestPages* pages) {
  std::vector<Job> batch;
  const PagePool& pool = *pools_[jobs_.front().group];
  pages->page_bytes = pool.page_bytes();
  CHECK_EQ(pages->page_bytes % 16, 0) << "bytes of a page";
  const int32_t group = jobs_.front().group;
  while (!jobs_.empty() && jobs_.front().group == group && pages->count < kDigestPagesMax) {
    pages->pages[pages->count++] = pool.page(jobs_.front().page_id);
    batch.push_back(std::move(jobs_.front()));
    jobs_.pop_front();
  }
  return batch;
}

bool CudaPageHasher::pump() {
  if (jobs_.empty()) return false;
  cuda_check(cudaSetDevice(device_), "digest of pages: device");
  if (gpu_ == nullptr) gpu_ = std::make_unique<Gpu>();
  DigestPages pages;
  const std::vector<Job> batch = take_batch(&pages);
  const size_t bytes = batch.size() * sizeof(WordSums);
  const cudaStream_t stream = gpu_->stream.get();
  cuda_check(cudaMemsetAsync(gpu_->sums.data(), 0, bytes, stream), "digest of pages");
  digest_pages(pages, gpu_->sums.as<WordSums>(), stream);
  std::array<WordSums, kDigestPagesMax> sums;
  cuda_check(cudaMemcpyAsync(sums.data(), gpu_->sums.data(), bytes, cudaMemcpyDeviceToHost, stream),
             "digest of pages");
  gpu_->stream.synchronize();
  for (size_t i = 0; i < batch.size(); ++i) batch[i].done({sums[i].low, sums[i].high});
  return !jobs_.empty();
}

}  // namespace

std::unique_ptr<PageHasher> make_cuda_page_hasher(int32_t device, std::vector<PagePool*> pools) {
  return std::make_unique<CudaPageHasher>(device, std::move(pools));
}

}  // namespace baton
