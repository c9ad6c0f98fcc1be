// The fused q, k, v projection with DyHT_q and DyHT_k in its epilogue.
#include "asynct/dyht.cuh"
#include "gemm.cuh"

namespace asynct::epilogue_bench {
namespace {

// gamma * clamp(alpha * x, -limit, limit): DyHT of q and k at limit 1; v passes at limit infinity,
// alpha and gamma 1.
template <class Floats>
struct LimitedDyHT {
  __device__ Floats operator()(const Floats& x, const Floats& alpha, const Floats& gamma,
                               const Floats& limit) const {
    Floats y;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Floats::kElements; ++i) {
      y[i] = DyHTOf(x[i], alpha[i], gamma[i], -limit[i], limit[i]);
    }
    return y;
  }
};

template <class Tile>
using Tree = Node<LimitedDyHT, Element, Accumulator, PerColumn<Tile>, PerColumn<Tile>,
                  PerColumn<Tile>>;

template <class Tile>
int Launch(int m, int n, int k, const void* x, const void* weight, void* out,
           const void* const vectors[3], cudaStream_t stream) {
  return Gemm<Tile, void, Element, Tree<Tile>>::Launch(
      m, n, k, x, weight, nullptr, out,
      {{}, Column<Tile>(vectors[0]), Column<Tile>(vectors[1]), Column<Tile>(vectors[2]), {}},
      stream);
}

}  // namespace
}  // namespace asynct::epilogue_bench

// out [m, n] = LimitedDyHT(x [m, k] weight [n, k]^T); vectors alpha, gamma, limit [n], null for
// ones; all bf16.
extern "C" __attribute__((visibility("default"))) int epilogue_qkv(
    int tile, int m, int n, int k, const void* x, const void* weight, void* out,
    const void* const vectors[3], cudaStream_t stream) {
  using namespace asynct::epilogue_bench;
  return Choose<32>(tile, [&](auto t) {
    return Launch<decltype(t)>(m, n, k, x, weight, out, vectors, stream);
  });
}
