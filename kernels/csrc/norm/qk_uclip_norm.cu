// q' = DyHT_q(q);  k' = DyHT_k(k), in one launch: a token's query heads, then its key heads, are the
// columns of one row.

#include "asynct/dyht.cuh"
#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "asynct/rows.cuh"

namespace asynct {
namespace {

constexpr int kRowsInFlight = 4;

template <class T, int kSize>
__global__ void __launch_bounds__(kThreadsPerBlock, kBlocksPerMultiprocessor)
    QkUclipNormKernel(const __grid_constant__ QkUclipNormParams params) {
  const int column = ThreadVector() * kSize;
  int head = column / params.head_size;
  const int channel = column - head * params.head_size;
  if (head >= params.q.heads + params.k.heads) return;
  const bool is_key = head >= params.q.heads;
  const HeadsUclipNormParams& part = is_key ? params.k : params.q;
  if (is_key) head -= params.q.heads;

  DyHT<T, kSize> dyht(part.dyht, channel);
  const T* x = static_cast<const T*>(part.x.data) + head * part.x.head_stride + channel;
  T* y = static_cast<T*>(part.y) + head * params.head_size + channel;
  const int64_t x_stride = part.x.token_stride;
  const int64_t y_stride = part.heads * params.head_size;
  ForRows<kRowsInFlight>(
      params.tokens, [&](int64_t token) { return LoadVector<kSize>(x + token * x_stride); },
      [&] { dyht.Prepare(); },
      [&](int64_t token, const Vector<T, kSize>& in) {
        float values[kSize];
        Unpack(in, values);
        dyht.Apply(values);
        StoreVector(y + token * y_stride, Pack<T>(values));
      });
}

bool Aligned(DataType dtype, const HeadsUclipNormParams& part, int64_t head_size) {
  return Aligned(dtype, part.x.data, part.x.token_stride, part.x.head_stride) &&
         Aligned(dtype, part.y, head_size) && Aligned(dtype, part.dyht);
}

}  // namespace

void QkUclipNorm(const QkUclipNormParams& params, cudaStream_t stream) {
  const bool vector = Aligned(params.dtype, params.q, params.head_size) &&
                      Aligned(params.dtype, params.k, params.head_size);
  const int64_t channels = (params.q.heads + params.k.heads) * params.head_size;
  Dispatch(params.dtype, vector, [&](auto element) {
    using E = decltype(element);
    LaunchRows("hp1_qk_uclip_norm", QkUclipNormKernel<typename E::Type, E::kVectorSize>, params,
               params.tokens, channels / E::kVectorSize, stream);
  });
}

}  // namespace asynct
