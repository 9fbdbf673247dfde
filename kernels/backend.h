// The operations of a forward pass. A forward pass is written once, against this interface; the
// device chooses who does the work: CpuBackend (kernels/*/<op>_cpu.cc) here, CudaBackend
// (kernels/*/<op>.cu) on a GPU. Every op's folder has the header with its arguments and contract.
// All calls of one Backend come from one thread (the engine thread). Pointers are borrowed for the
// call.
//
// Numerics on CPU: each row of a result depends on that row's inputs alone, with one fixed order of
// additions, whatever the number of rows, threads or pages: prefill(n) equals prefill(n-1) + decode
// bit for bit.
#pragma once

#include <memory>

#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_kv/rope_kv.h"

namespace baton {

class Backend {
 public:
  virtual ~Backend() = default;

  // Takes weights into the form that `linear` is fastest with (quantised types stay quantised).
  // Borrows `data` for the life of the result if no repacking pays off (mapped files), else copies.
  // Throws ConfigError for a dtype it has no kernel for.
  virtual std::unique_ptr<LinearWeight> prepare(const TensorView& weight) = 0;

  virtual void embedding(const EmbeddingArgs& args) = 0;
  virtual void rms_norm(const RmsNormArgs& args) = 0;
  virtual void linear(const LinearArgs& args) = 0;
  virtual void rope_kv(const RopeKvArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  virtual void activation(const ActivationArgs& args) = 0;

  virtual const char* isa() const = 0;  // "avx512_vnni", "avx2", "portable": part of numerics_id
};

// `threads` compute threads including the caller's; workers sleep between steps and spin at most
// some microseconds inside one. `isa`: "auto", or one of the names above to test the others; throws
// ConfigError when the CPU lacks it.
std::unique_ptr<Backend> make_cpu_backend(int32_t threads, const char* isa = "auto");

}  // namespace baton
