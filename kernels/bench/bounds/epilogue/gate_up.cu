// The gate and up projections as one, with relu(gate) * up in the epilogue.
//
// Rows 2i and 2i + 1 of the weight are gate i and up i, so a thread holds both of a pair. The
// output is half as wide as the product, which an epilogue's tensors cannot be: it is declared as
// bytes, [m, n], and the two bytes of a pair are one bf16 of [m, n / 2].
#include <cuda_bf16.h>

#include "asynct/dyht.cuh"
#include "gemm.cuh"

namespace asynct::epilogue_bench {
namespace {

template <class>
struct ReluAndMul {
  template <int kSize>
  __device__ auto operator()(const cutlass::Array<float, kSize>& gate_up) const {
    cutlass::Array<uint8_t, kSize> bytes;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kSize; i += 2) {
      const float product = MaxNaN(gate_up[i], 0.0f) * gate_up[i + 1];
      const auto bits = __bfloat16_as_ushort(__float2bfloat16_rn(product));
      bytes[i] = static_cast<uint8_t>(bits & 0xFF);
      bytes[i + 1] = static_cast<uint8_t>(bits >> 8);
    }
    return bytes;
  }
};

using Tree = Node<ReluAndMul, uint8_t, Accumulator>;

}  // namespace
}  // namespace asynct::epilogue_bench

// out [m, n / 2] = relu(x [m, k] gate^T) * (x up^T), weight [n, k] interleaved as above; all bf16.
extern "C" __attribute__((visibility("default"))) int epilogue_gate_up(
    int tile, int m, int n, int k, const void* x, const void* weight, void* out,
    cudaStream_t stream) {
  using namespace asynct::epilogue_bench;
  return Choose<96>(tile, [&](auto t) {
    return Gemm<decltype(t), void, uint8_t, Tree>::Launch(m, n, k, x, weight, nullptr, out,
                                                          {{}, {}}, stream);
  });
}
