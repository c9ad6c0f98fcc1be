// The gate and up projections as one, with relu(gate) * up in the epilogue.
//
// Columns 2i and 2i + 1 of the product are gate i and up i, so a thread holds both of a pair. The
// output is half as wide as the product, which an epilogue's tensors cannot be: it is declared as
// bytes, [m, n], and the two bytes of a pair are one element of [m, n / 2].
#include "asynct/dyht.cuh"
#include "asynct/launch.h"
#include "gemm.cuh"

namespace asynct {
namespace {

template <class Element>
struct ReluAndMulAs {
  template <class>
  struct Function {
    template <int kSize>
    __device__ auto operator()(const cutlass::Array<float, kSize>& gate_up) const {
      cutlass::Array<uint8_t, kSize> bytes;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kSize; i += 2) {
        const uint16_t bits = Element(MaxNaN(gate_up[i], 0.0f) * gate_up[i + 1]).raw();
        bytes[i] = static_cast<uint8_t>(bits & 0xFF);
        bytes[i + 1] = static_cast<uint8_t>(bits >> 8);
      }
      return bytes;
    }
  };
};

}  // namespace

void LinearReluAndMul(const LinearReluAndMulParams& params, cudaStream_t stream) {
  gemm::DispatchElement(params.dtype, [&](auto element) {
    using Element = decltype(element);
    using Tree = gemm::Node<ReluAndMulAs<Element>::template Function, uint8_t, gemm::Accumulator>;
    gemm::Gemm<Element, gemm::RowsInPairs, void, uint8_t, Tree>::Launch(
        "linear_relu_and_mul", params.rows, 2 * params.channels, params.depth, params.x,
        params.weight, nullptr, params.y, {{}, {}}, stream);
  });
}

}  // namespace asynct
