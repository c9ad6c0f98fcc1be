// y = relu(gate) * up

#include "asynct/dyht.cuh"
#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "asynct/rows.cuh"

namespace asynct {
namespace {

constexpr int kRowsInFlight = 2;

template <class T, int kSize>
struct GateAndUp {
  Vector<T, kSize> gate;
  Vector<T, kSize> up;
};

template <class T, int kSize>
__global__ void __launch_bounds__(kThreadsPerBlock, kBlocksPerMultiprocessor)
    ReluAndMulKernel(const __grid_constant__ ReluAndMulParams params) {
  const int column = ThreadVector() * kSize;
  if (column >= params.channels) return;
  const T* gate = static_cast<const T*>(params.gate_up.data) + column;
  T* y = static_cast<T*>(params.y) + column;
  ForRows<kRowsInFlight>(
      params.rows,
      [&](int64_t row) {
        const T* address = gate + row * params.gate_up.row_stride;
        return GateAndUp<T, kSize>{LoadVector<kSize>(address),
                                   LoadVector<kSize>(address + params.channels)};
      },
      [] {},
      [&](int64_t row, const GateAndUp<T, kSize>& in) {
        float values[kSize];
        float factors[kSize];
        Unpack(in.gate, values);
        Unpack(in.up, factors);
#pragma unroll
        for (int i = 0; i < kSize; ++i) values[i] = MaxNaN(values[i], 0.0f) * factors[i];
        StoreVector(y + row * params.channels, Pack<T>(values));
      });
}

}  // namespace

void ReluAndMul(const ReluAndMulParams& params, cudaStream_t stream) {
  const bool vector =
      Aligned(params.dtype, params.gate_up.data, params.gate_up.row_stride, params.channels) &&
      Aligned(params.dtype, params.y, params.channels);
  Dispatch(params.dtype, vector, [&](auto element) {
    using E = decltype(element);
    LaunchRows("relu_and_mul", ReluAndMulKernel<typename E::Type, E::kVectorSize>, params,
               params.rows, params.channels / E::kVectorSize, stream);
  });
}

}  // namespace asynct
