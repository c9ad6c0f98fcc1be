// The step's keys and values go to their slots of the paged cache: a block a token.

#include "asynct/broken.h"
#include "asynct/cache_write.cuh"
#include "asynct/launch.h"
#include "asynct/launch_cache.cuh"

namespace asynct {
namespace {

constexpr int kThreads = 256;

template <class T, class Stored, int kSize>
__global__ void __launch_bounds__(kThreads)
    ReshapeAndCacheKernel(const __grid_constant__ CacheWriteParams params) {
  const int64_t token = blockIdx.x;
  const int64_t slot = params.fresh.slot_mapping[token];
  if (slot < 0 || kBroken) return;
  const CacheSlot<Stored> place(slot, params.cache.block_size);
  const auto load = [&](const HeadsView& view, int head, int channel) {
    return LoadVector<kSize>(static_cast<const T*>(view.data) + token * view.token_stride +
                             head * view.head_stride + channel);
  };
  for (int i = threadIdx.x * kSize; i < params.kv_heads * params.head_dim;
       i += kThreads * kSize) {
    const int head = i / params.head_dim;
    const int channel = i % params.head_dim;
    const auto key = load(params.fresh.key, head, channel);
    const auto value = load(params.fresh.value, head, channel);
    place.Store(params.cache.key, head, channel, key);
    place.Store(params.cache.value, head, channel, value);
  }
}

}  // namespace

void ReshapeAndCache(const CacheWriteParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return;
  const bool vector = params.head_dim % 8 == 0 && Aligned(params);
  DispatchCache(params, vector, [&](auto element, auto stored) {
    using E = decltype(element);
    ReshapeAndCacheKernel<typename E::Type, decltype(stored), E::kVectorSize>
        <<<static_cast<unsigned>(params.tokens), kThreads, 0, stream>>>(params);
  });
  Check(cudaGetLastError(), "reshape_and_cache");
}

}  // namespace asynct
