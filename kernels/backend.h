// The operations of a forward pass. A forward pass is written once, against this interface; the
// device chooses who does the work: CpuBackend (kernels/*/<op>_isa.cc, all values float32) here,
// CudaBackend (kernels/*/<op>.cu, types of activation_types.h) on a GPU. Every op's folder has the
// header with its arguments and contract. All calls of one backend come from one thread (the engine
// thread). Pointers are borrowed for the call and lie in the backend's memory; on CUDA a call only
// enqueues, and what it points to must live until the stream has passed it.
//
// Numerics on CPU: each row of a result depends on that row's inputs alone, with one fixed order of
// additions, whatever the number of rows, threads or pages: prefill(n) equals prefill(n-1) + decode
// bit for bit. On CUDA a row's result depends neither on what the other rows hold nor on pages, and
// on how many rows there are only where another kernel takes over
// (CudaLinearOptions::deterministic).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/activation/activation.h"
#include "kernels/activation_types.h"
#include "kernels/attention/attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_kv/rope_kv.h"

namespace baton {

// Memory that a backend's ops can reach.
class BackendMemory {
 public:
  virtual ~BackendMemory() = default;
  std::byte* data() const { return data_; }
  template <typename E>
  E* as() const {
    return reinterpret_cast<E*>(data_);
  }

 protected:
  explicit BackendMemory(std::byte* data) : data_(data) {}

 private:
  std::byte* const data_;
};

// What does not depend on the activations' type: memory and weights.
class Backend {
 public:
  virtual ~Backend() = default;

  // Takes weights that share their input, [rows_i, cols] each, of one dtype, as one matrix of all
  // rows, in the form that `linear` is fastest with. On CPU quantised types stay quantised, and
  // `data` is borrowed for the life of the result if no repacking pays off (mapped files). Throws
  // ConfigError for a dtype it has no kernel for.
  virtual std::unique_ptr<LinearWeight> prepare_stacked(std::span<const TensorView> stacked,
                                                        MatrixInput input) = 0;
  std::unique_ptr<LinearWeight> prepare(const TensorView& weight,
                                        MatrixInput input = MatrixInput::kNormed) {
    return prepare_stacked({&weight, 1}, input);
  }
  virtual std::unique_ptr<EmbeddingTable> prepare_table(const TensorView& table) = 0;

  virtual std::unique_ptr<BackendMemory> allocate(int64_t bytes) = 0;  // contents undefined
  // A copy of host memory; complete when it returns.
  virtual std::unique_ptr<BackendMemory> upload(const void* data, int64_t bytes) = 0;

  virtual const char* isa() const = 0;  // "avx512_vnni", "sm_90": part of numerics_id
};

// The ops on activations of type T.
template <typename T>
class BackendOf : public Backend {
 public:
  using Normed = typename ActivationTypes<T>::Normed;
  using Residual = typename ActivationTypes<T>::Residual;

  virtual void embedding(const EmbeddingArgs<Residual>& args) = 0;
  virtual void gather_rows(const GatherRowsArgs<Residual>& args) = 0;
  virtual void rms_norm(const RmsNormArgs<Residual, Normed>& args) = 0;
  virtual void linear(const LinearArgs<Normed>& args) = 0;           // overwrites y
  virtual void add_linear(const LinearArgs<T, Residual>& args) = 0;  // adds to y
  virtual void logits(const LinearArgs<Normed, float>& args) = 0;    // overwrites y
  virtual void rope_kv(const RopeKvArgs<T, Normed>& args) = 0;
  virtual void attention(const AttentionArgs<T>& args) = 0;
  virtual void activation(const ActivationArgs<T, Normed>& args) = 0;
};

// `threads` compute threads including the caller's; workers sleep between steps and spin at most
// some microseconds inside one. `isa`: "auto", or one of the names above to test the others; throws
// ConfigError when the CPU lacks it.
std::unique_ptr<BackendOf<float>> make_cpu_backend(int32_t threads, const char* isa = "auto");

}  // namespace baton
