// How a token's rows go to their slot of a paged cache.
#pragma once

#include <type_traits>

#include "asynct/cache.h"
#include "asynct/fp8.cuh"
#include "asynct/launch_rows.cuh"
#include "asynct/vector.cuh"

namespace asynct {

// `address` is where `vector` goes; into a cache in fp8, divided by the head's scale.
template <class T, class Stored, int kSize>
__device__ __forceinline__ void StoreInCache(Stored* address, const Vector<T, kSize>& vector,
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

// One slot, of K and of V.
template <class Stored>
struct CacheSlot {
  int64_t block;
  int64_t offset;

  __device__ __forceinline__ CacheSlot(int64_t slot, int block_size)
      : block(slot / block_size), offset(slot % block_size) {}

  // Stores neighbouring channels of one head in K or V.
  template <class T, int kSize>
  __device__ __forceinline__ void Store(const CacheView& cache, int head, int channel,
                                        const Vector<T, kSize>& vector) const {
    const float scale = cache.scale ? cache.scale[head * cache.scale_stride] : 1.0f;
    Stored* to = static_cast<Stored*>(cache.data) + block * cache.block_stride +
                 offset * cache.slot_stride + head * cache.head_stride + channel;
    StoreInCache(to, vector, scale);
  }
};

inline bool Aligned(DataType dtype, const HeadsView& view) {
  return Aligned(dtype, view.data, view.token_stride, view.head_stride);
}

inline bool Aligned(const CacheWriteParams& params) {
  // A vector of a cache in fp8 is half as long, and its strides count elements of half the size.
  const auto cache = [&](const CacheView& view) {
    return Aligned(params.dtype, view.data, view.block_stride, view.slot_stride, view.head_stride);
  };
  return Aligned(params.dtype, params.fresh.key) && Aligned(params.dtype, params.fresh.value) &&
         cache(params.cache.key) && cache(params.cache.value);
}

// Calls function(Element<T, kSize>{}, Stored{}) for the types of the rows and of the cache.
template <class T, class Function>
void DispatchStored(DataType stored, bool vector, Function function) {
  DispatchVector<T>(vector, [&](auto element) {
    if (stored == DataType::kFloat8E4M3) {
      function(element, __nv_fp8_e4m3{});
    } else {
      function(element, T{});
    }
  });
}

template <class Function>
void DispatchCache(const CacheWriteParams& params, bool vector, Function function) {
  if (params.dtype == DataType::kBFloat16) {
    DispatchStored<__nv_bfloat16>(params.cache.dtype, vector, function);
  } else {
    DispatchStored<__half>(params.cache.dtype, vector, function);
  }
}

}  // namespace asynct
