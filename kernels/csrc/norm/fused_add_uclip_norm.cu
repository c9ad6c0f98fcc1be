// new_residual = x + residual;  y = DyHT(new_residual), of the residual as it was rounded

#include "asynct/dyht.cuh"
#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "asynct/rows.cuh"

namespace asynct {
namespace {

constexpr int kRowsInFlight = 2;

template <class T, int kSize>
struct Inputs {
  Vector<T, kSize> x;
  Vector<T, kSize> residual;
};

template <class T, int kSize>
__global__ void __launch_bounds__(kThreadsPerBlock, kBlocksPerMultiprocessor)
    FusedAddUclipNormKernel(const __grid_constant__ FusedAddUclipNormParams params) {
  const int column = ThreadVector() * kSize;
  if (column >= params.channels) return;
  DyHT<T, kSize> dyht(params.dyht, column);
  const T* x = static_cast<const T*>(params.x.data) + column;
  const T* residual = static_cast<const T*>(params.residual.data) + column;
  T* y = static_cast<T*>(params.y) + column;
  T* new_residual = static_cast<T*>(params.new_residual) + column;
  ForRows<kRowsInFlight>(
      params.rows,
      [&](int64_t row) {
        return Inputs<T, kSize>{
            LoadVector<kSize>(x + row * params.x.row_stride),
            LoadVector<kSize>(residual + row * params.residual.row_stride)};
      },
      [&] { dyht.Prepare(); },
      [&](int64_t row, const Inputs<T, kSize>& in) {
        float values[kSize];
        float addends[kSize];
        Unpack(in.residual, values);
        Unpack(in.x, addends);
#pragma unroll
        for (int i = 0; i < kSize; ++i) values[i] += addends[i];
        const Vector<T, kSize> sum = Pack<T>(values);
        StoreVector(new_residual + row * params.channels, sum);
        Unpack(sum, values);
        dyht.Apply(values);
        StoreVector(y + row * params.channels, Pack<T>(values));
      });
}

}  // namespace

void FusedAddUclipNorm(const FusedAddUclipNormParams& params, cudaStream_t stream) {
  const DataType dtype = params.dtype;
  const bool vector = Aligned(dtype, params.x.data, params.x.row_stride) &&
                      Aligned(dtype, params.residual.data, params.residual.row_stride) &&
                      Aligned(dtype, params.y, params.channels) &&
                      Aligned(dtype, params.new_residual, params.channels) &&
                      Aligned(dtype, params.dyht);
  Dispatch(dtype, vector, [&](auto element) {
    using E = decltype(element);
    LaunchRows("fused_add_uclip_norm", FusedAddUclipNormKernel<typename E::Type, E::kVectorSize>,
               params, params.rows, params.channels / E::kVectorSize, stream);
  });
}

}  // namespace asynct
