// DyHT and RoPE of a step's queries and keys, and its keys and values to their slots of the paged
// cache, in one launch. A thread takes the same channels of both halves of one head.

#include "asynct/cache_write.cuh"
#include "asynct/launch.h"
#include "asynct/launch_cache.cuh"
#include "asynct/norm_rope.cuh"

namespace asynct {
namespace {

constexpr int kThreads = 256;

template <class T, class Stored, int kSize>
__global__ void __launch_bounds__(kThreads)
    QkNormRopeCacheKernel(const __grid_constant__ QkNormRopeCacheParams params) {
  const CacheWriteParams& write = params.write;
  const int half = write.head_dim / 2;
  const int vectors = half / kSize;
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int heads = params.heads + 2 * write.kv_heads;
  const int64_t token = item / (heads * vectors);
  if (token >= params.tokens) return;
  const int column = static_cast<int>(item - token * (heads * vectors));
  int head = column / vectors;
  const int channel = (column - head * vectors) * kSize;
  const bool is_query = head < params.heads;
  const bool is_value = head >= params.heads + write.kv_heads;
  if (!is_query) head -= params.heads;
  if (is_value) head -= write.kv_heads;

  const bool is_written = !is_query && token < write.tokens;
  const int64_t slot = is_written ? write.fresh.slot_mapping[token] : -1;
  const HeadsView& view =
      is_query ? params.query : is_value ? write.fresh.value : write.fresh.key;
  const T* from = static_cast<const T*>(view.data) + token * view.token_stride +
                  head * view.head_stride + channel;
  auto low = LoadVector<kSize>(from);
  auto high = LoadVector<kSize>(from + half);
  if (!is_value) {
    const DyHTParams& dyht = is_query ? params.norm_rope.q : params.norm_rope.k;
    NormRope<T, kSize> norm_rope(dyht, write.head_dim, channel);
    const StoredAngles<T, kSize> angles(params.norm_rope.cos_sin, write.head_dim,
                                        params.positions[token], channel);
    float x[kSize], y[kSize], cos[kSize], sin[kSize];
    Unpack(low, x);
    Unpack(high, y);
    angles.Unpack(cos, sin);
    norm_rope.Apply(x, y, cos, sin);
    low = Pack<T>(x);
    high = Pack<T>(y);
    T* to = static_cast<T*>(is_query ? params.query_out : params.key_out) + channel +
            (token * (is_query ? params.heads : write.kv_heads) + head) * write.head_dim;
    StoreVector(to, low);
    StoreVector(to + half, high);
  }
  if (slot < 0) return;
  const CacheSlot<Stored> place(slot, write.cache.block_size);
  const CacheView& cache = is_value ? write.cache.value : write.cache.key;
  place.Store(cache, head, channel, low);
  place.Store(cache, head, channel + half, high);
}

bool Aligned(const QkNormRopeCacheParams& params) {
  const CacheWriteParams& write = params.write;
  const NormRopeParams& norm_rope = params.norm_rope;
  return write.head_dim % 16 == 0 && Aligned(write) && Aligned(write.dtype, params.query) &&
         Aligned(write.dtype, params.query_out) && Aligned(write.dtype, params.key_out) &&
         Aligned(write.dtype, norm_rope.q) && Aligned(write.dtype, norm_rope.k) &&
         Aligned(norm_rope.cos_sin.dtype, norm_rope.cos_sin.data);
}

}  // namespace

void QkNormRopeCache(const QkNormRopeCacheParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return;
  const int64_t heads = params.heads + 2 * params.write.kv_heads;
  DispatchCache(params.write, Aligned(params), [&](auto element, auto stored) {
    using E = decltype(element);
    const int64_t items = params.tokens * heads * (params.write.head_dim / 2 / E::kVectorSize);
    QkNormRopeCacheKernel<typename E::Type, decltype(stored), E::kVectorSize>
        <<<static_cast<unsigned>(CeilDiv(items, kThreads)), kThreads, 0, stream>>>(params);
  });
  Check(cudaGetLastError(), "qk_norm_rope_cache");
}

}  // namespace asynct
