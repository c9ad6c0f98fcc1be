// y = DyHT(x)

#include "asynct/dyht.cuh"
#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "asynct/rows.cuh"

namespace asynct {
namespace {

constexpr int kRowsInFlight = 4;

template <class T, int kSize>
__global__ void __launch_bounds__(kThreadsPerBlock, kBlocksPerMultiprocessor)
    UclipNormKernel(const __grid_constant__ UclipNormParams params) {
  const int column = ThreadVector() * kSize;
  if (column >= params.channels) return;
  DyHT<T, kSize> dyht(params.dyht, column);
  const T* x = static_cast<const T*>(params.x.data) + column;
  T* y = static_cast<T*>(params.y) + column;
  ForRows<kRowsInFlight>(
      params.rows,
      [&](int64_t row) { return LoadVector<kSize>(x + row * params.x.row_stride); },
      [&] { dyht.Prepare(); },
      [&](int64_t row, const Vector<T, kSize>& in) {
        float values[kSize];
        Unpack(in, values);
        dyht.Apply(values);
        StoreVector(y + row * params.channels, Pack<T>(values));
      });
}

}  // namespace

void UclipNorm(const UclipNormParams& params, cudaStream_t stream) {
  const bool vector = Aligned(params.dtype, params.x.data, params.x.row_stride) &&
                      Aligned(params.dtype, params.y, params.channels) &&
                      Aligned(params.dtype, params.dyht);
  Dispatch(params.dtype, vector, [&](auto element) {
    using E = decltype(element);
    LaunchRows("uclip_norm", UclipNormKernel<typename E::Type, E::kVectorSize>, params,
               params.rows, params.channels / E::kVectorSize, stream);
  });
}

}  // namespace asynct
