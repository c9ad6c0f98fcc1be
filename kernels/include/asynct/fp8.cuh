// fp8 e4m3 as caches store it, and the 16-bit types that the tensor cores take. Every e4m3 value is
// one of float16 and of bfloat16 (only its NaN is not kept: it becomes 480).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "asynct/vector.cuh"

namespace asynct {

// Sign, exponent and mantissa are moved to their places in the wider type, and a product with a
// power of two makes up for the different exponent bias; it is exact, for subnormals too.
template <class T>
struct Fp8Bits;
template <>
struct Fp8Bits<__half> {
  static constexpr int kShift = 1;
  static constexpr uint32_t kBias = 0x5c005c00;  // 2^8, twice
};
template <>
struct Fp8Bits<__nv_bfloat16> {
  static constexpr int kShift = 4;
  static constexpr uint32_t kBias = 0x7b807b80;  // 2^120, twice
};

// The four values of `bytes`, as two pairs of T.
template <class T>
__device__ __forceinline__ void FromFp8(uint32_t bytes, uint32_t (&pairs)[2]) {
  using Pair = typename PairOf<T>::Type;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t high = __byte_perm(bytes, 0, i == 0 ? 0x1404 : 0x3424);  // above zero bytes
    const uint32_t placed =
        (high & 0x80008000) | ((high & 0x7f007f00) >> Fp8Bits<T>::kShift);
    const uint32_t bias = Fp8Bits<T>::kBias;
    const Pair product =
        __hmul2(reinterpret_cast<const Pair&>(placed), reinterpret_cast<const Pair&>(bias));
    pairs[i] = reinterpret_cast<const uint32_t&>(product);
  }
}

// `value` rounded to the nearest e4m3, ties to even; beyond its range the largest, 448.
__device__ __forceinline__ uint8_t ToFp8(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

}  // namespace asynct
