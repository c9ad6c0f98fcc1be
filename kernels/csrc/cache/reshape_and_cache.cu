// The step's keys and values go to their slots of the paged cache: a block a token.

#include <type_traits>

#include "asynct/broken.h"
#include "asynct/fp8.cuh"
#include "asynct/launch.h"
#include "asynct/launch_rows.cuh"
#include "asynct/vector.cuh"

namespace asynct {
namespace {

constexpr int kThreads = 256;

// `address` is where `vector` goes; into a cache in fp8, divided by the head's scale.
template <class T, class Stored, int kSize>
__device__ __forceinline__ void Store(Stored* address, const Vector<T, kSize>& vector,
                                      float scale) {
  if constexpr (sizeof(Stored) == sizeof(T)) {
    StoreVector(address, vector);
  } else {
    float values[kSize];
    Unpack(vector, values);
    alignas(kSize) uint8_t bytes[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) bytes[i] = ToFp8(__fdiv_rn(values[i], scale));
    using Word = std::conditional_t<kSize == 1, uint8_t, uint2>;
    *reinterpret_cast<Word*>(address) = *reinterpret_cast<const Word*>(bytes);
  }
}

// The slot's elements of one head, in one of the two halves of the cache.
template <class T, class Stored, int kSize>
__device__ __forceinline__ void StoreHead(const CacheView& cache, int64_t block, int64_t offset,
                                          int head, int channel, const Vector<T, kSize>& vector) {
  const float scale = cache.scale ? cache.scale[head * cache.scale_stride] : 1.0f;
  Stored* to = static_cast<Stored*>(cache.data) + block * cache.block_stride +
               offset * cache.slot_stride + head * cache.head_stride + channel;
  Store(to, vector, scale);
}

template <class T, class Stored, int kSize>
__global__ void __launch_bounds__(kThreads)
    ReshapeAndCacheKernel(const __grid_constant__ CacheWriteParams params) {
  const int64_t token = blockIdx.x;
  const int64_t slot = params.fresh.slot_mapping[token];
  if (slot < 0 || kBroken) return;
  const int64_t block = slot / params.cache.block_size;
  const int64_t offset = slot % params.cache.block_size;
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
    StoreHead<T, Stored>(params.cache.key, block, offset, head, channel, key);
    StoreHead<T, Stored>(params.cache.value, block, offset, head, channel, value);
  }
}

template <class T, class Stored, int kSize>
void Launch(const CacheWriteParams& params, cudaStream_t stream) {
  ReshapeAndCacheKernel<T, Stored, kSize>
      <<<static_cast<unsigned>(params.tokens), kThreads, 0, stream>>>(params);
  Check(cudaGetLastError(), "reshape_and_cache");
}

bool Aligned(const CacheWriteParams& params) {
  const auto fresh = [&](const HeadsView& view) {
    return Aligned(params.dtype, view.data, view.token_stride, view.head_stride);
  };
  // A vector of a cache in fp8 is half as long, and its strides count elements of half the size.
  const auto cache = [&](const CacheView& view) {
    return Aligned(params.dtype, view.data, view.block_stride, view.slot_stride, view.head_stride);
  };
  return params.head_dim % 8 == 0 && fresh(params.fresh.key) && fresh(params.fresh.value) &&
         cache(params.cache.key) && cache(params.cache.value);
}

template <class T, class Stored>
void DispatchVector(const CacheWriteParams& params, cudaStream_t stream) {
  if (Aligned(params)) {
    Launch<T, Stored, 8>(params, stream);
  } else {
    Launch<T, Stored, 1>(params, stream);
  }
}

template <class T>
void DispatchStored(const CacheWriteParams& params, cudaStream_t stream) {
  if (params.cache.dtype == DataType::kFloat8E4M3) {
    DispatchVector<T, __nv_fp8_e4m3>(params, stream);
  } else {
    DispatchVector<T, T>(params, stream);
  }
}

}  // namespace

void ReshapeAndCache(const CacheWriteParams& params, cudaStream_t stream) {
  if (params.tokens == 0) return;
  if (params.dtype == DataType::kBFloat16) {
    DispatchStored<__nv_bfloat16>(params, stream);
  } else {
    DispatchStored<__half>(params, stream);
  }
}

}  // namespace asynct
