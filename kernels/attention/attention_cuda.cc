#include "kernels/attention/attention_cuda.h"

#include "base/check.h"
#include "kernels/attention/attention_any_cuda.h"
#include "kernels/attention/attention_params.h"

namespace baton {
namespace {

constexpr float kLog2E = 1.44269504f;

AttentionParams params_of(const AttentionArgs<Bf16>& args) {
  CHECK(args.batch.plan != nullptr) << "attention on a GPU needs a plan";
  CHECK(args.kv.dtype == Dtype::kBF16)
      << "KV pages are " << dtype_info(args.kv.dtype).name << ", want bf16";
  CHECK_EQ(args.kv.page_tokens % 16, 0) << "tokens of a page";
  CHECK_EQ(args.q_stride % 8, 0) << "q's rows want 16-byte alignment";
  CHECK_EQ(args.kv.page_bytes % 16, 0) << "pages want 16-byte alignment";
  CHECK_EQ(args.kv.layer_offset % 16, 0) << "pages want 16-byte alignment";
  const bool capped = args.soft_cap > 0;
  return {.q = args.q,
          .y = args.y,
          .q_stride = args.q_stride,
          .y_stride = static_cast<int64_t>(args.num_heads) * args.kv.head_dim,
          .sequences = args.batch.sequences,
          .plan = *args.batch.plan,
          .pages = args.kv.base + args.kv.layer_offset,
          .page_bytes = args.kv.page_bytes,
          .page_tokens = args.kv.page_tokens,
          .num_kv_heads = args.kv.num_kv_heads,
          .group = args.num_heads / args.kv.num_kv_heads,
          .window = args.window,
          .score_factor = capped ? args.scale / args.soft_cap : args.scale * kLog2E,
          .cap_factor = capped ? args.soft_cap * kLog2E : 0.0f};
}

template <int kDim>
void launch_both(const AttentionParams& params, cudaStream_t stream) {
  if (params.plan.has_prefill) launch_prefill_attention<kDim>(params, stream);
  if (params.plan.has_decode) launch_decode_attention<kDim>(params, stream);
}

}  // namespace

void attention_cuda(const AttentionArgs<Bf16>& args, cudaStream_t stream) {
  const AttentionParams params = params_of(args);
  switch (args.kv.head_dim) {
    case 64:
      return launch_both<64>(params, stream);
    case 80:
      return launch_both<80>(params, stream);
    case 96:
      return launch_both<96>(params, stream);
    case 128:
      return launch_both<128>(params, stream);
    case 256:
      return launch_both<256>(params, stream);
    default:
      return attention_any_cuda(args, stream);
  }
}

}  // namespace baton
