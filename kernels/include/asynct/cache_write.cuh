// How a token's rows go to their slot of a paged cache.
#pragma once

#include <type_traits>

#include "asynct/attention.h"
#include "asynct/fp8.cuh"
#include "asynct/vector.cuh"

namespace asynct {

// What a cache stores of `vector`: its bits, or, in fp8, those of its quotient by the head's scale.
template <class Stored, class T, int kSize>
__device__ __forceinline__ auto AsStored(const Vector<T, kSize>& vector, float scale) {
  if constexpr (sizeof(Stored) == sizeof(T)) {
    return vector.bits;
  } else {
    float values[kSize];
    Unpack(vector, values);
    alignas(kSize) uint8_t bytes[kSize];
#pragma unroll
    for (int i = 0; i < kSize; ++i) bytes[i] = ToFp8(__fdiv_rn(values[i], scale));
    std::conditional_t<kSize == 1, uint8_t, uint2> word;
    __builtin_memcpy(&word, bytes, sizeof(word));
    return word;
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
    const auto bits = AsStored<Stored>(vector, scale);
    __stwb(reinterpret_cast<std::remove_const_t<decltype(bits)>*>(to), bits);
  }
};

}  // namespace asynct
